"""Agents' answers to orders, as types: the only module that reads the detail of an order's outcome. Pure; standard library only.

An outcome's text is for people. A decision reads values in its detail (``docs/reference/wire.md``); one that is absent or invalid is
ignored."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from holdfast.model.jobs.job_ends import Clue, Sign
from holdfast_checks.words import known

W = TypeVar("W", bound=StrEnum)

_MOST_CLUES, _CLUE_CHARS = 40, 300
_PATH_CHARS = 4096
REFUSED, SAID, OUTCOME = "refused", "said", "outcome"
"""Fields of an outcome's detail."""


class Refusal(StrEnum):
    """Reason why an agent did not start an order: nothing was done, and nothing is wrong."""

    ANOTHER_BOOT = "another_boot"
    """It was meant for another boot of the machine."""
    ANOTHER_INSTANCE = "another_instance"
    """It was meant for another machine."""
    EXPIRED = "expired"
    """It came, or had waited, too late."""
    UNSUPPORTED_VERB = "unsupported_verb"
    """This agent's version does not know it."""


class PairWord(StrEnum):
    """Report of one side of a pair probe about the path between the two nodes."""

    DONE = "done"
    """It carried data; whether fast enough is for the controller to say."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """Not carried out, or broken off by something else than the path."""


class CheckWord(StrEnum):
    """Result of named checks run by order."""

    OK = "ok"
    BAD = "bad"
    UNKNOWN = "unknown"
    HELD = "held"
    """A job has the node: nothing was checked."""


def refusal_of(detail: Mapping[str, Any]) -> Refusal | None:
    """Reason why the agent did not start; None: it started, or reports something else."""
    return _word(Refusal, detail, REFUSED)


def pair_word(detail: Mapping[str, Any]) -> PairWord | None:
    return _word(PairWord, detail, SAID)


def pair_gigabytes_s(detail: Mapping[str, Any]) -> float | None:
    """Bus bandwidth that one side of a pair probe saw."""
    return _number(detail, "gigabytes_s")


def held_by_job(detail: Mapping[str, Any]) -> bool:
    """Nothing was validated because a job, or leftovers of one, are on the node: no evidence about the machine."""
    jobs = detail.get("jobs")
    return isinstance(jobs, list) and bool(jobs)


def check_word(detail: Mapping[str, Any]) -> CheckWord | None:
    return _word(CheckWord, detail, OUTCOME)


def unreached_errno(detail: Mapping[str, Any]) -> int | None:
    """Error with which a peer could not be reached, if it is evidence about the peer."""
    code = detail.get("errno")
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def control_reached(detail: Mapping[str, Any]) -> bool:
    """A peer that could not reach a node reached another one at that moment: its own network is in order."""
    return detail.get("control") == "reached"


def reached_before(detail: Mapping[str, Any]) -> bool:
    """The peer had reached that node's port before, so that its failure means something."""
    return _number(detail, "reached_before_s") is not None


def gpu_uuids(detail: Mapping[str, Any]) -> frozenset[str]:
    """The GPUs that a validation named."""
    named = detail.get("gpu_uuids")
    return frozenset(u for u in named if isinstance(u, str)) if isinstance(named, list | tuple) else frozenset()


def _number(detail: Mapping[str, Any], field: str) -> float | None:
    number = detail.get(field)
    return float(number) if isinstance(number, int | float) and not isinstance(number, bool) else None


def _word(kind: type[W], detail: Mapping[str, Any], field: str) -> W | None:
    return known(kind, detail.get(field))


_REFUSED_IN_WORDS = {
    "refused: meant for boot ": Refusal.ANOTHER_BOOT,
    "refused: meant for instance ": Refusal.ANOTHER_INSTANCE,
    "refused: expired ": Refusal.EXPIRED,
    "refused: unsupported verb": Refusal.UNSUPPORTED_VERB,
}


def with_refusal(detail: Mapping[str, Any], summary: str) -> Mapping[str, Any]:
    """The detail with the value for the refusal, which agents of earlier releases report only in their summary."""
    if REFUSED in detail:
        return detail
    for words, word in _REFUSED_IN_WORDS.items():
        if summary.startswith(words):  # rule prose: agents of earlier releases
            return {**detail, REFUSED: word.value}
    return detail


def output_read(detail: Mapping[str, Any]) -> tuple[Clue, ...] | None:
    """Clues to a job's end in the last lines of its output; None: they were not read."""
    said = detail.get("clues")
    if not isinstance(said, list):
        return None
    return tuple(clue for each in said[:_MOST_CLUES] if (clue := _clue(each)) is not None)


def output_size_bytes(detail: Mapping[str, Any]) -> int | None:
    """Size of the file that was read; None: not said."""
    size = detail.get("size_bytes")
    return size if type(size) is int and size >= 0 else None


def output_quiet_s(detail: Mapping[str, Any]) -> float | None:
    """Time before the answer at which the file was last written to, in s; None: not reported."""
    quiet_s = detail.get("quiet_s")
    return float(quiet_s) if isinstance(quiet_s, int | float) and not isinstance(quiet_s, bool) else None


def output_path(detail: Mapping[str, Any]) -> str | None:
    """The file that was, or was to be, read; None: it is not named."""
    path = detail.get("path")
    fits = isinstance(path, str) and path.startswith("/") and len(path) < _PATH_CHARS and path.isprintable()
    return str(path) if fits else None


def _clue(said: object) -> Clue | None:
    if not isinstance(said, Mapping):
        return None
    line, node = said.get("line"), said.get("node", "")
    if not isinstance(line, str) or not isinstance(node, str):
        return None
    return Clue(_word(Sign, said, "sign") or Sign.OTHER, line[:_CLUE_CHARS], node[:_CLUE_CHARS])
