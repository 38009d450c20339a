"""What a browser may ask, by its headers alone, before anything else is done for it. Pure.

A page of another site that an operator has open can make the operator's browser send requests here: by a link, a form, a script, or by a
name that it owns and that resolves to this machine (DNS rebinding). The cookie is not sent along (SameSite=Strict); these rules hold where
a browser does not keep to that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import NamedTuple

SAFE = frozenset({"GET", "HEAD"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Of each answer to a browser."""


class BrowserRefusal(StrEnum):
    """Why a request is not answered."""

    HOST = "host"
    """It names a host that this site does not have."""
    CHANGE_FROM_ELSEWHERE = "change_from_elsewhere"
    """It would change something, and does not come from one of our own pages, or does not say where it comes from."""
    PART_FROM_ELSEWHERE = "part_from_elsewhere"
    """A page of another site embeds it, or a script there asks for it."""


WORDS = {
    BrowserRefusal.HOST: "This name is not one of this controller's: use its host name or IP address, or add it to dashboard.hosts",
    BrowserRefusal.CHANGE_FROM_ELSEWHERE: "Changes are accepted from the dashboard's own pages alone: open it and repeat the step there",
    BrowserRefusal.PART_FROM_ELSEWHERE: "The dashboard may not be embedded in pages of other sites: open it in another tab",
}


class BrowserRequest(NamedTuple):
    """What is known of a request before its body is read."""

    method: str
    scheme: str
    headers: Mapping[str, str]
    """By lower-case name."""


def refusal(asked: BrowserRequest, hosts: Collection[str]) -> BrowserRefusal | None:
    """Why not to answer; None: answer. ``hosts``: this site's names in lower case; IP addresses and localhost need not be among them, as no
    other site's name resolves in a URL that has none."""
    if not _is_ours(host_of(asked.headers.get("host", "")), hosts):
        return BrowserRefusal.HOST
    site = asked.headers.get("sec-fetch-site")
    if asked.method not in SAFE:
        return None if _own_change(asked, site) else BrowserRefusal.CHANGE_FROM_ELSEWHERE
    if site in (None, "same-origin", "none") or _opened(asked.headers):
        return None
    return BrowserRefusal.PART_FROM_ELSEWHERE


def from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Whether a link of another site was followed: the browser keeps a strict cookie back then."""
    return headers.get("sec-fetch-site") in ("cross-site", "same-site") and _opened(headers)


def host_of(header: str) -> str:
    """The name in a Host header, in lower case and without its port; empty: there is none, or it is malformed."""
    text = header.strip().lower()
    if text.startswith("["):
        name, bracket, rest = text[1:].partition("]")
        return name if bracket and (not rest or rest.startswith(":")) else ""
    name, _, port = text.partition(":")
    return name.removesuffix(".") if not port or port.isdecimal() else ""


def _is_ours(host: str, hosts: Collection[str]) -> bool:
    if not host:
        return False
    if host == "localhost" or host in hosts:
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _own_change(asked: BrowserRequest, site: str | None) -> bool:
    origin = asked.headers.get("origin")
    if origin is not None and origin != f"{asked.scheme}://{asked.headers.get('host', '')}":
        return False
    return site == "same-origin" or (site is None and origin is not None)


def _opened(headers: Mapping[str, str]) -> bool:
    """Whether a person opened it as a page."""
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
