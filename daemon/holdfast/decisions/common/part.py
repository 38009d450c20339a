"""The common result of a decision's part. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.actions.action import Proposal
from holdfast.model.event import Event
from holdfast.model.incidents.incident import Recovery


@dataclass(frozen=True, slots=True)
class Part:
    proposals: tuple[Proposal, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    """New and changed recoveries that go with the proposals."""
    events: tuple[Event, ...] = ()
    """What is put on record with the proposals."""
