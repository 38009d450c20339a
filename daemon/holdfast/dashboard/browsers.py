"""Before the application: what comes from a browser, by the path that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.callers.auth import SHOWN_TOKEN
from holdfast.dashboard.gate import HEADERS, WORDS, BrowserRequest, from_elsewhere, refusal
from holdfast.dashboard.proxied import ProxyTrust
from holdfast.dashboard.sessions import BrowserSession, BrowserSessions

SESSION = "holdfast.session"
"""Key in a request's scope: the session that its cookie names, where it is valid for this request."""
SECRET = "holdfast.secret"  # noqa: S105 - the name of a key
PROXIED = "holdfast.proxied"
"""Key in a request's scope: name of who has signed in at the proxy, as it proves; None: no proxy says so."""
COOKIE, PLAIN_COOKIE = "__Host-holdfast", "holdfast-local"
"""With TLS, and on loopback without it, where a browser may not take a secure cookie."""
_AGAIN = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0"><title>Holdfast</title>'


def is_page(path: str) -> bool:
    """Whether a path is the dashboard's."""
    return path in ("/", "/ui") or path.startswith("/ui/")


class BrowserGate:
    """Refuses what no page of ours asks, finds the session, and adds to each answer how a browser is to treat it."""

    def __init__(
        self,
        app: ASGIApp,
        sessions: BrowserSessions,
        hosts: Callable[[], Collection[str]],
        proxy: ProxyTrust | None = None,
    ) -> None:
        """``proxy``: the one whose word on who has signed in counts; None: no proxy's does."""
        self._app, self._sessions, self._hosts, self._proxy = app, sessions, hosts, proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_page(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = refusal(BrowserRequest(scope["method"], scope["scheme"], headers), self._hosts())
        answer: ASGIApp = self._app
        if refused is not None:
            answer = HTMLResponse(f"<!doctype html><title>Holdfast</title><p>{WORDS[refused]}.</p>", status_code=403)
        else:
            name = COOKIE if scope["scheme"] == "https" else PLAIN_COOKIE
            secret = cookie_parser(headers.get("cookie", "")).get(name, "")
            session = self._sessions.find(secret) if secret else None
            scope[SECRET] = secret
            scope[PROXIED] = proxied = self._proxy.user(headers) if self._proxy is not None else None
            if session is not None and session.proxied in ("", proxied):
                scope[SHOWN_TOKEN], scope[SESSION] = session.token, session
            elif not secret and from_elsewhere(headers):
                answer = HTMLResponse(
                    _AGAIN
                )  # the browser kept a strict cookie back: asked again from here, it sends it
        await answer(scope, receive, _guarded(send))


def session_of(scope: Scope) -> BrowserSession | None:
    """The session of a browser's request; None: it is not signed in."""
    found = scope.get(SESSION)
    return found if isinstance(found, BrowserSession) else None


def proxied_user(scope: Scope) -> str | None:
    """Who has signed in at the proxy in front; None: there is none, or no one has."""
    found = scope.get(PROXIED)
    return found if isinstance(found, str) else None


def set_cookie(answer: Response, secret: str, scheme: str) -> None:
    """Have the browser keep the secret until it is closed; an empty one ends it."""
    secure = scheme == "https"
    answer.set_cookie(
        COOKIE if secure else PLAIN_COOKIE,
        secret,
        max_age=None if secret else 0,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def _guarded(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sent
