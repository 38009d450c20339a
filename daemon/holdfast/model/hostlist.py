"""Host lists as Slurm writes them, ``n[1-8,12],gpu[001-016]``, as an operator types them. Pure; standard library only."""

from __future__ import annotations

import re

from holdfast.model.errors import Rejected

MOST = 20_000
"""Names in one list at most."""
_PART = re.compile(r"[A-Za-z0-9._-]+(?:\[[0-9,-]+\][A-Za-z0-9._-]*)?", re.ASCII)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def expand(text: str) -> tuple[str, ...]:
    """The names of a host list, each once, in its order; one bracket a name. Raises Rejected with what is wrong with it."""
    names: dict[str, None] = {}
    for part in _parts(text):
        if not _PART.fullmatch(part):
            raise Rejected(f"not a host list: {text!r}; write n7, or n[1-8,12],gpu[001-016]")
        before, bracket, rest = part.partition("[")
        inside, _, after = rest.partition("]")
        for middle in _numbers(inside, text) if bracket else [""]:
            names[f"{before}{middle}{after}"] = None
        if len(names) > MOST:
            raise Rejected(f"{text!r} names more than {MOST} nodes")
    return tuple(names)


def _parts(text: str) -> list[str]:
    """At the commas outside of brackets."""
    parts = re.split(r",(?![^\[]*\])", text.strip())
    if not all(parts):
        raise Rejected(f"not a host list: {text!r}; write n7, or n[1-8,12],gpu[001-016]")
    return parts


def _numbers(inside: str, text: str) -> list[str]:
    found: list[str] = []
    for each in inside.split(","):
        match = _RANGE.fullmatch(each)
        if match is None:
            raise Rejected(f"not a host list: {each!r} in {text!r} is no number and no range such as 1-8")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise Rejected(f"not a host list: the range {each} in {text!r} runs backwards")
        if int(last) - int(first) >= MOST:
            raise Rejected(f"{text!r} names more than {MOST} nodes")
        width = len(first) if first.startswith("0") else 0
        found += [str(number).zfill(width) for number in range(int(first), int(last) + 1)]
    return found
