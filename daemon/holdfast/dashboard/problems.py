"""Errors as pages: a person who opens an address of the dashboard reads a sentence, not JSON."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from holdfast.api.errors import ApiError
from holdfast.dashboard.browsers import is_page
from holdfast.dashboard.pages import Pages
from holdfast.model.errors import HoldfastError

ErrorAnswer = Callable[[Request, Exception], Response | Awaitable[Response]]


def show_errors(app: FastAPI, pages: Pages) -> None:
    """Have the answers of ``app`` that are no success be pages where the dashboard was asked. Other paths keep theirs."""
    for kind in (ApiError, HoldfastError, HTTPException):
        app.add_exception_handler(kind, _on_page(app.exception_handlers[kind], pages))


def _on_page(former: ErrorAnswer, pages: Pages) -> ErrorAnswer:
    async def answered(request: Request, error: Exception) -> Response:
        made = former(request, error)
        answer = await made if inspect.isawaitable(made) else made
        if not is_page(request.url.path):
            return answer
        text = pages.text("problem.html", problem=json.loads(bytes(answer.body))["error"]["message"])
        kept = {name: value for name, value in answer.headers.items() if name == "retry-after"}
        return HTMLResponse(text, status_code=answer.status_code, headers=kept)

    return answered
