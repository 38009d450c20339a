"""Condition of each part of Holdfast, as `holdfast status`, ``/readyz``, the metrics, the doctor and the pager show it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.model.machine import ProviderView
from holdfast.model.parts import Condition, ConnectionsSeen, DiskRoom, NotifierState, PartName, PartState, ProcessSeen
from holdfast.model.policies.policy import Mode

ACTOR_SILENT_S = 30.0
"""An actor writes every two seconds; one that has not for this long is dead or hangs."""
PROVIDER_OLD_S = 120.0
"""The actor asks the provider every 20 s."""
DISK_FULL_BYTES = 128 * 2**20
"""With less free space the store may refuse writes within minutes: the reports of a large fault alone fill megabytes."""
DISK_LOW_BYTES = 2**30
CERTIFICATE_SHORT_S = 14 * 86_400.0
_FEW = 5
"""Names in a text."""
_RANK = {Condition.GOOD: 0, Condition.UNKNOWN: 0, Condition.WARNING: 1, Condition.FAILED: 2}


@dataclass(frozen=True, slots=True)
class Certificate:
    """TLS certificate that the controller serves."""

    ends_at: datetime | None
    """None: it could not be read."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """Inputs of the conditions, read at one moment."""

    now: datetime
    now_s: float
    """Monotonic, as each other ``_s`` here that is a moment."""
    mode: Mode | None = None
    """None: the loop has not turned yet."""
    turned_s: float | None = None
    """When the loop ended its last cycle, well or not."""
    loop_late_s: float = 30.0
    trouble: str | None = None
    """Why the loop decides nothing at present."""
    ping_problem: str | None = None
    """Why the database does not answer a question."""
    committed_s: float | None = None
    """When it last took a write of this process as the leader."""
    write_late_s: float = 15.0
    disk: DiskRoom | None = None
    leads: bool = True
    led_by: str | None = None
    """Controller that leads, as last seen; None: not known."""
    actor: ProcessSeen | None = None
    """None: it is not checked."""
    notifier: NotifierState | None = None
    """The controller's own, which pages when the actor cannot."""
    untaken: str | None = None
    """Which planned step no actor takes."""
    slurm_read_at: datetime | None = None
    """None: never."""
    slurm_fresh: bool = False
    slurm_error: str = ""
    provider: ProviderView | None = None
    agents: dict[str, int] = field(default_factory=dict)
    """Status → how many."""
    older_checks: int = 0
    """Agents that go by another version of the policy of checks than theirs now."""
    refused_checks: tuple[str, ...] = ()
    """Nodes whose agents refused it."""
    certificate: Certificate | None = None
    """None: the controller serves none."""
    connections: ConnectionsSeen | None = None
    """None: they are not counted."""


def parts_of(v: Vitals) -> tuple[PartState, ...]:
    """One state for each :class:`PartName`, in its order."""
    return (
        _store(v),
        disk_part(v.disk),
        _loop(v),
        _lease(v),
        _actor(v),
        _notifier(v),
        _slurm(v),
        _provider(v),
        _agents(v),
        _certificate(v),
        _connections(v),
    )


def worst(parts: tuple[PartState, ...]) -> Condition:
    return max((p.condition for p in parts), key=_RANK.__getitem__, default=Condition.UNKNOWN)


def _good(name: PartName, text: str) -> PartState:
    return PartState(name, Condition.GOOD, text)


def loop_late(turned_s: float | None, now_s: float, most_s: float) -> str | None:
    """Why the loop does not count as turning; None: it turns. ``turned_s``: when it ended its last cycle."""
    if turned_s is None:
        return "the control loop has not turned yet"
    late_s = now_s - turned_s
    return f"the control loop has not turned for {late_s:.0f} s" if late_s > most_s else None


def _late(v: Vitals) -> str | None:
    return loop_late(v.turned_s, v.now_s, v.loop_late_s)


def _store(v: Vitals) -> PartState:
    name, look = PartName.STORE, "holdfast runbook store-takes-no-write"
    if v.disk is not None:
        look = f"df -h {v.disk.mount}; findmnt -T {v.disk.store}   # {look}"
    if v.ping_problem is not None:
        return PartState(name, Condition.FAILED, v.ping_problem, look, ready=False)
    if v.committed_s is None:
        return _good(name, "it answers; this controller has written nothing yet")
    age_s = v.now_s - v.committed_s
    if age_s <= v.write_late_s or _late(v) is not None or (not v.leads and v.trouble is None):
        return _good(name, f"it answers; last write {age_s:.0f} s ago" if v.leads else "it answers")
    text = f"the store has taken no write for {age_s:.0f} s" + (f": {v.trouble}" if v.trouble else "")
    return PartState(name, Condition.FAILED, text, look, ready=False, lasts_s=age_s)


def disk_part(room: DiskRoom | None) -> PartState:
    """Of an SQLite store. None: another database, or it cannot be read."""
    name = PartName.DISK
    if room is None:
        return PartState(name, Condition.UNKNOWN, "the store's disk is not on this machine, or cannot be read")
    text = disk_text(room)
    look = f"make room on {room.mount} (df -h {room.mount})   # holdfast runbook store-takes-no-write"
    if room.free_bytes < DISK_FULL_BYTES:
        full = f"{text}; less than {_size(DISK_FULL_BYTES)} are free: once it is full, nothing is decided"
        return PartState(name, Condition.FAILED, full, look)
    if room.free_bytes < max(DISK_LOW_BYTES, room.store_bytes):  # a backup before a migration would not fit
        return PartState(name, Condition.WARNING, text, look)
    return _good(name, text)


def disk_text(room: DiskRoom) -> str:
    """Which disk, how full it is, and whose file is on it."""
    used = math.floor(100 * (1 - room.free_bytes / room.total_bytes)) if room.total_bytes else 100
    free = f"{_size(room.free_bytes)} free of {_size(room.total_bytes)} on {room.mount} ({used} % used)"
    return f"{free}; the store {room.store} has {_size(room.store_bytes)}"


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _loop(v: Vitals) -> PartState:
    name = PartName.LOOP
    late = _late(v)
    if late is not None:
        young = Condition.UNKNOWN if v.turned_s is None else Condition.FAILED
        return PartState(name, young, late, "journalctl -u holdfast-controller", ready=False)
    if v.trouble is not None:
        return PartState(name, Condition.FAILED, v.trouble, "holdfast runbook turn-fails", ready=False)
    return _good(name, "cycles pass")


def _lease(v: Vitals) -> PartState:
    name, why = PartName.LEASE, not_leading(leads=v.leads, led_by=v.led_by, trouble=v.trouble, disk=v.disk)
    if why is None:
        return _good(name, "this controller leads")
    if v.trouble is not None:
        return PartState(name, Condition.WARNING, why, "holdfast runbook store-takes-no-write", ready=False)
    return PartState(name, Condition.GOOD, why, ready=False)


def not_leading(*, leads: bool, led_by: str | None, trouble: str | None, disk: DiskRoom | None) -> str | None:
    """Why this controller does not lead, which one does, and what to do; None: it leads.

    A controller that could not renew its lease is not a standby: possibly no controller leads."""
    if leads:
        return None
    if trouble is None:
        standby = f"this controller is a standby: {led_by} leads"
        return (
            standby
            if led_by is not None
            else "this controller does not lead; which one does, if any, is not known here"
        )
    full = disk is not None and disk.free_bytes < DISK_FULL_BYTES
    cause = f"its store's disk is full: {disk_text(disk)}" if disk is not None and full else trouble
    who = (
        f"{led_by} led when that was last read" if led_by is not None else "whether another one leads is not known here"
    )
    return f"this controller does not lead, as it could not renew its lease ({cause}); {who}"


def held_back_by_actor(actor: ProcessSeen | None) -> str | None:
    """The actor's own limit that holds steps back now, as an actor that lives reports it; None: none does.

    It explains a step that is not taken: such an actor works, and a restart changes nothing."""
    lives = actor is not None and actor.silent_s <= ACTOR_SILENT_S
    return (actor.state.held_back or None) if lives and actor is not None and actor.state is not None else None


def _actor(v: Vitals) -> PartState:
    name, to_do = PartName.ACTOR, "systemctl restart holdfast-actor   # holdfast runbook no-actor"
    seen = v.actor
    if (held := held_back_by_actor(seen)) is not None:
        look = "journalctl -u holdfast-actor -g own_limit   # holdfast runbook no-actor"
        return PartState(name, Condition.FAILED, held, look)
    if v.untaken is not None:
        return PartState(name, Condition.FAILED, v.untaken, to_do, ready=False)
    if seen is None:
        return PartState(name, Condition.UNKNOWN, "not looked for")
    if seen.silent_s > ACTOR_SILENT_S:
        acts = v.mode is not Mode.OBSERVE
        text = f"the actor of this machine has given no sign of life for {seen.silent_s:.0f} s"
        how = Condition.FAILED if acts else Condition.WARNING
        return PartState(name, how, text, to_do, ready=not acts, lasts_s=seen.silent_s)
    if seen.state is None:
        return PartState(name, Condition.UNKNOWN, "it has not reported yet")
    if seen.state.problem:
        return PartState(name, Condition.WARNING, seen.state.problem, "journalctl -u holdfast-actor")
    return _good(name, f"it reports (release {seen.state.release})")


def notifier_of(v: Vitals) -> NotifierState | None:
    """Delivery of this head node's messages: of the process that fails, else the actor's; None: neither has reported."""
    actors = v.actor.state.notifier if v.actor is not None and v.actor.state is not None else None
    known = [state for state in (actors, v.notifier) if state is not None]
    return next((state for state in known if state.error), known[0] if known else None)


def _notifier(v: Vitals) -> PartState:
    name, notifier = PartName.NOTIFIER, notifier_of(v)
    if notifier is None:
        return PartState(name, Condition.UNKNOWN, "the actor has not reported")
    if notifier.error:
        since = f" since {notifier.failing_since:%Y-%m-%d %H:%M} UTC" if notifier.failing_since else ""
        text = f"messages to people are not delivered{since}: {notifier.error}"
        return PartState(name, Condition.FAILED, text, "holdfast runbook notifier-fails")
    if not notifier.addresses:
        text = "no address is set: messages to people go to the log alone"
        return PartState(name, Condition.WARNING, text, 'controller.toml: [notify] urls = ["mailto://…"]')
    return _good(name, f"{notifier.addresses} address{'es' if notifier.addresses > 1 else ''}")


_OF_A_STANDBY = "the controller that leads reads it"


def _slurm(v: Vitals) -> PartState:
    name, to_do = PartName.SLURM, "scontrol ping; systemctl status slurmctld munge   # holdfast runbook slurm-away"
    why = f": {v.slurm_error}" if v.slurm_error else ""
    if not v.leads:
        return PartState(name, Condition.UNKNOWN, _OF_A_STANDBY)
    if v.slurm_read_at is None:
        return PartState(
            name, Condition.FAILED if why else Condition.UNKNOWN, f"not read yet{why}", to_do if why else ""
        )
    age_s = (v.now - v.slurm_read_at).total_seconds()
    if not v.slurm_fresh:
        return PartState(name, Condition.FAILED, f"Slurm has not answered for {age_s:.0f} s{why}", to_do, lasts_s=age_s)
    return _good(name, f"it answers, read {max(0.0, age_s):.0f} s ago")


def _provider(v: Vitals) -> PartState:
    name, seen = PartName.PROVIDER, v.provider
    if not v.leads:
        return PartState(name, Condition.UNKNOWN, _OF_A_STANDBY)
    if seen is None:
        return PartState(name, Condition.UNKNOWN, "the actor has not asked it yet")
    if seen.error:
        look = (
            "holdfast doctor"
            if v.slurm_fresh
            else "see to Slurm first: the provider is asked by Slurm's names of nodes"
        )
        return PartState(name, Condition.WARNING, f"{seen.name}: {seen.error}", look)
    if v.now - seen.seen_at > timedelta(seconds=PROVIDER_OLD_S):
        text = f"{seen.name}: last asked at {seen.seen_at:%Y-%m-%d %H:%M:%S} UTC"
        return PartState(name, Condition.WARNING, text, "systemctl status holdfast-actor")
    return _good(name, seen.name)


def _agents(v: Vitals) -> PartState:
    if not v.leads:
        return PartState(PartName.AGENTS, Condition.UNKNOWN, "agents report to the controller that leads")
    heard, silent = v.agents.get("heard", 0), v.agents.get("silent", 0)
    unknown = v.agents.get("unknown", 0)
    text = f"{heard} report, {silent} silent, {unknown} have not reported since the controller's start"
    if v.older_checks:
        text += f"; {v.older_checks} go by an older policy of checks"
    if v.refused_checks:
        few = ", ".join(v.refused_checks[:_FEW]) + (", …" if len(v.refused_checks) > _FEW else "")
        text += f"; {len(v.refused_checks)} refused the policy of checks: {few}"
    if silent or unknown:
        return PartState(
            PartName.AGENTS, Condition.WARNING, text, "holdfast nodes   # holdfast runbook agent-not-reporting"
        )
    if v.refused_checks:
        return PartState(PartName.AGENTS, Condition.WARNING, text, "holdfast checks   # docs/how-to-check-policy.md")
    return _good(PartName.AGENTS, text) if heard else PartState(PartName.AGENTS, Condition.UNKNOWN, "none is known")


def _certificate(v: Vitals) -> PartState:
    name, paper = PartName.CERTIFICATE, v.certificate
    if paper is None:
        return _good(name, "none is served (no TLS)")
    if paper.ends_at is None:
        return PartState(name, Condition.UNKNOWN, "it cannot be read", "holdfast tls show")
    left_s = (paper.ends_at - v.now).total_seconds()
    text = f"valid until {paper.ends_at:%Y-%m-%d %H:%M} UTC"
    renew = "holdfast tls renew; systemctl reload holdfast-controller   # docs/how-to-tls.md"
    if left_s <= 0:
        return PartState(name, Condition.FAILED, f"it ended at {paper.ends_at:%Y-%m-%d %H:%M} UTC", renew)
    return PartState(name, Condition.WARNING, text, renew) if left_s < CERTIFICATE_SHORT_S else _good(name, text)


def _connections(v: Vitals) -> PartState:
    name, seen = PartName.CONNECTIONS, v.connections
    if seen is None:
        return PartState(name, Condition.UNKNOWN, "they are not counted")
    text = f"{seen.open} open of {seen.most} at most, {seen.known} of them of agents and operators"
    if not seen.turned_away:
        return _good(name, text)
    away = f"{seen.turned_away} were closed or refused for want of room in 10 minutes, most from {seen.address}"
    return PartState(name, Condition.WARNING, f"{text}; {away}", "holdfast runbook too-many-connections")
