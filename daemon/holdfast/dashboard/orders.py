"""Buttons of the pages, as calls of the API. Pure.

A button does what the same verb of the command line does; the API checks whether the signed-in token may."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from holdfast.api.answers.restraint_shapes import BRAKE_NAME
from holdfast.api.errors import ApiError


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One call."""

    path: str
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PageOrder:
    """What a button orders."""

    path: str
    """With ``{target}``."""
    body: Callable[[Mapping[str, str]], Mapping[str, object]]
    """Of the form's fields."""
    done: str
    """What is said once it is done."""
    target: str = "^$"
    """Pattern of what it is about."""


_INCIDENT, _PROPOSAL, _NODE = r"^[0-9a-z]{12}$", r"^[0-9a-z]{12}\.[1-9][0-9]{0,5}$", r"^[A-Za-z0-9._-]{1,252}$"


def _reason(form: Mapping[str, str]) -> Mapping[str, object]:
    return {"reason": form.get("reason", "")}


def _snooze(form: Mapping[str, str]) -> Mapping[str, object]:
    return {**_reason(form), "hours": _hours(form.get("hours", "2"))}


def _hours(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ApiError(422, "invalid", "hours: give a number, such as 2", "hours") from None


def _drain(form: Mapping[str, str]) -> Mapping[str, object]:
    return {**_reason(form), "ticket": form.get("ticket", "")}


def _release(form: Mapping[str, str]) -> Mapping[str, object]:
    return {
        "note": form.get("reason", ""),
        "ticket": form.get("ticket", ""),
        "despite_repair": form.get("despite_repair") == "yes",
    }


def _note(form: Mapping[str, str]) -> Mapping[str, object]:
    return {"text": form.get("reason", ""), "ticket": form.get("ticket", "")}


ORDERS: Mapping[str, PageOrder] = {
    "accept": PageOrder("/v1/proposals/{target}/accept", _reason, "Accepted: the step is done next.", _PROPOSAL),
    "dismiss": PageOrder("/v1/proposals/{target}/dismiss", _reason, "Dismissed: it is not done.", _PROPOSAL),
    "snooze": PageOrder("/v1/proposals/{target}/snooze", _snooze, "It is asked again later.", _PROPOSAL),
    "reopen": PageOrder("/v1/proposals/{target}/reopen", _reason, "It is proposed again.", _PROPOSAL),
    "pause": PageOrder("/v1/pause", _reason, "Paused: faults are recorded, nothing is done."),
    "resume": PageOrder("/v1/resume", _reason, "The pause is over."),
    "release-brake": PageOrder("/v1/brakes/{target}/release", _reason, "The brake is released.", BRAKE_NAME),
    "acknowledge": PageOrder(
        "/v1/incidents/{target}/acknowledge", _reason, "It is yours: Holdfast only records it.", _INCIDENT
    ),
    "close": PageOrder("/v1/incidents/{target}/close", _reason, "The incident is closed.", _INCIDENT),
    "retry": PageOrder("/v1/incidents/{target}/retry", _reason, "The repair continues.", _INCIDENT),
    "drain": PageOrder("/v1/nodes/{target}/drain", _drain, "Ordered: the node is drained for you.", _NODE),
    "release-node": PageOrder("/v1/nodes/{target}/release", _release, "Ordered: the node is put back.", _NODE),
    "note": PageOrder("/v1/nodes/{target}/notes", _note, "Noted.", _NODE),
}


def call_of(verb: str, form: Mapping[str, str]) -> tuple[ApiCall, str]:
    """The call of a button, and what is said once it is done. Raises ApiError."""
    order = ORDERS.get(verb)
    target = form.get("target", "")
    if order is None or not re.match(order.target, target):
        raise ApiError(404, "not_found", "There is no such button: reload the page")
    return ApiCall(order.path.format(target=quote(target, safe=".")), order.body(form)), order.done
