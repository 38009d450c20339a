"""Routes of the pages."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.api.callers.auth import SHOWN_TOKEN, Principal, Role, hash_token
from holdfast.api.deps import Api
from holdfast.api.errors import ApiError
from holdfast.api.guards.guarded import READERS
from holdfast.api.requests.body import read_body
from holdfast.dashboard import render
from holdfast.dashboard.browsers import SECRET, proxied_user, session_of, set_cookie
from holdfast.dashboard.feed import LiveAnswer, LiveFeed
from holdfast.dashboard.inside import ApiAnswer, ApiQuery, ask
from holdfast.dashboard.orders import call_of
from holdfast.dashboard.pages import DashboardPage, Pages
from holdfast.dashboard.sessions import BrowserSession, BrowserSessions
from holdfast.model.errors import OutsideError

log = logging.getLogger(__name__)

FORM_BYTES = 8192
ABSENT = (404, 422)
"""Answers about what there is not, or cannot be by its name."""
LOG_EVERY_S = 60.0
KEEP = "public, max-age=31536000, immutable"


@dataclass
class Dashboard:
    """What the routes work with."""

    app: FastAPI
    api: Api
    sessions: BrowserSessions
    feed: LiveFeed
    pages: Pages
    sign_out: str = ""
    """Where the proxy signs a browser out; empty: nowhere."""
    _refused: int = 0
    _told_s: float = -math.inf

    def refused(self, status: int) -> None:
        """Count a sign-in that is refused; logged once a minute, as everyone can try."""
        self._refused += 1
        now_s = self.api.deps.clock.monotonic_s()
        if now_s >= self._told_s + LOG_EVERY_S:
            log.warning("event=dashboard_sign_ins_refused count=%d last_status=%d", self._refused, status)
            self._refused, self._told_s = 0, now_s

    async def caller(self, request: Request) -> Principal:
        """Who is signed in. Raises ApiError 401, Unavailable."""
        if session_of(request.scope) is None:
            raise ApiError(401, "unauthenticated", "Sign in first")
        return await self.api.auth.caller(request)

    async def signed_in(self, request: Request) -> bool:
        """Whether the browser's session still stands for a valid token. Raises Unavailable."""
        try:
            await self.caller(request)
        except ApiError:
            return False
        return True

    async def ask(self, request: Request, path: str, query: ApiQuery) -> ApiAnswer:
        session = session_of(request.scope)
        token = session.token if session is not None else ""
        return await ask(self.app, request, token, "GET", path, query)

    async def show(self, request: Request, page: DashboardPage, **given: Any) -> Response:
        """A page around what it asks of the API; for who is not signed in, the way there."""
        try:
            caller = await self.caller(request)
        except ApiError as error:
            if error.status != 401:
                raise
            where = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse("/ui/sign-in" + ("" if where == "/" else f"?{urlencode({'next': where})}"), 303)
        if page.role_of(caller) is None:
            return RedirectResponse("/ui/jobs", 303)
        asked = page.asks(dict(given), self.pages.now())
        answers = {name: await self.ask(request, path, query) for name, (path, query) in asked.items()}
        refused = next((a for a in answers.values() if a.problem and not (page.partial and a.status in ABSENT)), None)
        shown = {name: a.content for name, a in answers.items()} | given | self.who(request, caller)
        if refused is not None:
            text = self.pages.text("problem.html", problem=refused.problem, **self.who(request, caller))
            return HTMLResponse(text, status_code=refused.status)
        async with self.api.readers.turn(caller):
            html = await self.api.threads.read(lambda: self.pages.text(page.template, **page.prepare(shown)))
        return HTMLResponse(html)

    def who(self, request: Request, caller: Principal) -> dict[str, Any]:
        session = session_of(request.scope)
        may = caller.role is Role.OPERATOR and session is not None and not session.read_only
        return {"user": caller.name, "role": caller.role.value, "may": may, "reader": caller.role in READERS}


def dashboard_router(board: Dashboard) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    _sign_in(router, board)
    _first_screen(router, board)
    _live(router, board)

    def serve(page: DashboardPage) -> None:
        @router.get(page.path)
        async def shown(request: Request) -> Response:
            given = {**request.path_params, **page.query(request.query_params)}
            return await board.show(request, page, **given)

    for page in board.pages.all:
        serve(page)

    @router.get("/ui/find")
    async def find(q: str = "") -> Response:
        """The page of a job, an incident or a node, by what its name looks like."""
        return RedirectResponse(place_of(q.strip()[:252]), 303)

    @router.post("/ui/do/{verb}")
    async def order(request: Request, verb: str) -> Response:
        """A button: what came of it, as a line of the page, or as a page where there is no script."""
        try:
            answer, done = await _ordered(board, request, verb)
        except ApiError as error:
            answer, done = ApiAnswer(error.status, {"error": {"message": error.message}}), ""
        text = answer.problem or _said(answer, done)
        fragment = request.headers.get("hx-request") == "true"
        template = "answer.html" if fragment else "answered.html"
        html = board.pages.text(template, text=text, good=not answer.problem, back=_back(request))
        return HTMLResponse(html, status_code=200 if fragment or not answer.problem else answer.status)

    @router.get("/ui/assets/{digest}/{name}")
    async def asset(request: Request) -> Response:
        found = render.assets().get(request.url.path)
        if found is None:
            return HTMLResponse("", status_code=404)
        return Response(found[0], media_type=found[1], headers={"Cache-Control": KEEP})

    return router


async def _ordered(board: Dashboard, request: Request, verb: str) -> tuple[ApiAnswer, str]:
    """What the API answered, and what is said once it is done. Raises ApiError."""
    session, caller = session_of(request.scope), await board.caller(request)
    if session is None or session.read_only:
        raise ApiError(403, "forbidden", "You are signed in for reading only")
    call, done = call_of(verb, await _form(request))
    answer = await ask(board.app, request, session.token, "POST", call.path, body=call.body)
    if not answer.problem:
        log.info("event=dashboard_order verb=%s by=%s", verb, caller.name)
    return answer, done


def _said(answer: ApiAnswer, done: str) -> str:
    text = answer.content.get("text") if isinstance(answer.content, Mapping) else None
    return f"Ordered: {text}" if text else done


def _back(request: Request) -> str:
    """The page that the button is on; only one of ours."""
    found = request.headers.get("referer", "")
    return own_path(found.removeprefix(f"{request.url.scheme}://{request.headers.get('host', '')}"))


async def _form(request: Request) -> dict[str, str]:
    """Fields of a form. Raises ApiError."""
    body = await read_body(request, FORM_BYTES)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise ApiError(400, "malformed", "The form cannot be read: reload the page") from None
    return {name: value.strip() for name, value in pairs}


def _first_screen(router: APIRouter, board: Dashboard) -> None:
    @router.get("/")
    async def first(request: Request) -> Response:
        try:
            caller = await board.caller(request)
        except ApiError as error:
            if error.status != 401:
                raise
            return RedirectResponse("/ui/sign-in", 303)
        if caller.role not in READERS:
            return RedirectResponse("/ui/jobs", 303)
        board.api.readers.ask(caller)
        pieces = {name: piece.html for name, piece in (await board.feed.current()).items()}
        live = {"pieces": pieces, "version": board.feed.version, "run": board.feed.run}
        async with board.api.readers.turn(caller):
            given = {**live, **board.who(request, caller)}
            html = await board.api.threads.read(lambda: board.pages.text("first.html", **given))
        return HTMLResponse(html)


def _live(router: APIRouter, board: Dashboard) -> None:
    @router.get("/ui/live")
    async def live(request: Request, after: int = 0, run: str = "") -> Response:
        caller = await board.api.auth.caller(request, *READERS)
        board.api.readers.ask(caller)
        await board.feed.current()
        begin = board.feed.since(run, after, request.headers.get("last-event-id", ""))

        async def still_valid() -> bool:
            session = session_of(request.scope)
            if session is None or board.sessions.find(request.scope.get(SECRET, "")) is None:
                return False
            try:
                await board.api.auth.caller(request, *READERS)
            except ApiError:
                return False
            except OutsideError:
                return True  # the database is away: what was valid stays so
            return True

        def lines() -> AsyncIterator[bytes]:
            return board.feed.watch(begin, still_valid)

        return LiveAnswer(board.feed, caller.token, lines)


def _sign_in(router: APIRouter, board: Dashboard) -> None:
    @router.get("/ui/sign-in")
    async def form(request: Request, next: str = "/", out: str = "") -> Response:  # noqa: A002 - name of the parameter in the address
        """Who has signed in at the proxy is let in at once, but for who has just signed out."""
        where, user, problem = own_path(next), proxied_user(request.scope), ""
        if user is not None and not out:
            try:
                return await _let_in(board, request, user, where)
            except ApiError as error:
                board.refused(error.status)
                problem = error.message
        return HTMLResponse(board.pages.text("sign_in.html", problem=problem, next=where, proxied=user, out=bool(out)))

    @router.post("/ui/sign-in")
    async def sign_in(request: Request) -> Response:
        """Begin a session with a one-time code or a token. A session that the browser has ends: no one else can have planted it."""
        fields = await _form(request)
        where = own_path(fields.get("next", "/"))
        try:
            session = await _proved(board, request, fields)
        except ApiError as error:
            user = proxied_user(request.scope)
            html = board.pages.text("sign_in.html", problem=error.message, next=where, proxied=user, out=False)
            return HTMLResponse(html, status_code=error.status)
        return _begun(board, request, session, where)

    @router.post("/ui/sign-out")
    async def sign_out(request: Request) -> Response:
        board.sessions.end(request.scope.get(SECRET, ""))
        session = session_of(request.scope)
        proxied = session is not None and bool(session.proxied)
        answer = RedirectResponse((board.sign_out or "/ui/sign-in?out=yes") if proxied else "/ui/sign-in", 303)
        set_cookie(answer, "", request.scope["scheme"])
        return answer


async def _let_in(board: Dashboard, request: Request, user: str, where: str) -> Response:
    """A session for who has signed in at the proxy, by the token that has this name; one that the browser has already stays as it is.
    Raises ApiError."""
    if await board.signed_in(request):
        return RedirectResponse(where, 303)
    token = await board.api.auth.token_of(user, PROXIED_ROLES)
    if token is None:
        raise ApiError(
            403,
            "forbidden",
            f"{user} is signed in at the proxy, but has no right here: an operator can give one with `holdfast token create viewer NAME` "
            "or `holdfast token create operator NAME`",
        )
    caller = await board.api.auth.caller(Request({**request.scope, SHOWN_TOKEN: token}))
    board.api.readers.ask(caller)
    log.info("event=dashboard_sign_in by=%s role=%s proxied=yes", caller.name, caller.role.value)
    return _begun(board, request, BrowserSession(token, 0.0, proxied=user), where)


def _begun(board: Dashboard, request: Request, wanted: BrowserSession, where: str) -> Response:
    """A new session with these rights, in place of the one that the browser has; then on to a page of ours."""
    board.sessions.end(request.scope.get(SECRET, ""))
    secret = board.sessions.begin(wanted.token, read_only=wanted.read_only, proxied=wanted.proxied)
    answer = RedirectResponse(where, 303)
    set_cookie(answer, secret, request.scope["scheme"])
    return answer


PROXIED_ROLES = (Role.OPERATOR, Role.VIEWER)
"""Of the tokens of a name, that of the first one counts. A token of role user is bound to a uid, not to a name."""


async def _proved(board: Dashboard, request: Request, fields: Mapping[str, str]) -> BrowserSession:
    """What the code or the token of a form allows. Raises ApiError."""
    shown = fields.get("token", "")
    if not shown:
        raise ApiError(422, "invalid", "Enter the code that `holdfast login` prints, or a token")
    session = board.sessions.redeem(shown) or BrowserSession(hash_token(shown), 0.0)
    session = replace(session, read_only=session.read_only or fields.get("read_only") == "yes")
    as_token = Request({**request.scope, SHOWN_TOKEN: session.token})
    try:
        caller = await board.api.auth.caller(as_token)
    except ApiError as error:
        board.refused(error.status)
        if error.status == 401:
            raise ApiError(401, "unauthenticated", _NOT_KNOWN) from None
        raise
    if caller.role is Role.AGENT:
        raise ApiError(403, "forbidden", "This is a node's token; sign in with one of a person")
    board.api.readers.ask(caller)
    log.info("event=dashboard_sign_in by=%s role=%s read_only=%s", caller.name, caller.role.value, session.read_only)
    return session


_NOT_KNOWN = "This code or token is not known, was used already or has ended: run `holdfast login` again"


def place_of(name: str) -> str:
    """Page of what has this name: numbers are jobs, incidents have twelve characters that begin with a digit, the rest are nodes."""
    if not name:
        return "/"
    if re.fullmatch("[0-9]{1,18}", name):
        return f"/ui/job/{name}"
    kind = "incident" if re.fullmatch("[0-9][0-9a-z]{11}", name) else "node"
    return f"/ui/{kind}/{quote(name, safe='')}"


def own_path(text: str) -> str:
    """A path of this dashboard to continue at; ``/`` for anything else, such as another site's address."""
    read = unquote(text)  # a browser takes "%2e%2e" for ".."
    ours = text.startswith("/ui/") and "\\" not in read and ".." not in read
    return text if ours and text.isprintable() else "/"
