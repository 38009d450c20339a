"""Faults as the owners of jobs read them: names, never an agent's sentences. Pure.

The site itself sends mails, files and comments to users. A summary is written by a node's agent, or by a thief of its token: to users
it would be a letter in the site's name."""

from __future__ import annotations

import re

from holdfast.model.incidents.incident import Incident

_NAME = re.compile(r"(?:/[\w.-]+)+|[\w.:-]+(?:/\d+)?", re.ASCII)
"""A word, a port (``mlx5_0/1``) or a path; no address of a page and none of mail."""
_LONGEST, _MOST = 64, 3


def fault_of(incident: Incident) -> str:
    """``gpu.xid 79 GPU-…``: check, code and component; of what is planned check, code and time."""
    check = f"{incident.check} {incident.code}".strip()
    if incident.goes_at is not None:
        return f"{names(check, 2)} at {incident.goes_at:%Y-%m-%d %H:%M:%S} UTC"
    _, _, rest = incident.headline.partition(f"{check} ")  # rule prose: shortened to be shown
    return names(f"{check} {rest.partition(': ')[0]}")


def names(given: str, most: int = _MOST) -> str:
    """Those of the first ``most`` words that are names."""
    found = (word for word in given.split()[:most] if len(word) <= _LONGEST and _NAME.fullmatch(word))
    return " ".join(found) or "unnamed"
