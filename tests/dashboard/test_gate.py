"""What a browser may ask, by its headers."""

from __future__ import annotations

import pytest

from holdfast.dashboard.gate import BrowserRefusal, BrowserRequest, from_elsewhere, host_of, refusal

HOSTS = frozenset({"head", "head.example.org"})
SAME = {"sec-fetch-site": "same-origin"}
CROSS = {"sec-fetch-site": "cross-site"}
OPENED = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def asked(method: str = "GET", host: str = "head:8460", scheme: str = "https", **headers: str) -> BrowserRequest:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return BrowserRequest(method, scheme, ({"host": host} if host else {}) | given)


@pytest.mark.parametrize(
    "host",
    ["head", "head:8460", "HEAD.example.org.", "localhost:1", "127.0.0.1:8460", "[::1]:8460", "[fe80::1]", "10.0.0.7"],
)
def test_names_of_this_site_are_answered(host: str) -> None:
    assert refusal(asked(host=host), HOSTS) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example:8460",
        "head.example.org.evil.example",
        "head.evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "head@evil.example",
        "head:80:80",
        "[::1",
        "[::1]evil",
        "head:x",
        "ｈead",
    ],
)
def test_a_name_that_another_site_may_own_is_refused(host: str) -> None:
    """DNS rebinding: a name of theirs that resolves to this machine."""
    assert refusal(asked(host=host), HOSTS) is BrowserRefusal.HOST


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"origin": "https://head:8460", **SAME}, False),
        ({"origin": "https://head:8460"}, False),
        (SAME, False),
        ({"origin": "https://evil.example", **CROSS}, True),
        ({"origin": "https://evil.example"}, True),
        ({"origin": "https://evil.example", **SAME}, True),
        ({"origin": "https://head:8460", **CROSS}, True),
        ({"origin": "https://head:8460", "sec-fetch-site": "same-site"}, True),
        ({"origin": "http://head:8460"}, True),
        ({"origin": "https://head"}, True),
        ({"origin": "null"}, True),
        ({}, True),
        ({"sec-fetch-site": "none"}, True),
        ({**OPENED, **CROSS}, True),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_change_comes_from_our_own_pages(method: str, headers: dict[str, str], refused: bool) -> None:
    """Cross-site request forgery."""
    found = refusal(BrowserRequest(method, "https", {"host": "head:8460", **headers}), HOSTS)
    assert found is (BrowserRefusal.CHANGE_FROM_ELSEWHERE if refused else None)


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, False),
        (SAME, False),
        ({"sec-fetch-site": "none"}, False),
        ({**CROSS, **OPENED}, False),
        (CROSS, True),
        ({**CROSS, "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, True),
        ({**CROSS, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, True),
        ({**CROSS, "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}, True),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, True),
    ],
)
def test_a_page_is_opened_and_never_embedded(headers: dict[str, str], refused: bool) -> None:
    found = refusal(BrowserRequest("GET", "https", {"host": "head", **headers}), HOSTS)
    assert found is (BrowserRefusal.PART_FROM_ELSEWHERE if refused else None)


def test_a_followed_link_is_recognised() -> None:
    assert from_elsewhere({**CROSS, **OPENED})
    assert not from_elsewhere({**SAME, **OPENED})
    assert not from_elsewhere(CROSS)


@pytest.mark.parametrize(("header", "name"), [("Head:8460", "head"), ("[::1]:1", "::1"), ("a:b", ""), ("[x", "")])
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    assert host_of(header) == name
