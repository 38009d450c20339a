"""Hands off: nodes that are in an operator's hands or Slurm's, and until when. Pure.

A node in a MAINT reservation, in a reservation for operators alone, in a reboot or asleep by power saving is silent for a reason, and what
is wrong on it may be under repair. Findings are recorded, the incident says why it waits, and nothing is done: not by a decision
(:func:`on`), and not by a step that was decided just before (:func:`found`, read from Slurm right before each step)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from holdfast.decisions.common import node_agents, node_drains, node_incidents, slurm_view
from holdfast.decisions.common.once import once_per_world
from holdfast.decisions.machines import serving_now
from holdfast.model.actions.action import Launch, Reboot, Replace, StopStart, Terminate
from holdfast.model.book import Book, Change, NodeRecord, World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.operators.maintenance import Window, window_of
from holdfast.model.policies.policy import MaintenancePolicy
from holdfast.model.slurm.cluster import ClusterView, Node, Reservation

SETTLE_S = 60.0
"""Time that an agent must have reported after a window before its findings count again: its checks have run by then."""
_MACHINE_STEPS = (Launch, Reboot, Replace, StopStart, Terminate)
_WAITS = frozenset({IncidentState.OPEN, IncidentState.CONTAINED, IncidentState.REPAIRING, IncidentState.VALIDATING})


class Hands(StrEnum):
    """In whose hands a node is. The values are part of the record (``NodeRecord.hands``)."""

    MAINT = "maint"
    """A reservation with the flag MAINT."""
    RESERVED = "reserved"
    """A reservation that operators alone may use."""
    REBOOT = "reboot"
    """Slurm has started a reboot that is not Holdfast's: until its slurmd registers."""
    REBOOT_WAITS = "reboot_waits"
    """Slurm was asked to reboot it, not by Holdfast, and waits for its jobs: it serves until then."""
    POWER_SAVING = "power_saving"
    """Slurm's power saving has it off, or is switching it off or on."""
    WINDOW = "window"
    """A maintenance window that an operator ordered (``holdfast maintain``)."""
    DRAINED = "drained"
    """An operator, or another tool, drained it."""
    JUST_BACK = "just_back"
    """It was in other hands until a moment ago, and has time to report."""


_KEPT = frozenset({Hands.WINDOW, Hands.MAINT, Hands.RESERVED, Hands.REBOOT})
"""Whose end is remembered: the node may still boot, and what was seen meanwhile is read again."""
_TEXT = {
    Hands.MAINT: "MAINT reservation {name}",
    Hands.RESERVED: "reservation {name} of operators",
    Hands.WINDOW: "maintenance by {name}",
    Hands.REBOOT: "Slurm reboots the node for an operator",
    Hands.REBOOT_WAITS: "Slurm reboots the node for an operator once its jobs are over",
    Hands.POWER_SAVING: "Slurm's power saving has it off",
    Hands.DRAINED: "drained by {name}",
    Hands.JUST_BACK: "its maintenance or reboot has ended, and it has time to report",
}


@dataclass(frozen=True, slots=True)
class HandsOff:
    """Reason why no action is taken on a node, and until when."""

    hands: Hands
    name: str = ""
    """Name of the reservation, or of the user that drained the node."""
    until: datetime | None = None
    """None: not known; it ends when Slurm shows that it has ended."""

    @property
    def text(self) -> str:
        """One line for people."""
        end = f" until {self.until:%Y-%m-%d %H:%M} UTC" if self.until is not None else ""
        if self.hands is Hands.REBOOT_WAITS:
            return self.whose
        return f"hands off: {self.whose}{end}; recorded, nothing is done"

    @property
    def whose(self) -> str:
        """Whose hands, for people."""
        return _TEXT[self.hands].format(name=self.name)

    @property
    def kept(self) -> bool:
        """Whether its end is remembered: maintenance and reboots."""
        return self.hands in _KEPT

    @property
    def holds_incidents(self) -> bool:
        """Whether incidents of the node stay where they are. Of a drained one the rules for a foreign drain say more; one whose reboot only
        waits still serves."""
        return self.hands not in (Hands.DRAINED, Hands.JUST_BACK, Hands.REBOOT_WAITS)


def found(
    node: Node,
    reservations: Iterable[Reservation],
    now: datetime,
    policy: MaintenancePolicy,
    *,
    keeping: Collection[str],
    ours: bool,
    drained_by_others: bool,
) -> HandsOff | None:
    """Reason to keep hands off a node, as Slurm shows it; None: there is none.

    ``keeping``: the reservations by which Holdfast keeps nodes for jobs (:func:`own_reservations`); every other one is someone else's.
    ``ours``: Holdfast itself reboots or exchanges its machine, so that a reboot or power-down does not point to others.
    ``drained_by_others``: the drain that Slurm shows, if any, is not Holdfast's."""
    mine = [r for r in reservations if node.name in _names(r.nodes) and _running(r, now)]
    theirs = [r for r in mine if r.name not in keeping]
    for reservation in theirs:
        if "MAINT" in reservation.flags:
            return HandsOff(Hands.MAINT, reservation.name, reservation.end_time)
    if "MAINTENANCE" in node.flags:
        return HandsOff(Hands.MAINT, "that Slurm no longer shows")
    for reservation in theirs:
        if _for_operators(reservation, policy):
            return HandsOff(Hands.RESERVED, reservation.name, reservation.end_time)
    if node.reboot_issued and not ours:
        return HandsOff(Hands.REBOOT)
    if node.asleep and not ours:
        return HandsOff(Hands.POWER_SAVING)
    if drained_by_others:
        return HandsOff(Hands.DRAINED, node.reason_user or "another user")
    return HandsOff(Hands.REBOOT_WAITS) if node.rebooting and not ours else None


def own_reservations(book: Book, spare_reservation: str) -> frozenset[str]:
    """Reservations by which Holdfast keeps nodes for jobs, from the store. A name with Holdfast's prefix is not enough; a maintenance
    window's reservation is an operator's."""
    return book.holds | {spare_reservation}


@lru_cache(256)
def _names(nodes: tuple[str, ...]) -> frozenset[str]:
    return frozenset(nodes)


def _running(reservation: Reservation, now: datetime) -> bool:
    begun = reservation.start_time is None or reservation.start_time <= now
    return begun and (reservation.end_time is None or reservation.end_time > now)


def _for_operators(reservation: Reservation, policy: MaintenancePolicy) -> bool:
    """No user's job may start in it."""
    users = reservation.users
    return bool(users) and not reservation.accounts and set(users) <= set(policy.operators)


@once_per_world
def on(world: World, name: str) -> HandsOff | None:
    """In whose hands a node is; None: in its own, or Slurm does not show it."""
    window = window_of(world.book.windows, name, world.now)
    if window is not None:
        return in_window(window)
    view = world.view
    node = view.nodes.get(name) if view is not None else None
    if view is None or node is None:
        return None
    return found(
        node,
        view.reservations.values(),
        world.now,
        world.policy.maintenance,
        keeping=own_reservations(world.book, world.policy.spare_reservation),
        ours=(node.rebooting or node.asleep) and _ours(world, name),
        drained_by_others=node_drains.drained_by_others(world, node),
    )


def reboot_to_come(world: World, name: str) -> HandsOff | None:
    """An operator's reboot of the node that Slurm can carry out once its jobs are over: repairs wait for it. None: none waits, or the node
    does not respond to Slurm, which cannot reboot it then."""
    node = world.view.nodes.get(name) if world.view is not None else None
    hands = on(world, name) if node is not None and node.rebooting and node.responding else None
    return hands if hands is not None and hands.hands is Hands.REBOOT_WAITS else None


def in_window(window: Window) -> HandsOff:
    return HandsOff(Hands.WINDOW, f"{window.by} ({window.why})", window.until)


def _ours(world: World, name: str) -> bool:
    """Whether a step at its machine has started, or may start at any moment, for an incident that is still open."""
    return any(
        isinstance(i.action, _MACHINE_STEPS)
        and i.action.node == name
        and (i.started_at is not None or not i.settled)
        and (incident := world.book.incidents.get(i.incident_id)) is not None
        and incident.open
        for i in world.book.intents.values()
    )


def explains_silence(world: World, name: str) -> HandsOff | None:
    """Explanation of the node's silence; None: there is none."""
    hands = on(world, name)
    return hands if hands is not None and hands.holds_incidents else _just_back(world, name)


def _just_back(world: World, name: str) -> HandsOff | None:
    ended = ended_at(world, name)
    if ended is None:
        return None
    until = ended + timedelta(seconds=world.policy.maintenance.grace_s)
    return HandsOff(Hands.JUST_BACK, until=until) if world.now < until else None


def ended_at(world: World, name: str) -> datetime | None:
    """When the node was last given back; None: never, or it is in other hands now."""
    record = world.book.nodes.get(name)
    return record.hands_ended_at if record is not None and not record.hands else None


def holds(world: World, incident: Incident) -> HandsOff | None:
    """Reason why an incident waits; None: it need not."""
    if incident.state not in _WAITS:
        return None
    now = on(world, incident.node)
    if now is not None:
        return now if now.holds_incidents else None
    ended = ended_at(world, incident.node)
    if ended is None or (incident.state_since or incident.opened_at) > ended:
        return None
    return _reading_again(world, incident, ended)


def _reading_again(world: World, incident: Incident, ended: datetime) -> HandsOff | None:
    """A window has ended since the incident came to where it is: the node's agent speaks first."""
    grace = _just_back(world, incident.node)
    if grace is None and node_agents.unheard_yet(world, incident.node):
        return HandsOff(Hands.JUST_BACK)
    heard = [a for a in world.agents.get(incident.node, ()) if not node_agents.is_silent(world, a)]
    if incident.state in (IncidentState.OPEN, IncidentState.CONTAINED):
        settled = world.now - ended >= timedelta(seconds=SETTLE_S) and not serving_now.may_yet_clear(world, incident)
        return grace if not (heard and settled) else None
    return grace if not heard else None


def since_window(world: World, incident: Incident, at: datetime | None) -> datetime | None:
    """Start of a repair's time limit: no earlier than the end of the node's last window, nor than this controller started to listen.
    Without a controller no machine could report."""
    if at is None:
        return None
    return max(at, ended_at(world, incident.node) or at, world.listening_since or at)


def interrupted(world: World, incident: Incident) -> bool:
    """A window of the node has ended since the incident was contained: others may have repaired it."""
    ended = ended_at(world, incident.node)
    return ended is not None and (incident.state_since or incident.opened_at) <= ended


def nothing_left(world: World, incident: Incident) -> bool:
    """An open incident whose node was in other hands, and of which nothing is still wrong: a state would still be so, unless its machine,
    GPU or boot is gone (:mod:`serving_now`); an event counts only outside of the window, in the boot that still runs."""
    record = world.book.nodes.get(incident.node)
    ended = ended_at(world, incident.node)
    mine = node_incidents.findings_of(world, incident)
    if record is None or ended is None or incident.opened_at > ended or not mine or incident.dead:
        return False
    begun = record.hands_since or ended
    agent = node_agents.agent_of(world, incident.node)
    boot = agent.boot_id if agent is not None else ""
    return not any(
        f.cleared_at is None
        and (f.sticky or (f.boot_id == boot and not begun <= f.received_at <= ended))
        and not serving_now.over(world, incident, f)
        for f in mine
    )


def remember(world: World) -> Change:
    """Note on each node's record when it came into other hands and when it was given back."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return Change()
    changed: list[NodeRecord] = []
    for name in _candidates(world, view):
        record = world.book.nodes.get(name) or NodeRecord(name)
        now = on(world, name)
        hands = now.hands.value if now is not None and now.kept else ""
        if bool(hands) != bool(record.hands):
            begun = {"hands_since": world.now, "hands_ended_at": None} if hands else {"hands_ended_at": world.now}
            changed.append(replace(record, hands=hands, **begun))
    return Change(nodes=tuple(changed))


def _candidates(world: World, view: ClusterView) -> list[str]:
    """Nodes that may have come into other hands, or out of them: few, of thousands."""
    keeping = own_reservations(world.book, world.policy.spare_reservation)
    reserved = {
        name
        for r in view.reservations.values()
        if r.name not in keeping and ("MAINT" in r.flags or _for_operators(r, world.policy.maintenance))
        for name in r.nodes
    } | {name for w in world.book.windows if w.holds(world.now) for name in w.nodes}
    marked = {n.name for n in view.nodes.values() if n.reboot_issued or "MAINTENANCE" in n.flags}
    kept = {n for n, r in world.book.nodes.items() if r.hands}
    return sorted((reserved | marked | kept) & set(view.nodes))
