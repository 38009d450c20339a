"""One error shape for everything: ``{"error": {"code", "message", "field"}}``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from holdfast.model.errors import HoldfastError, NotFound, Rejected, Unavailable

log = logging.getLogger(__name__)

RETRY_AFTER_S = 1
"""What a 503, or a 429 that names no time, asks the caller to wait; agents add their own backoff and jitter."""

_HTTP_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    400: "malformed",
    406: "not_acceptable",
    415: "unsupported_media_type",
}


class ErrorDetail(BaseModel):
    code: str = Field(description="Stable word for programs.", examples=["not_found"])
    message: str = Field(description="One line for people that says what to do.")
    field: str | None = Field(default=None, description="Field of the request at fault, where there is one.")


class ErrorBody(BaseModel):
    """Body of every answer that is not a success."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "error": {
                    "code": "not_found",
                    "message": "No incident 0h3k5d2m8x1q; see GET /v1/incidents",
                    "field": None,
                }
            }
        }
    )
    error: ErrorDetail


class ApiError(Exception):
    """An answer that is not a success; raised anywhere below a route."""

    def __init__(
        self, status: int, code: str, message: str, field: str | None = None, *, retry_after_s: int = RETRY_AFTER_S
    ) -> None:
        """``retry_after_s``: what a 429 or 503 asks the caller to wait."""
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.status = status
        self.code = code
        self.message = message
        self.field = field


def error_response(error: ApiError) -> Response:
    headers: dict[str, str] = {}
    if error.status in (429, 503):
        headers["Retry-After"] = str(error.retry_after_s)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = {"error": {"code": error.code, "message": error.message, "field": error.field}}
    return JSONResponse(body, status_code=error.status, headers=headers)


def first_error(errors: Sequence[Any], *, request: bool = False) -> tuple[str, str | None]:
    """Message and dotted field of the first of pydantic's errors; FastAPI's begin with the part of the request."""
    if not errors:
        return "invalid request", None
    first = errors[0]
    where = [str(part) for part in first["loc"]]
    if request and where:
        del where[0]
    field = ".".join(where) or None
    text = f"{field}: {first['msg']}" if field else str(first["msg"])
    return text, field


def outside_error(error: HoldfastError) -> ApiError:
    """Our own errors as answers; anything unnamed is the store's no."""
    if isinstance(error, Unavailable):
        return ApiError(503, "unavailable", f"{error}; try again")
    if isinstance(error, NotFound):
        return ApiError(404, "not_found", str(error))
    if isinstance(error, Rejected):
        return ApiError(409, "rejected", str(error))
    return ApiError(500, "internal", "The controller could not answer; its log has the reason")


async def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101 - registered for this type only
    return error_response(error)


async def _on_holdfast_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HoldfastError)  # noqa: S101
    answer = outside_error(error)
    if answer.status >= 500:
        log.warning("event=request_failed path=%s status=%d error=%s", request.url.path, answer.status, error)
    return error_response(answer)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    code = _HTTP_CODES.get(error.status_code, "http_error")
    message = f"{error.detail}: {request.method} {request.url.path}; GET /openapi.json lists what there is"
    response = error_response(ApiError(error.status_code, code, message))
    for key, value in (error.headers or {}).items():
        response.headers[key] = value
    return response


async def _on_validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    errors = error.errors()
    if errors and errors[0].get("type") == "json_invalid":
        return error_response(ApiError(400, "malformed", "The body is not JSON"))
    message, field = first_error(errors, request=True)
    return error_response(ApiError(422, "invalid", message, field))


async def _on_bug(request: Request, error: Exception) -> Response:
    log.error("event=request_broke path=%s", request.url.path, exc_info=error)
    return error_response(ApiError(500, "internal", "The controller could not answer; its log has the reason"))


def install(app: FastAPI) -> None:
    """Make every answer that is not a success have the one shape."""
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HoldfastError, _on_holdfast_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(Exception, _on_bug)


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI ``responses`` for a route: these statuses in the one shape.

    By reference: FastAPI builds a validator for each model that it is given, one for each route and status."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def answers_in_full(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What :func:`answers` refers to; one route names it."""
    return {status: {"model": ErrorBody} for status in statuses}
