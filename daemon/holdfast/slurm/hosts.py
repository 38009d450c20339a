"""Slurm's host lists. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from holdfast.model.errors import Rejected

_BETWEEN = re.compile(r"[,\s]+(?![^\[]*\])")
"""What Slurm takes for the end of a name: any number of commas, blanks and tabs (tried on 22.05), but none in brackets."""

_MOST = 80
"""Letters of such a list that people are shown."""


@lru_cache(maxsize=4096)
def hosts(text: str) -> tuple[str, ...]:
    """Node names of a host list such as ``n[1-3,7]``, in its order; empty for none. Raises Rejected for nonsense."""
    if text in {"", "(null)", "None assigned"}:
        return ()
    parts = [part for part in _BETWEEN.split(text) if part]
    try:
        return tuple(NodeSet(",".join(parts), resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise Rejected(f"not a host list: {text!r}") from error


def users_hosts(key: str, text: str) -> tuple[tuple[str, ...], str]:
    """The nodes of a list that a user wrote, and what of it cannot be read: ``key=text``, or empty.

    Slurm takes lists that only it can read, such as ``[n1``: nobody's list may keep others' jobs from being seen."""
    try:
        return hosts(text), ""
    except Rejected:
        return (), f"{key}={text[:_MOST]}"
