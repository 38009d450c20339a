"""Pages, signing in and buttons, as a browser meets them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import httpx
import pytest

from dashboard.conftest import ORIGIN, SAME_SITE, Browser
from holdfast.api.answers.overview_shapes import WaitingShape
from holdfast.api.callers.readers import ReaderBounds, ReaderQuotas
from holdfast.api.client import ApiClient
from holdfast.cli.app import run
from holdfast.dashboard import pages
from holdfast.dashboard.charts import timeline
from holdfast.dashboard.gate import HEADERS
from holdfast.dashboard.pages import Pages
from holdfast.dashboard.render import assets, environment
from holdfast.dashboard.screen import NodeTrouble
from holdfast.model.errors import Unavailable
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.policies.node_sets import NodeSet
from holdfast_checks.acting import CheckPolicy, Lists
from holdfast_checks.result import Remedy
from support.simulated.clock import EPOCH
from support.simulated.site import Site

MakeBrowser = Callable[..., Browser]
PAGES = ("/", "/ui/incidents", "/ui/node/n3", "/ui/jobs", "/ui/fleet", "/ui/settings", "/ui/audit")


def faulty(site: Site) -> None:
    site.fault("n3", remedy=Remedy.HUMAN)
    site.run(5)


def test_a_stranger_sees_the_way_in_and_nothing_else(make_browser: MakeBrowser) -> None:
    browser = make_browser(before=faulty)
    for page in PAGES:
        answer = browser.get(page)
        assert answer.status_code == 303, page
        assert answer.headers["location"].startswith("/ui/sign-in")
        assert "n3" not in answer.text
    assert browser.get("/ui/live").status_code == 401
    assert browser.post("/ui/do/pause", reason="x").status_code == 401
    assert browser.get("/ui/sign-in").status_code == 200


def test_what_is_wrong_is_found_and_read(make_browser: MakeBrowser) -> None:
    browser = make_browser(before=faulty)
    browser.sign_in()
    first = browser.get("/").text
    assert "1 thing needs you" in first
    assert "Waits for you" in first
    assert "<dd>3<small> of 4</small></dd>" in first
    incident = browser.site.incident("n3")
    assert f"/ui/incident/{incident.id}" in first
    assert "n3: in repair" in first
    shown = browser.get(f"/ui/incident/{incident.id}").text
    assert "GPU has fallen off the bus" in shown
    assert "Everything on record" in shown
    assert "detect" in shown
    for page in PAGES:
        assert browser.get(page).status_code == 200, page


def test_every_answer_says_how_a_browser_treats_it(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    for path in ("/", "/ui/sign-in", "/ui/live", "/ui/nothing", *assets()):
        answer = browser.get(path)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS, path
    assert browser.get("/ui/sign-in").headers["cache-control"] == "no-store"
    for path in assets():
        assert "immutable" in browser.get(path).headers["cache-control"]
    assert "content-security-policy" not in browser.ask("GET", "/healthz", {}).headers


def test_the_cookie_is_the_browsers_alone(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    cookie = browser.sign_in().headers["set-cookie"]
    name, _, rest = cookie.partition("=")
    assert name == "__Host-holdfast"
    assert {part.strip().lower() for part in rest.split(";")[1:]} == {"httponly", "path=/", "samesite=strict", "secure"}
    assert "token-op" not in cookie


def test_signing_in_ends_the_session_that_was_there(make_browser: MakeBrowser) -> None:
    """Session fixation: a cookie that another person planted is not the one that is signed in."""
    browser = make_browser()
    browser.sign_in()
    planted = browser.cookies["__Host-holdfast"]
    browser.sign_in("eve")
    assert browser.cookies["__Host-holdfast"] != planted
    other = Browser(browser.site, browser.served)
    other.cookies.set("__Host-holdfast", planted, domain="head.example")
    assert other.get("/").status_code == 303


def test_signing_out_ends_the_session(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    browser.sign_in()
    secret = browser.cookies["__Host-holdfast"]
    assert browser.post("/ui/sign-out").status_code == 303
    browser.cookies.set("__Host-holdfast", secret, domain="head.example")
    assert browser.get("/").status_code == 303


@pytest.mark.parametrize(
    ("token", "status", "words"),
    [
        ("", 422, "holdfast login"),
        ("made-up", 401, "is not known"),
        ("token-n1", 403, "node&#39;s token"),
        ("x" * 9000, 413, "larger"),
    ],
)
def test_what_does_not_sign_in(make_browser: MakeBrowser, token: str, status: int, words: str) -> None:
    browser = make_browser()
    answer = browser.post("/ui/sign-in", token=token)
    assert (answer.status_code, words in answer.text) == (status, True)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ("/ui/node/n1", "/ui/node/n1"),
        ("https://evil.example/", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/ui/\\evil.example", "/"),
        ("/ui/../v1/nodes", "/"),
        ("/ui/%2e%2E/v1/nodes", "/"),
        ("/ui/.%2e//evil.example", "/"),
        ("/ui/x\r\nSet-Cookie: a=b", "/"),
        ("javascript:alert(1)", "/"),
    ],
)
def test_signing_in_leads_to_our_own_pages(make_browser: MakeBrowser, wanted: str, got: str) -> None:
    assert make_browser().sign_in(next=wanted).headers["location"] == got


def test_a_code_signs_in_once_and_for_reading_only(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    code = browser.served.call("POST", "/v1/logins", json={"read_only": True}).json()["code"]
    assert browser.post("/ui/sign-in", token=code).status_code == 303
    assert "reading only" in browser.get("/").text
    refused = browser.post("/ui/do/pause", reason="x")
    assert (refused.status_code, "reading only" in refused.text) == (403, True)
    assert browser.site.book.paused is None
    assert Browser(browser.site, browser.served).post("/ui/sign-in", token=code).status_code == 401


def test_a_code_is_for_reading_only_where_the_form_says_so(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    code = browser.served.call("POST", "/v1/logins", json={}).json()["code"]
    browser.post("/ui/sign-in", token=code, read_only="yes")
    assert browser.post("/ui/do/pause", reason="x").status_code == 403
    assert browser.site.book.paused is None


def test_cookies_of_other_services_of_the_host_do_not_hide_ours(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    browser.sign_in()
    secret, browser.cookies = browser.cookies["__Host-holdfast"], httpx.Cookies()
    for other in ('prefs={"a": 1}', "a[b]=1", "bare", "long=" + "y" * 9000):
        answer = browser.ask("GET", "/ui/jobs", {"Cookie": f"{other}; __Host-holdfast={secret}"})
        assert answer.status_code == 200, other


def test_strangers_do_not_fill_the_log(make_browser: MakeBrowser, caplog: pytest.LogCaptureFixture) -> None:
    browser = make_browser()
    with caplog.at_level("INFO", "holdfast.dashboard"):
        for number in range(5):
            browser.post("/ui/sign-in", token=f"made-up-{number}")
            browser.post(f"/ui/do/made-up-{number}")
        assert [r.getMessage() for r in caplog.records] == ["event=dashboard_sign_ins_refused count=1 last_status=401"]
        browser.site.run(60)
        browser.post("/ui/sign-in", token="made-up")
        assert "count=5" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("path", ["/", "/ui/live", "/ui/jobs"])
def test_pages_count_for_the_quota_of_their_token(make_browser: MakeBrowser, path: str) -> None:
    browser = make_browser()
    browser.sign_in("eve")
    api = browser.served.app.state.api
    api.readers = ReaderQuotas(browser.site.clock.monotonic_s, ReaderBounds(requests=0, requests_per_s=0.001))
    assert browser.get(path).status_code == 429


def test_the_way_back_is_a_page_of_ours(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    browser.sign_in()
    for referer, back in (
        (f"{ORIGIN}/ui/node/n1", "/ui/node/n1"),
        (f"{ORIGIN}//evil.example", "/"),
        (f"{ORIGIN}.evil.example/ui/", "/"),
        ("", "/"),
    ):
        answer = browser.ask("POST", "/ui/do/resume", {**SAME_SITE, "Referer": referer}, data={})
        assert f'<a href="{back}">Back</a>' in answer.text, referer


def test_a_job_is_not_called_unknown_because_nothing_can_be_read(
    make_browser: MakeBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = make_browser()
    browser.sign_in()

    def away(*_: object) -> None:
        raise Unavailable("the database is away")

    monkeypatch.setattr(browser.served.store, "job_ends", away)
    answer = browser.get("/ui/job/100")
    assert (answer.status_code, "the database is away" in answer.text) == (503, True)
    assert "Nothing is known" not in answer.text


def test_a_long_audit_log_begins_with_its_newest_orders_and_leads_on_to_older_ones(
    make_browser: MakeBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST_ORDERS", 2)
    browser = make_browser()
    browser.sign_in()
    for number in range(3):
        browser.post("/ui/do/note", target="n1", reason=f"note {number}")
    first = browser.get("/ui/audit").text
    assert first.index("note 2") < first.index("note 1")
    assert "note 0" not in first
    older = re.search(r'href="([^"]+)">Older ones<', first)
    assert older is not None
    rest = browser.get(unescape(older[1])).text
    assert ("note 0" in rest, "note 1" in rest, "Older ones" in rest) == (True, False, False)


def test_the_command_line_prints_the_way_in(
    make_browser: MakeBrowser, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    browser = make_browser()

    def send(_client: ApiClient, method: str, path: str, body: bytes | None, *_more: object) -> bytes:
        return browser.served.call(
            method, path, "viewer", "eve", content=body, headers={"Content-Type": "application/json"}
        ).content

    monkeypatch.setenv("HOLDFAST_TOKEN", "any")
    monkeypatch.setattr(ApiClient, "_send", send)
    assert run(("login",)) == 0
    address, _, by_hand = capsys.readouterr().out.partition("\n")
    code = address.partition("/ui/sign-in#")[2]
    assert code in by_hand
    assert browser.post("/ui/sign-in", token=code).status_code == 303
    assert "eve (viewer)" in browser.get("/").text


def test_a_session_ends_with_its_token(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    browser.sign_in()
    row = next(t for t in browser.served.store.tokens() if t.subject == "op")
    browser.served.store.revoke_token(row.hash)
    browser.site.run(60)
    assert browser.get("/").status_code == 303


def test_a_button_does_what_its_verb_does(make_browser: MakeBrowser) -> None:
    browser = make_browser(before=faulty)
    browser.sign_in()
    answer = browser.post("/ui/do/pause", reason="looking into it")
    assert answer.status_code == 200
    assert "Paused" in answer.text
    assert browser.site.book.paused == "op: looking into it"
    incident = browser.site.incident("n3")
    assert browser.post("/ui/do/acknowledge", target=incident.id, reason="mine").status_code == 200
    after = browser.served.store.incident(incident.id)
    assert after is not None
    assert after.acknowledged
    assert "looking into it" in browser.get("/ui/audit").text


def test_a_button_answers_a_script_with_a_line_of_the_page(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    browser.sign_in()
    fields = {"target": "0" * 12, "reason": ""}
    headers = {"Origin": ORIGIN, "HX-Request": "true"}
    answer = browser.ask("POST", "/ui/do/close", headers, data=fields)
    assert answer.status_code == 200
    assert answer.text.startswith('<p class="problem">')
    assert "<html" not in answer.text


@pytest.mark.parametrize("target", ["../pause", "x/close", "0" * 13, "", "n1 n2"])
def test_a_button_has_no_other_target(make_browser: MakeBrowser, target: str) -> None:
    browser = make_browser()
    browser.sign_in()
    assert browser.post("/ui/do/close", target=target, reason="x").status_code == 404
    assert browser.post("/ui/do/nothing", target=target).status_code == 404


def test_a_viewer_reads_and_changes_nothing(make_browser: MakeBrowser) -> None:
    browser = make_browser(before=faulty)
    browser.sign_in("eve")
    assert 'class="piece reading"' in browser.get("/").text
    assert "/ui/do/acknowledge" not in browser.get(f"/ui/incident/{browser.site.incident('n3').id}").text
    answer = browser.post("/ui/do/pause", reason="x")
    assert (answer.status_code, "operator" in answer.text) == (403, True)
    assert browser.site.book.paused is None


def test_a_user_sees_the_own_jobs_alone(make_browser: MakeBrowser) -> None:
    """PrivateData: no node, no other user's job, no incident."""

    def jobs(site: Site) -> None:
        mine, theirs = site.slurm.submit(1), site.slurm.submit(1, user="bob", uid=2000)
        site.run(2)
        for job in (mine, theirs):
            said = {"uid": job.uid, "path": "/ckpt", "detail": {"fenced": True}}
            site.agents.state(site.machine(job.nodes[0]), "checkpoint.register", job.job_id, 0, **said)
        site.run(2)
        site.fault(mine.nodes[0])
        site.run(5)

    browser = make_browser(before=jobs)
    browser.sign_in("1000")
    for page in ("/", "/ui/incidents", "/ui/node/n1", "/ui/fleet", "/ui/settings", "/ui/audit"):
        answer = browser.get(page)
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/jobs"), page
    assert browser.get("/ui/live").status_code == 403
    shown = browser.get("/ui/jobs").text
    assert 'href="/ui/job/100"' in shown
    assert len(browser.served.store.recoveries(job_id=100)) == 1
    assert "/ui/incident/" not in shown
    assert "bob" not in shown
    assert "/ui/job/101" not in shown
    assert "Nothing is known of a job 101 of yours" in browser.get("/ui/job/101").text


def test_a_page_that_does_not_exist_says_so(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    browser.sign_in()
    for path, words in (
        ("/ui/node/nope", "There is no node nope"),
        ("/ui/incident/0123456789ab", "There is no incident"),
    ):
        answer = browser.get(path)
        assert answer.status_code == 404
        assert words in answer.text


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        ("12", "/ui/job/12"),
        ("0h3k5d2m8x1q", "/ui/incident/0h3k5d2m8x1q"),
        ("n3", "/ui/node/n3"),
        ("a/../b?c", "/ui/node/a%2F..%2Fb%3Fc"),
        (" ", "/"),
    ],
)
def test_go_to(make_browser: MakeBrowser, typed: str, place: str) -> None:
    answer = make_browser().ask("GET", "/ui/find", params={"q": typed})
    assert answer.headers["location"] == place


def test_a_link_from_elsewhere_is_followed_once_more_from_here(make_browser: MakeBrowser) -> None:
    """A browser keeps a strict cookie back when a link in a mail is followed."""
    browser = make_browser()
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    answer = browser.ask("GET", "/ui/incidents", headers)
    assert (answer.status_code, 'http-equiv="refresh"' in answer.text) == (200, True)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null"},
        {},
        {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin", "Host": "evil.example"},
    ],
)
def test_another_sites_page_changes_nothing(make_browser: MakeBrowser, headers: dict[str, str]) -> None:
    browser = make_browser()
    browser.sign_in()
    for path in ("/ui/do/pause", "/ui/sign-in", "/ui/sign-out"):
        assert browser.ask("POST", path, headers, data={"reason": "x", "token": "token-op"}).status_code == 403
    assert browser.site.book.paused is None
    assert browser.get("/").status_code == 200


def test_a_cookie_opens_pages_alone_and_no_route_of_the_api(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    browser.sign_in()
    assert browser.get("/v1/nodes").status_code == 401
    assert browser.ask("POST", "/v1/pause", json={}).status_code == 401


ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title><svg onload=alert(1)>",
    "{{ 7*7 }}{% raw %}",
    "javascript:alert(1)",
    "</hx-partial><b hx-get=//evil>",
    "\u202egnp.exe\u2066\u200b",
)


@pytest.mark.parametrize("text", ATTACKS)
def test_texts_of_others_are_shown_and_do_nothing(make_browser: MakeBrowser, text: str) -> None:
    """Of agents (check, code, component, summary), Slurm (reasons, users, names of jobs), operators and the incident's own note."""

    def attack(site: Site) -> None:
        site.fault("n3", remedy=Remedy.HUMAN, check=text, code=text, component=text, summary=text)
        site.slurm.operator_drains("n2", reason=text, user=text)
        site.slurm.submit(1, user=text, name=text)
        site.run(5)
        incident = site.incident("n3")
        site.operate("acknowledge", incident.id, text, who=text)
        site.run(2)

    browser = make_browser(before=attack)
    browser.sign_in()
    incident = browser.site.incident("n3")
    assert incident.state in tuple(IncidentState)
    pages = (*PAGES, "/ui/node/n2", "/ui/job/100", f"/ui/incident/{incident.id}")
    shown = {page: browser.get(page).text for page in pages}
    for page, html in shown.items():
        for raw in (
            "<script>alert",
            "<img src=x",
            "' onmouseover=",
            "<svg onload",
            "<b hx-get",
            "\u202e",
            "\u2066",
            "\u200b",
        ):
            assert raw not in html, (page, raw)
    assert any(replace_marks(text) in html for html in shown.values())


def replace_marks(text: str) -> str:
    """As Jinja2 escapes it, hidden characters by their numbers."""
    for raw, seen in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&#34;"), ("'", "&#39;")):
        text = text.replace(raw, seen)
    for hidden in "\u202e\u2066\u200b":
        text = text.replace(hidden, f"\\u{ord(hidden):04x}")
    return text


def test_a_cluster_that_is_not_read_yet_has_a_first_screen(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    browser.served.app.state.api.deps.world = lambda: None
    browser.sign_in()
    answer = browser.get("/")
    assert answer.status_code == 200
    assert "the control loop has not turned yet" in answer.text


def test_what_waits_and_what_was_wrong_are_short_however_many_and_long() -> None:
    """Each viewer is sent them each second that something changes."""
    shown = Pages(environment(), lambda: EPOCH)
    headline = '"' * 100_000
    trouble = NodeTrouble("n1", "0h3k5d2m8x1q", headline, EPOCH, None, waits=False)
    rows, more = timeline([trouble] * 100, EPOCH)
    assert len(shown.text("pieces/timeline.html", rows=rows, more_rows=more)) < 500_000
    waiting = [WaitingShape(kind="incident", subject=f"n{n}", what="x", since=None, answer="") for n in range(4096)]
    overview = SimpleNamespace(sentence="", mode="act", release="0.1", waiting=waiting, doing=[])
    now = shown.text("pieces/now.html", screen=SimpleNamespace(overview=overview, cluster=""))
    assert now.count("<li>") == 50
    assert "and 4046 more" in now


def test_the_fleet_page_counts_failures_by_cause(make_browser: MakeBrowser) -> None:
    browser = make_browser(before=faulty)
    browser.sign_in()
    page = browser.get("/ui/fleet").text
    assert "1 incidents of the last 30 days" in page
    assert re.search(r"<td>gpu.xid</td><td class=\"number\">1</td><td class=\"number\">1</td>", page)


def test_the_settings_page_shows_the_policy_of_checks(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    deps = browser.served.app.state.api.deps
    sets = (NodeSet("big", nodes="n1", thresholds={"gpu": {"temperature_margin_c": 7.0}}),)
    deps.policy = replace(deps.policy, nodes=sets, checks=CheckPolicy(Lists(observe_only=("gpu.xid",))))
    browser.sign_in()
    page = browser.get("/ui/settings").text
    assert "<td>gpu.xid</td><td>observes</td><td>[checks]</td><td>yes</td>" in page
    assert "<td>gpu.temperature_margin_c</td><td>7</td><td>big</td>" in page


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [("/ui/nothing", 404, "GET /ui/nothing"), ("/ui/incidents?cursor=x", 422, "cursor"), ("/ui/node/n%00", 422, "")],
)
def test_what_cannot_be_shown_is_said_on_a_page(make_browser: MakeBrowser, path: str, status: int, text: str) -> None:
    browser = make_browser()
    browser.sign_in()
    answer = browser.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert "This cannot be shown" in answer.text
    assert text in answer.text
    assert browser.get("/v1/nothing").headers["content-type"] == "application/json"


def test_who_asks_too_often_reads_when_to_come_back(make_browser: MakeBrowser) -> None:
    browser = make_browser()
    browser.sign_in("eve")
    api = browser.served.app.state.api
    api.readers = ReaderQuotas(browser.site.clock.monotonic_s, ReaderBounds(requests=0, requests_per_s=0.001))
    answer = browser.get("/")
    assert (answer.status_code, "This cannot be shown" in answer.text) == (429, True)
    assert int(answer.headers["retry-after"]) > 0
