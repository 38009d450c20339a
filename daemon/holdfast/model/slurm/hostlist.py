"""Host lists as Slurm writes them, ``n[1-8,12],gpu[001-016]``, as an operator types them. Pure; standard library only."""

from __future__ import annotations

import re
from collections.abc import Collection

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


_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})", re.ASCII | re.DOTALL)


def compress(names: Collection[str]) -> str:
    """The host list of these names, sorted: ``gpu[001-016],n[1-8,12]``. :func:`expand` reads it back."""
    split = {name: match for name in set(names) if "[" not in name and (match := _NUMBERED.fullmatch(name))}
    padded = {(m[1], len(m[2])) for m in split.values() if m[2].startswith("0") and len(m[2]) > 1}
    families: dict[tuple[str, int], list[int]] = {}
    for match in split.values():
        width = len(match[2]) if (match[1], len(match[2])) in padded else 0
        families.setdefault((match[1], width), []).append(int(match[2]))
    parts = [_family(before, width, sorted(numbers)) for (before, width), numbers in families.items()]
    return ",".join(sorted([*parts, *(set(names) - split.keys())]))


def _family(before: str, width: int, numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [
        f"{str(r[0]).zfill(width)}-{str(r[-1]).zfill(width)}" if len(r) > 1 else str(r[0]).zfill(width) for r in runs
    ]
    return f"{before}{texts[0]}" if len(numbers) == 1 else f"{before}[{','.join(texts)}]"


def names_node(text: str, name: str) -> bool:
    """Whether a host list that :func:`compress` wrote, or an operator, names this node; False for what is none."""
    try:
        return any(_named(part, name) for part in _parts(text))
    except Rejected:
        return False


def _named(part: str, name: str) -> bool:
    before, bracket, rest = part.partition("[")
    if not bracket:
        return part == name
    inside, _, after = rest.partition("]")
    if not (name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after)):
        return False
    middle = name[len(before) : len(name) - len(after)]
    return middle.isascii() and middle.isdecimal() and any(_in_range(each, middle) for each in inside.split(","))


def _in_range(each: str, middle: str) -> bool:
    match = _RANGE.fullmatch(each)
    if match is None:
        return False
    first, last = match[1], match[2] or match[1]
    if _padded_twice(first, last):
        return False
    width = len(first) if first.startswith("0") else 0
    return int(first) <= int(middle) <= int(last) and middle == str(int(middle)).zfill(width)


def _parts(text: str) -> list[str]:
    """At the commas outside of brackets."""
    parts = re.split(r",(?![^\[]*\])", text.strip())
    if not all(parts):
        raise Rejected(f"not a host list: {text!r}; write n7, or n[1-8,12],gpu[001-016]")
    return parts


def _padded_twice(first: str, last: str) -> bool:
    """``01-3``, ``1-03``: tools disagree on which nodes these are, and ClusterShell refuses them."""
    return len(first) != len(last) and any(end.startswith("0") and len(end) > 1 for end in (first, last))


def _numbers(inside: str, text: str) -> list[str]:
    found: list[str] = []
    for each in inside.split(","):
        match = _RANGE.fullmatch(each)
        if match is None:
            raise Rejected(f"not a host list: {each!r} in {text!r} is no number and no range such as 1-8")
        first, last = match[1], match[2] or match[1]
        if _padded_twice(first, last):
            raise Rejected(
                f"not a host list: the ends of {each} in {text!r} have different numbers of digits; "
                f"write {first.zfill(len(last))}-{last.zfill(len(first))}, or {int(first)}-{int(last)}"
            )
        if int(last) < int(first):
            raise Rejected(f"not a host list: the range {each} in {text!r} runs backwards")
        if int(last) - int(first) >= MOST:
            raise Rejected(f"{text!r} names more than {MOST} nodes")
        width = len(first) if first.startswith("0") else 0
        found += [str(number).zfill(width) for number in range(int(first), int(last) + 1)]
    return found
