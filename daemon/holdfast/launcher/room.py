"""Rendezvous of a group with the other groups: from the agent's answer or from the environment. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.model.elastic_jobs.sizes import GROUPS_MAX

_TEXT_MAX = 1000


@dataclass(frozen=True, slots=True)
class GroupRendezvous:
    """A rendezvous (quorum), as one group of the job sees it."""

    url: str
    group: int
    token: str = ""
    ours: bool = True
    """False: a stock torchft_lighthouse, which does not know Holdfast's names."""
    sizes: tuple[int, ...] = ()
    """Legal numbers of groups, ascending; empty: the environment gives them, or they are not known."""

    def __repr__(self) -> str:
        """Text without the token, so that it may be logged."""
        return f"GroupRendezvous({self.url}, group {self.group})"


def question(job_id: int, restarts: int) -> dict[str, object]:
    """The request to the agent of the node."""
    return {"v": 1, "kind": "ask.room", "job_id": job_id, "restarts": restarts}


def room_from_answer(said: Mapping[str, Any]) -> GroupRendezvous | None:
    """Parse an answer; None: it cannot be parsed."""
    url, token, group = said.get("url"), said.get("token"), said.get("group")
    if not (_text(url) and _text(token) and _count(group)):
        return None
    named = said.get("sizes")
    sizes = named if isinstance(named, list) and named else [said.get("min"), said.get("max")]
    legal = sorted({size for size in sizes if type(size) is int and 0 < size <= GROUPS_MAX})
    if not legal or len(legal) < len(set(map(str, sizes))):
        return None
    return GroupRendezvous(str(url), int(str(group)), str(token), sizes=tuple(legal))


def room_from_env(env: Mapping[str, str], group: int | None, token: str) -> GroupRendezvous | None:
    """HOLDFAST_QUORUM, else TORCHFT_LIGHTHOUSE; None when neither is set."""
    ours = env.get("HOLDFAST_QUORUM", "")
    url = ours or env.get("TORCHFT_LIGHTHOUSE", "")
    return GroupRendezvous(url, group or 0, token, ours=bool(ours)) if url else None


def _text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _TEXT_MAX and value.isprintable()


def _count(value: object) -> bool:
    return type(value) is int and 0 <= value <= 2 * GROUPS_MAX
