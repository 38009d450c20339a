"""Whether a controller takes what this agent sends. Pure: outcomes of requests in, a state and what changed out.

The agent goes on with its checks and its outbox in any state; the state is what it shows of itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from holdfast.agent.sending.failures import Failure

FEWEST_FAILURES = 2
"""One lost request is no silence, however long the interval of the heartbeats is."""


class Standing(StrEnum):
    STARTING = "starting"
    """No controller has answered since the start, for less than the limit."""
    REPORTING = "reporting"
    NOT_REPORTING = "not_reporting"


@dataclass(frozen=True, slots=True)
class Contact:
    """Times are this machine's CLOCK_MONOTONIC in seconds."""

    limit_s: float
    """No success for this long, and the agent is not reporting (agent.toml: not_reporting_after_s)."""
    heard_s: float
    """Last request that a leading controller took; before the first one, the start of the agent."""
    standing: Standing = Standing.STARTING
    url: str = ""
    """Of the controller that took it."""
    attempts: int = 0
    """Failed ones since then."""
    failures: tuple[Failure, ...] = ()
    """The last one of each controller since then, newest last."""


@dataclass(frozen=True, slots=True)
class Change:
    """What the agent has to make known: the standing is another one, or the reason of a silence is."""

    contact: Contact
    silent_s: float = 0.0
    """Length of the silence that ends or goes on."""


def after_success(contact: Contact, url: str, now_s: float) -> tuple[Contact, Change | None]:
    """A leading controller took a request."""
    now = Contact(contact.limit_s, now_s, Standing.REPORTING, url)
    same = contact.standing is Standing.REPORTING and contact.url == url
    return now, None if same else Change(now, now_s - contact.heard_s)


def after_failure(contact: Contact, failure: Failure, now_s: float) -> tuple[Contact, Change | None]:
    """A request failed, or was refused."""
    before = next((f for f in contact.failures if f.url == failure.url), None)
    failures = (*(f for f in contact.failures if f.url != failure.url), failure)
    now = replace(contact, attempts=contact.attempts + 1, failures=failures)
    silent_s = now_s - contact.heard_s
    if contact.standing is Standing.NOT_REPORTING:
        same = before is not None and before.kind is failure.kind
        return now, None if same else Change(now, silent_s)
    if silent_s < contact.limit_s or now.attempts < FEWEST_FAILURES:
        return now, None
    now = replace(now, standing=Standing.NOT_REPORTING)
    return now, Change(now, silent_s)
