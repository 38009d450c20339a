"""Target of an action. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.model.slurm.cluster import JobKey


@dataclass(frozen=True, slots=True)
class Target:
    """Target of an action; fields that do not apply are None."""

    node: str | None = None
    job: JobKey | None = None
    instance_id: str | None = None
    reservation: str | None = None
    subject: str | None = None
    """Subject of a notification, which acts on nothing."""

    @property
    def text(self) -> str:
        """For people: the node, else the job, the machine, the reservation, the subject."""
        named = (
            self.node,
            str(self.job) if self.job is not None else None,
            self.instance_id,
            self.reservation,
            self.subject,
        )
        return next((each for each in named if each), "")


class _HasNode(Protocol):
    @property
    def node(self) -> str: ...


class _HasJob(Protocol):
    @property
    def job(self) -> JobKey: ...


class _HasMachine(_HasNode, Protocol):
    @property
    def instance_id(self) -> str: ...


class OnNode:
    """Base of an action on its ``node``."""

    __slots__ = ()

    @property
    def target(self: _HasNode) -> Target:
        return Target(node=self.node)


class OnJob:
    """Base of an action on its ``job``."""

    __slots__ = ()

    @property
    def target(self: _HasJob) -> Target:
        return Target(job=self.job)


class OnMachine:
    """Base of an action on the machine ``instance_id`` of its ``node``."""

    __slots__ = ()

    @property
    def target(self: _HasMachine) -> Target:
        return Target(node=self.node, instance_id=self.instance_id)
