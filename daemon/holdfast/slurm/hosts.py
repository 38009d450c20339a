"""Slurm's host lists. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from holdfast.model.errors import Rejected

_BETWEEN = re.compile(r"[,\s]+(?![^\[]*\])")
"""Separators that Slurm accepts between names: any number of commas, blanks and tabs (tried on 22.05), outside of brackets."""

_RANGES = re.compile(r"\[([^\]]*)\]")
_SPAN = re.compile(r"(\d{1,9})-(\d{1,9})")
_MOST_NAMES = 1 << 17
"""Maximum names in a list; Slurm accepts 64 Ki in one range. Every name is created, so a longer list could use up the memory."""
_MOST = 80
"""Characters of such a list that are shown to operators."""


@lru_cache(maxsize=4096)
def hosts(text: str) -> tuple[str, ...]:
    """Node names of a host list such as ``n[1-3,7]``, in its order; empty for none. Raises Rejected for nonsense."""
    if text in {"", "(null)", "None assigned"}:
        return ()
    parts = [part for part in _BETWEEN.split(text) if part]
    if sum(map(_size, parts)) > _MOST_NAMES:
        raise Rejected(f"a host list of more than {_MOST_NAMES} names: {text[:_MOST]!r}")
    try:
        return tuple(NodeSet(",".join(parts), resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise Rejected(f"not a host list: {text!r}") from error


def _size(part: str) -> int:
    """Upper bound of the number of names, computed without creating them."""
    size = 1
    for ranges in _RANGES.findall(part):
        if re.search(r"\d{10}", ranges):
            return _MOST_NAMES + 1
        spans = (max(int(last) - int(first), 0) for first, last in _SPAN.findall(ranges))
        size *= 1 + ranges.count(",") + sum(spans)
    return size


def users_hosts(key: str, text: str) -> tuple[tuple[str, ...], str]:
    """The nodes of a list that a user wrote, and what of it cannot be read: ``key=text``, or empty.

    Slurm accepts lists that only it can parse, such as ``[n1``: one user's list must not hide other users' jobs."""
    try:
        return hosts(text), ""
    except Rejected:
        return (), f"{key}={text[:_MOST]}"
