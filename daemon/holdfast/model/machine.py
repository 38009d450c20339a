"""Machines as their provider shows them, and the provider's abilities. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast_checks.result import Severity
from holdfast_checks.words import unknown_reads_as


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine as its provider shows it."""

    instance_id: str
    node: str
    """Slurm node name that it serves or will serve, empty when unknown."""
    state: str
    """pending, running, stopping, stopped, shutting-down, terminated: EC2's names, which the others map to."""
    healthy: bool | None = None
    """The provider's own status checks; None: not known (yet)."""
    launched_at: datetime | None = None
    address: str = ""
    incident: str = ""
    """Incident whose replacement it is, from the provider's tags."""


@dataclass(frozen=True, slots=True)
class MetadataOptions:
    """Settings with which EC2 serves a machine's instance metadata."""

    tokens_required: bool
    """Only with a token requested before (IMDSv2): a program that fetches a URL on behalf of another user has none."""
    hop_limit: int
    """Network hops that an answer may take: 1 ends on the machine, with 2 it reaches containers."""


@dataclass(frozen=True, slots=True)
class ProviderCan:
    """Abilities of a provider; the ladder uses those that exist."""

    reboot: bool
    replace: bool
    """In one way or the other: see ``launch_first`` and ``replace_in_place``."""
    launch_first: bool
    """A new machine can be launched and validated before the old one is terminated (launch, assign, terminate)."""
    status: bool
    power_off_confirmed: bool
    """``instance().state`` is proof that a machine is off (a fence)."""
    replace_in_place: bool = False
    """``replace`` exchanges the machine behind a node's name; there is never a second one at the same time."""
    stop_start: bool = False
    """``stop_start`` gives the same instance another host."""
    report_fault: bool = False
    """It accepts a customer's report of a faulty machine."""
    announces: bool = False
    """Its machines can read on themselves that they will be taken away (EC2's instance metadata)."""


@unknown_reads_as("other", "the notice is shown and watched, never acted upon")
class NoticeKind(StrEnum):
    """Kind of a provider's announcement about a machine."""

    IMPAIRED = "impaired"
    """Its own status checks fail."""
    REBOOT = "reboot"
    STOP = "stop"
    """Stop, retirement or maintenance that takes the machine away."""
    INTERRUPTION = "interruption"
    """Spot capacity is taken back."""
    REBALANCE = "rebalance"
    """An interruption is likely; nothing is set."""
    OTHER = "other"
    """A kind that this release does not know: shown and watched, never acted upon."""
    CAPACITY_END = "capacity_end"
    """A capacity block or reservation ends: a new machine there would end with it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A provider's notice about a live machine. Active ones only: completed and cancelled events are left out."""

    instance_id: str
    node: str
    kind: NoticeKind
    code: str
    """The provider's own code: ``instance-retirement``, ``system-status`` …"""
    text: str
    """One line."""
    at: datetime | None = None
    """When it happens (``NotBefore``); for IMPAIRED since when. None: not given."""
    at_most: Severity = Severity.FATAL
    """Highest severity that it may have; below FATAL it is shown and watched. An agent's notice is limited by its finding's severity."""

    @property
    def of_the_host(self) -> bool:
        """About the hardware below the machine (EC2's ``system-reboot``, ``system-status``)."""
        return self.code.startswith("system")

    @property
    def of_the_instance(self) -> bool:
        """About the machine itself (EC2's ``instance-reboot``, ``instance-status``)."""
        return self.code.startswith("instance")


PASSED_ON_BY: Mapping[str, frozenset[NoticeKind]] = {
    "cloud.interruption": frozenset({NoticeKind.INTERRUPTION}),
    "cloud.maintenance": frozenset({NoticeKind.REBOOT, NoticeKind.STOP}),
    "cloud.rebalance": frozenset({NoticeKind.REBALANCE}),
}
"""Check → the kinds of notices that its findings may pass on. Those of all other checks are findings, whatever their evidence says."""


@dataclass(frozen=True, slots=True)
class ProviderView:
    """The actor's last reading of the provider; the controller itself has no rights there."""

    name: str
    can: ProviderCan
    seen_at: datetime
    slurm_reboots: bool = False
    """Slurm has a RebootProgram: a reboot goes through it, so that it is expected."""
    repairs_itself: bool = False
    """The provider currently replaces broken machines automatically (HyperPod's NodeRecovery): Holdfast watches."""
    notices: tuple[Notice, ...] = ()
    on_trial: tuple[Instance, ...] = ()
    """Live machines that were launched for a replacement and have taken over no name yet."""
    error: str = ""
    """Reason why the newest reading failed in part; the data here is then from before."""


CAN_NOTHING = ProviderCan(reboot=False, replace=False, launch_first=False, status=False, power_off_confirmed=False)
