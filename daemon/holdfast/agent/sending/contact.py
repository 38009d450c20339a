"""Contact state: whether a controller accepts this agent's requests. Pure: outcomes of requests in, state and changes out.

The agent continues with its checks and its outbox in any state; the state is only reported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from holdfast.agent.sending.failures import SendFailure

FEWEST_FAILURES = 2
"""Minimum number of failures: one lost request is no silence, however long the heartbeat interval is."""


class ContactState(StrEnum):
    STARTING = "starting"
    """No controller has answered since the start, for less than the limit."""
    REPORTING = "reporting"
    NOT_REPORTING = "not_reporting"


@dataclass(frozen=True, slots=True)
class Contact:
    """Contact state. Times are this machine's CLOCK_MONOTONIC in seconds."""

    limit_s: float
    """Without success for this long, the agent is not reporting (agent.toml: not_reporting_after_s)."""
    heard_s: float
    """Time of the last request that a leading controller accepted; before the first one, the start of the agent."""
    standing: ContactState = ContactState.STARTING
    url: str = ""
    """URL of the controller that accepted it."""
    attempts: int = 0
    """Failed requests since then."""
    failures: tuple[SendFailure, ...] = ()
    """The last failure of each controller since then, newest last."""


@dataclass(frozen=True, slots=True)
class ContactChange:
    """A change to report: another state, or another reason for a silence."""

    contact: Contact
    silent_s: float = 0.0
    """Length of the silence that ends or continues."""


def after_success(contact: Contact, url: str, now_s: float) -> tuple[Contact, ContactChange | None]:
    """Update after a leading controller accepted a request."""
    now = Contact(contact.limit_s, now_s, ContactState.REPORTING, url)
    same = contact.standing is ContactState.REPORTING and contact.url == url
    return now, None if same else ContactChange(now, now_s - contact.heard_s)


def after_failure(contact: Contact, failure: SendFailure, now_s: float) -> tuple[Contact, ContactChange | None]:
    """Update after a request failed or was refused."""
    before = next((f for f in contact.failures if f.url == failure.url), None)
    failures = (*(f for f in contact.failures if f.url != failure.url), failure)
    now = replace(contact, attempts=contact.attempts + 1, failures=failures)
    silent_s = now_s - contact.heard_s
    if contact.standing is ContactState.NOT_REPORTING:
        same = before is not None and before.kind is failure.kind
        return now, None if same else ContactChange(now, silent_s)
    if silent_s < contact.limit_s or now.attempts < FEWEST_FAILURES:
        return now, None
    now = replace(now, standing=ContactState.NOT_REPORTING)
    return now, ContactChange(now, silent_s)
