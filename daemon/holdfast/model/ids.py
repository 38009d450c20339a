"""Incident ids: short, sortable by time, fit for a Slurm reason and an EC2 ClientToken. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

NewId = Callable[[datetime], str]
"""Makes the id of an incident that opens at this time."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
_TIME_DIGITS = 9
_RANDOM_DIGITS = 3

UPKEEP = "upkeep"
"""Takes the place of an incident's id in intents that belong to none: checks of spares, refill of the pool. No incident has this id (theirs
have twelve characters)."""
REASON_PREFIX = "holdfast["
"""Prefix of every Slurm reason that Holdfast sets; others are from a user or another tool."""

_REASON = re.compile(r"^holdfast\[([0-9a-z]+)\]: ")


def _encode(number: int, digits: int) -> str:
    text = ""
    for _ in range(digits):
        number, digit = divmod(number, 32)
        text = _ALPHABET[digit] + text
    return text


def incident_id(opened_at: datetime, entropy: int) -> str:
    """Twelve characters: the time in milliseconds, then 15 bits of ``entropy``. Sorts by time until the year 3084."""
    return _encode(int(opened_at.timestamp() * 1000), _TIME_DIGITS) + _encode(entropy, _RANDOM_DIGITS)


def slurm_reason(incident: str, text: str) -> str:
    """``holdfast[ID]: text`` on one line of at most 200 characters.

    Control characters are stripped, and so are characters that Slurm's one-line output could be misread by. The fixed prefix means it can
    never start with ``Action:``, which HyperPod obeys."""
    clean = re.sub(r"[\x00-\x1f\x7f\"'=\\]+", " ", text)
    return f"{REASON_PREFIX}{incident}]: {' '.join(clean.split())}"[:200]


HOLD_PREFIX = "holdfast-node-"
_ID = f"([{_ALPHABET}]{{{_TIME_DIGITS + _RANDOM_DIGITS}}})"
_HOLD = re.compile(rf"{re.escape(HOLD_PREFIX)}{_ID}-(.+)")


def hold_name(incident: str, node: str) -> str:
    """Name of the reservation that keeps a node for an incident where a drain would give it away (``slurm/holding.py``)."""
    return f"{HOLD_PREFIX}{incident}-{node}"


def hold_of_name(reservation: str) -> tuple[str, str] | None:
    """Incident and node of a reservation of ours that keeps a node; None for everybody else's."""
    match = _HOLD.fullmatch(reservation)
    return (match[1], match[2]) if match else None


_JOB_HOLD = re.compile(rf"holdfast-{_ID}-(\d+)", re.ASCII)


def job_hold_name(incident: str, job_id: int) -> str:
    """Name of the reservation that keeps a job's nodes while it restarts."""
    return f"holdfast-{incident}-{job_id}"


def incident_of_job_hold(reservation: str) -> str | None:
    """The incident that the name of a hold of ours for a job has; None: no hold of ours is called so. An operator may take such a name
    too: whose it is, the store knows (``Book.holds``)."""
    match = _JOB_HOLD.fullmatch(reservation)
    return match[1] if match else None


def held_reason(incident: str) -> str:
    """Reason of a node that is held by a reservation, which keeps no text (``slurm/holding.py``)."""
    return slurm_reason(incident, "held by a reservation")


def is_reason(shown: str, *ours: str) -> bool:
    """Whether a node's reason is one of these texts, word for word: Slurm keeps no other sign of who set a drain."""
    return shown in ours


_ADDED_BY_SLURM = re.compile(r"( : (reboot issued|reboot complete|reboot timed out|Not responding))+$")


def without_slurms_words(reason: str) -> str:
    """A node's reason without what slurmctld adds to it in SlurmUser's name: when it reboots the node, and from 23.02 on when it sets the
    drained node DOWN."""
    return _ADDED_BY_SLURM.sub("", reason)


def has_slurms_words(reason: str) -> bool:
    """Whether slurmctld has added to a node's reason."""
    return _ADDED_BY_SLURM.search(reason) is not None  # rule prose: Slurm's own words


def is_reboot_of(shown: str, ours: str) -> bool:
    """Whether a node's reason is this one of ours with what Slurm adds when it reboots the node."""
    plain = without_slurms_words(ours)
    added = shown[len(plain) :]
    return is_reason(without_slurms_words(shown), plain) and " : reboot " in added  # rule prose: Slurm's own words


def is_silence_of(shown: str, ours: str) -> bool:
    """Whether a node's reason is this one of ours with what Slurm adds when it sets the drained node DOWN (23.02 and later)."""
    return shown == f"{ours} : Not responding"


def incident_of_reason(reason: str) -> str | None:
    """The incident that a Slurm reason of ours names; None for everybody else's."""
    match = _REASON.match(reason)  # rule prose: the only mark of ours that Slurm keeps
    return match.group(1) if match else None


_GPU_UUID = re.compile(r"\b(GPU-[0-9a-f]{8})-[0-9a-f-]{27}")


def abbreviated(text: str) -> str:
    """For people: GPU UUIDs by their first eight digits."""
    return _GPU_UUID.sub(r"\1…", text)
