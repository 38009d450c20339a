"""Sign-in at a reverse proxy in front of the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from starlette.datastructures import Headers

from dashboard.conftest import ORIGIN, SAME_SITE, Browser
from holdfast.api.callers.auth import hash_token
from holdfast.config.dashboard import check_dashboard
from holdfast.config.sections import DashboardSection
from holdfast.dashboard.proxied import ProxyTrust, read_trust
from holdfast.model.errors import ConfigError

MakeBrowser = Callable[..., Browser]
SECRET = "s" * 32
TRUST = ProxyTrust("x-remote-user", SECRET)
OPENED = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


def as_user(name: str, secret: str = SECRET) -> dict[str, str]:
    return {"X-Remote-User": name, "X-Holdfast-Proxy-Secret": secret}


@pytest.mark.parametrize(
    ("pairs", "user"),
    [
        ([("X-Remote-User", "alice"), ("X-Holdfast-Proxy-Secret", SECRET)], "alice"),
        ([("x-remote-user", " alice "), ("x-holdfast-proxy-secret", SECRET)], "alice"),
        ([("X-Remote-User", "alice")], None),
        ([("X-Remote-User", "alice"), ("X-Holdfast-Proxy-Secret", "")], None),
        ([("X-Remote-User", "alice"), ("X-Holdfast-Proxy-Secret", SECRET[:-1])], None),
        ([("X-Remote-User", "alice"), ("X-Holdfast-Proxy-Secret", SECRET + "s")], None),
        ([("X-Remote-User", "alice"), ("X-Remote-User", "root"), ("X-Holdfast-Proxy-Secret", SECRET)], None),
        ([("X-Remote-User", "alice"), ("X-Holdfast-Proxy-Secret", SECRET), ("X-Holdfast-Proxy-Secret", "x")], None),
        ([("X-Remote-User", ""), ("X-Holdfast-Proxy-Secret", SECRET)], None),
        ([("X-Remote-User", "alice\xa0"), ("X-Holdfast-Proxy-Secret", SECRET)], None),
        ([("X-Remote-User", "\x85alice"), ("X-Holdfast-Proxy-Secret", SECRET)], None),
        ([("X-Remote-User", "a\tb"), ("X-Holdfast-Proxy-Secret", SECRET)], None),
        ([("X-Remote-User", "a" * 300), ("X-Holdfast-Proxy-Secret", SECRET)], None),
        ([("X-Holdfast-Proxy-Secret", SECRET)], None),
        ([], None),
    ],
)
def test_whom_a_request_is_believed_to_be_of(pairs: list[tuple[str, str]], user: str | None) -> None:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs]
    assert TRUST.user(Headers(raw=raw)) == user


def test_the_secret_stays_out_of_texts() -> None:
    assert SECRET not in repr(TRUST)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("short\n", "32 to 512"),
        ("a b" * 20, "32 to 512"),
        ("s" * 600, "32 to 512"),
        (f"{SECRET}\n{SECRET}\n", "32 to 512"),
        (None, "cannot be read"),
    ],
)
def test_a_secret_that_is_none_is_refused(tmp_path: Path, content: str | None, why: str) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=why):
        read_trust(DashboardSection(proxy_user_header="X-Remote-User", proxy_secret_file=file))


def test_the_secret_is_read_without_its_line_break(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    section = DashboardSection(proxy_user_header="X-Remote-User", proxy_secret_file=tmp_path / "secret")
    check_dashboard(section, "here")
    assert read_trust(section) == TRUST
    assert read_trust(DashboardSection()) is None


FILE = Path("/s")


@pytest.mark.parametrize(
    ("section", "why"),
    [
        (DashboardSection(proxy_user_header="X-Remote-User"), "proxy_secret_file is missing"),
        (DashboardSection(proxy_secret_file=FILE), "proxy_user_header is missing"),
        (DashboardSection(proxy_user_header="Cookie", proxy_secret_file=FILE), "cannot be used: take"),
        (DashboardSection(proxy_user_header="X-Holdfast-Proxy-Secret", proxy_secret_file=FILE), "cannot be used: take"),
        (DashboardSection(proxy_user_header="Sec-Fetch-Site", proxy_secret_file=FILE), "cannot be used: take"),
        (DashboardSection(proxy_user_header="X Remote", proxy_secret_file=FILE), "cannot be used: take"),
        (DashboardSection(proxy_sign_out="//evil.example/"), "proxy_sign_out"),
        (DashboardSection(proxy_sign_out="javascript:alert(1)"), "proxy_sign_out"),
        (DashboardSection(proxy_sign_out="/a\r\nSet-Cookie: x=y"), "proxy_sign_out"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(section: DashboardSection, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_dashboard(section, "here")


@pytest.mark.parametrize("out", ["", "/oauth2/sign_out?rd=%2F", "https://sso.example.org/out"])
def test_places_to_sign_out(out: str) -> None:
    check_dashboard(DashboardSection(proxy_sign_out=out), "here")


@pytest.fixture
def browser(make_browser: MakeBrowser) -> Browser:
    """At a site that believes a proxy."""
    return make_browser(proxy=TRUST)


def test_who_has_signed_in_at_the_proxy_is_let_in_with_the_rights_of_the_own_token(browser: Browser) -> None:
    sent = browser.ask("GET", "/ui/audit", OPENED | as_user("op"))
    assert sent.headers["location"] == "/ui/sign-in?next=%2Fui%2Faudit"
    let_in = browser.ask("GET", sent.headers["location"], OPENED | as_user("op"))
    assert (let_in.status_code, let_in.headers["location"]) == (303, "/ui/audit")
    page = browser.ask("GET", "/ui/audit", OPENED | as_user("op"))
    assert (page.status_code, "op (operator)" in page.text) == (200, True)
    done = browser.ask("POST", "/ui/do/note", SAME_SITE | as_user("op"), data={"target": "n1", "reason": "seen"})
    assert done.status_code == 200
    assert "seen" in browser.ask("GET", "/ui/audit", OPENED | as_user("op")).text


def test_a_session_stands_while_the_proxy_names_its_user(browser: Browser) -> None:
    browser.ask("GET", "/ui/sign-in", OPENED | as_user("op"))
    assert browser.ask("GET", "/ui/audit", OPENED | as_user("op")).status_code == 200
    for headers in (as_user("eve"), as_user("op", "x" * 32), {}):
        assert browser.ask("GET", "/ui/audit", OPENED | headers).status_code == 303
    assert browser.ask("POST", "/ui/do/pause", SAME_SITE | as_user("eve"), data={"reason": "x"}).status_code == 401


@pytest.mark.parametrize("name", ["mallory", "n1", "1000"])
def test_a_name_without_a_token_of_a_reader_is_told_how_to_get_one(browser: Browser, name: str) -> None:
    answer = browser.ask("GET", "/ui/sign-in", OPENED | as_user(name))
    assert (answer.status_code, "holdfast token create viewer" in answer.text) == (200, True)
    assert "set-cookie" not in answer.headers


def test_without_the_secret_a_name_is_nothing(browser: Browser) -> None:
    for headers in ({"X-Remote-User": "op"}, as_user("op", "y" * 32)):
        answer = browser.ask("GET", "/ui/sign-in", OPENED | headers)
        assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)


def test_a_site_that_believes_no_proxy_hears_none(make_browser: MakeBrowser) -> None:
    answer = make_browser().ask("GET", "/ui/sign-in", OPENED | as_user("op"))
    assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)


def test_the_api_itself_does_not_know_the_proxy(browser: Browser) -> None:
    assert browser.ask("GET", "/v1/nodes", as_user("op")).status_code == 401


def test_a_session_begun_by_hand_is_neither_ended_nor_widened(browser: Browser) -> None:
    browser.sign_in("op", read_only="yes")
    answer = browser.ask("GET", "/ui/sign-in?next=/ui/audit", OPENED | as_user("op"))
    assert (answer.headers["location"], "set-cookie" in answer.headers) == ("/ui/audit", False)
    assert "reading only" in browser.ask("GET", "/ui/audit", OPENED | as_user("op")).text


def test_signing_out_is_not_undone_by_the_next_page(browser: Browser) -> None:
    browser.ask("GET", "/ui/sign-in", OPENED | as_user("op"))
    out = browser.ask("POST", "/ui/sign-out", SAME_SITE | as_user("op"))
    shown = browser.ask("GET", out.headers["location"], OPENED | as_user("op"))
    assert (shown.status_code, "Sign in again as op" in shown.text, "set-cookie" in shown.headers) == (200, True, False)


def test_the_newest_token_of_the_highest_role_counts_and_a_revoked_one_does_not(browser: Browser) -> None:
    store, now = browser.served.store, browser.site.clock.now()
    store.add_token("operator", "eve", hash_token("new"), now)
    browser.site.run(60)
    browser.ask("GET", "/ui/sign-in", OPENED | as_user("eve"))
    assert "eve (operator)" in browser.ask("GET", "/ui/audit", OPENED | as_user("eve")).text
    store.revoke_token(hash_token("new"))
    browser.site.run(60)
    assert browser.ask("GET", "/ui/audit", OPENED | as_user("eve")).status_code == 303
    browser.ask("GET", "/ui/sign-in", OPENED | as_user("eve"))
    assert "eve (viewer)" in browser.ask("GET", "/ui/audit", OPENED | as_user("eve")).text


def test_a_proxy_may_have_a_page_for_signing_out(make_browser: MakeBrowser) -> None:
    browser = make_browser(proxy=TRUST, sign_out="https://sso.example/out")
    browser.ask("GET", "/ui/sign-in", OPENED | as_user("op"))
    out = browser.ask("POST", "/ui/sign-out", SAME_SITE | as_user("op"))
    assert out.headers["location"] == "https://sso.example/out"
    assert ORIGIN not in out.headers["location"]


def test_the_session_of_another_person_ends_as_the_next_one_signs_in(browser: Browser) -> None:
    browser.ask("GET", "/ui/sign-in", OPENED | as_user("op"))
    before = httpx.Cookies(browser.cookies)
    browser.ask("GET", "/ui/sign-in", OPENED | as_user("eve"))
    assert "eve (viewer)" in browser.ask("GET", "/ui/audit", OPENED | as_user("eve")).text
    browser.cookies = before
    assert browser.ask("GET", "/ui/audit", OPENED | as_user("op")).status_code == 303
