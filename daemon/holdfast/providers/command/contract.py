"""The contract between Holdfast and a site's own script, as data: requests and how answers are parsed. Pure.

``docs/providers.md`` documents the same; a test compares the two. Standard library only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from holdfast.model.errors import (
    InsufficientCapacity,
    NotFound,
    NotPermitted,
    OutsideError,
    Rejected,
    Throttled,
    Unavailable,
)
from holdfast.model.machine import Instance
from holdfast.providers.one_line import one_line

CONTRACT = 1
"""Version of the contract, in every request; ``capabilities`` answers with the version that the script was written for."""


class ScriptVerb(StrEnum):
    """Verbs of a script; the first argument after the configured ones."""

    CAPABILITIES = "capabilities"
    STATUS = "status"
    REBOOT = "reboot"
    STOP_START = "stop_start"
    REPLACE = "replace"
    LAUNCH = "launch"
    ASSIGN = "assign"
    TERMINATE = "terminate"


LAUNCH_FIRST = frozenset({ScriptVerb.LAUNCH, ScriptVerb.ASSIGN, ScriptVerb.TERMINATE})
"""Only useful together."""

STATES = ("pending", "running", "stopping", "stopped", "shutting-down", "terminated")
"""EC2's states, as for all providers."""
GONE = ("shutting-down", "terminated")

EXITS: Mapping[int, type[OutsideError]] = {
    110: Rejected,
    111: NotFound,
    112: NotPermitted,
    113: InsufficientCapacity,
    114: Throttled,
    115: Unavailable,
}
"""Exit status → error. Any other is Unavailable: the effect is unknown. No common tool exits with one of
these, so that a status passed on by ``set -e`` is not taken for an answer."""

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}")


class Garbage(ValueError):
    """The script's answer is invalid; the text says in one line what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ScriptQuestion:
    """One request to the script."""

    verb: ScriptVerb
    cluster: str
    deadline_s: float
    node: str = ""
    instance_id: str = ""
    token: str = ""
    incident: str = ""

    def argv(self) -> tuple[str, ...]:
        """Arguments that follow the configured ones; what does not apply is empty."""
        return (str(self.verb), self.node, self.instance_id, self.token, self.incident)

    def body(self) -> bytes:
        """The same and more as one JSON object, for standard input; less than 1 KiB."""
        return json.dumps({
            "contract": CONTRACT, "verb": str(self.verb), "cluster": self.cluster, "node": self.node,
            "instance_id": self.instance_id, "token": self.token, "incident": self.incident,
            "deadline_s": self.deadline_s,
        }).encode()  # fmt: skip

    def __str__(self) -> str:
        about = self.instance_id or self.node or self.token
        return f"{self.verb} {about}".rstrip()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities that a script reports."""

    verbs: frozenset[ScriptVerb]
    power_off_confirmed: bool = False
    """States ``stopped`` and ``terminated`` are proof that the machine is off."""


@dataclass(frozen=True, slots=True)
class ScriptMachine:
    """A machine with the token of the launch or replacement that created it."""

    instance: Instance
    token: str = ""


def words_only(**values: str) -> None:
    """Check that each value is safe as an argument and a file name: some come from agents. Raises Rejected."""
    for name, value in values.items():
        if not _WORD.fullmatch(value):
            raise Rejected(
                f"{name} {one_line(value)!r} is not passed to a command: letters, digits and . _ : @ + - only, at most 128"
            )


def read_object(out: bytes) -> Mapping[str, Any]:
    """Parse standard output as one JSON object. Raises Garbage."""
    try:
        answer = json.loads(out.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Garbage(f"standard output is not one JSON object: {_excerpt(out)} ({error})") from error
    if not isinstance(answer, dict):
        raise Garbage(f"standard output is not one JSON object: {_excerpt(out)}")
    return answer


def read_capabilities(answer: Mapping[str, Any]) -> tuple[Capabilities, tuple[str, ...]]:
    """Parse the capabilities, and the verbs that are not known here. Raises Garbage."""
    if answer.get("contract") != CONTRACT:
        raise Garbage(f"contract is {answer.get('contract')!r}, this Holdfast speaks {CONTRACT}")
    named = answer.get("verbs")
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise Garbage(f"verbs is {named!r}, not a list of strings")
    known = {str(verb) for verb in ScriptVerb}
    verbs = frozenset(ScriptVerb(name) for name in named if name in known)
    if ScriptVerb.STATUS not in verbs:
        raise Garbage("verbs lacks status: nothing can be done to a machine that cannot be looked at")
    missing = LAUNCH_FIRST - verbs
    if missing and missing != LAUNCH_FIRST:
        raise Garbage(f"verbs lacks {', '.join(sorted(missing))}: launch, assign and terminate go together")
    confirmed = answer.get("power_off_confirmed", False)
    if not isinstance(confirmed, bool):
        raise Garbage(f"power_off_confirmed is {confirmed!r}, not true or false")
    return Capabilities(verbs, confirmed), tuple(name for name in named if name not in known)


def read_machine(answer: Mapping[str, Any], question: ScriptQuestion) -> ScriptMachine | None:
    """Parse the machine of an answer, which must be the requested one; None: there is none. Raises Garbage."""
    if "machine" not in answer:
        raise Garbage("the answer has no key machine (null: there is none)")
    raw = answer["machine"]
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise Garbage(f"machine is {raw!r}, not an object")
    machine = _machine(raw)
    shown = machine.instance
    replaces = question.verb is ScriptVerb.REPLACE  # the requested id may be the old one
    keeps = question.verb is ScriptVerb.STOP_START  # the machine keeps the token that created it
    pairs = (
        ("instance_id", "" if replaces else question.instance_id, shown.instance_id),
        ("node", question.node, shown.node),
        ("token", "" if keeps else question.token, machine.token),
        ("incident", "" if keeps else question.incident, shown.incident),
    )
    for name, asked, said in pairs:
        if asked and asked != said:
            raise Garbage(f"asked for {name} {asked!r}, it answers for {said!r}")
    return machine


def _machine(raw: Mapping[str, Any]) -> ScriptMachine:
    texts = {name: _text(raw, name) for name in ("instance_id", "node", "state", "address", "incident", "token")}
    if not _WORD.fullmatch(texts["instance_id"]):
        raise Garbage(f"machine.instance_id is {texts['instance_id']!r}, not a word")
    if texts["state"] not in STATES:
        raise Garbage(f"machine.state is {texts['state']!r}, none of {', '.join(STATES)}")
    healthy = raw.get("healthy")
    if healthy is not None and not isinstance(healthy, bool):
        raise Garbage(f"machine.healthy is {healthy!r}, not true, false or null")
    instance = Instance(
        instance_id=texts["instance_id"],
        node=texts["node"],
        state=texts["state"],
        healthy=healthy if texts["state"] not in GONE else None,
        launched_at=_time(raw.get("launched_at")),
        address=texts["address"],
        incident=texts["incident"],
    )
    return ScriptMachine(instance, texts["token"])


def _text(raw: Mapping[str, Any], name: str) -> str:
    value = raw.get(name)
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise Garbage(f"machine.{name} is {value!r}, not a string")
    return value


def _time(value: object) -> datetime | None:
    if value is None or value == "":
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        utc = moment.astimezone(UTC) if moment is not None and moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        utc = None
    if utc is None:
        raise Garbage(f"machine.launched_at is {value!r}, not a time with its offset such as 2026-01-31T12:00:00Z")
    return utc


def failure(status: int, out: bytes, err: bytes) -> OutsideError:
    """The core's error for an exit status other than 0, with the script's message in one line."""
    words = _said(out) or _last_line(err) or "no message"
    kind = EXITS.get(status)
    if kind is not None:
        return kind(words)
    ended = f"signal {-status}" if status < 0 else f"exit status {status}"
    return Unavailable(f"{words} ({ended}: what was done is not known)")


def _said(out: bytes) -> str:
    """``{"error": "…"}`` of standard output."""
    try:
        text = read_object(out).get("error")
    except Garbage:
        return ""
    return one_line(text) if isinstance(text, str) else ""


def _last_line(err: bytes) -> str:
    lines = [one_line(line) for line in err.decode("utf-8", "replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")


def _excerpt(out: bytes) -> str:
    return repr(one_line(out.decode("utf-8", "replace"))[:80]) if out.strip() else "it is empty"
