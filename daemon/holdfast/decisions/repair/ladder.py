"""Repair ladder: which rung a node needs. Pure.

The evidence determines the first rung. The history counts as well: a rung that was tried and did not last is not tried again, a second
hardware fault within a day starts one rung higher, and a third within seven days goes to an operator, whatever the evidence says."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from holdfast.decisions.common import node_agents, node_drains, node_incidents, slurm_view
from holdfast.decisions.common.budgets import COUNTED
from holdfast.decisions.common.node_policy import policy_of
from holdfast.decisions.death.verdict import Consequence
from holdfast.decisions.machines import serving_now
from holdfast.decisions.nodes import hands_off, ordered_replacement
from holdfast.decisions.silence import common_cause, may_touch, silent_nodes
from holdfast.model.actions.action import Launch, Replace
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentKind
from holdfast.model.machine import ProviderView
from holdfast.model.slurm.cluster import ClusterView
from holdfast_checks.result import Remedy, Severity
from holdfast_checks.words import unknown_reads_as


@unknown_reads_as("human", "the attempt ends, and an operator is notified")
class Rung(StrEnum):
    WAIT = "wait"
    """Not now: jobs still hold the node, or their fate is open."""
    VALIDATE = "validate"
    """Nothing to repair: prove the node and release it."""
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    STOP_START = "stop_start"
    """A new host under the same instance."""
    REPLACE = "replace"
    WATCH = "watch"
    """The provider repairs automatically: wait for the result."""
    HUMAN = "human"


LADDER = (Rung.RESET_GPU, Rung.REBOOT, Rung.STOP_START, Rung.REPLACE)
"""In rising order of cost."""


class Choice(NamedTuple):
    rung: Rung
    reason: str
    """For people."""
    repeats_note: bool = False
    """The reason has the incident's note in it."""


def choose(world: World, view: ClusterView, incident: Incident) -> Choice:
    """The rung for a contained incident."""
    if (held := _held_up(world, view, incident)) is not None:
        return held
    if (ordered := _by_order(world, view, incident)) is not None:
        return ordered
    if any(r.suspect for r in world.book.recoveries.values() if r.incident_id == incident.id):
        return Choice(Rung.VALIDATE, "the job is the suspect, not the node")
    if not incident.dead and _cleared(world, incident):
        return Choice(Rung.VALIDATE, "every finding has cleared")
    calls_human = incident.remedy is Remedy.HUMAN
    if not incident.dead and not calls_human and serving_now.nothing_holds(world, incident, events_too=True):
        return Choice(
            Rung.VALIDATE, "another machine, GPU or boot serves by now: it proves itself before anything is repaired"
        )
    if (
        not incident.dead
        and hands_off.interrupted(world, incident)
        and node_agents.agent_of(world, incident.node) is not None
    ):
        return Choice(Rung.VALIDATE, "the node was in maintenance: it proves itself before anything is repaired")
    if node_agents.unheard_yet(world, incident.node, incident.instance_id or None):
        return Choice(Rung.WAIT, _UNHEARD)
    return next_allowed(world, view, incident)


_UNHEARD = "the controller has just started: waits for the node's agent"


def _held_up(world: World, view: ClusterView, incident: Incident) -> Choice | None:
    """Who or what has the node: another operator, a job, a reboot. None: no one has, as far as Slurm shows."""
    node = view.nodes[incident.node]
    if node_drains.drained_by_others(world, node):
        if ordered_replacement.takes_over(incident, node):
            return Choice(Rung.WAIT, f"takes over the drain of {node_drains.who_drained(world, node)}, as ordered")
        who = node_drains.who_drained(world, node)
        return Choice(Rung.HUMAN, f"{who} drained the node ({node.reason!r}): theirs to repair and to resume")
    if not slurm_view.free_of_jobs(view, incident.node):
        jobs = ",".join(j.shown_id for j in view.jobs_on(incident.node))
        return Choice(Rung.WAIT, f"waits for the end of job {jobs}" if jobs else "waits for the node to complete")
    if not incident.dead and (reboot := hands_off.reboot_to_come(world, incident.node)) is not None:
        return Choice(Rung.WAIT, f"{reboot.whose}: its repair waits for that")
    if not slurm_view.jobs_known(world, node):
        text = f"slurmctld has started, and {incident.node}'s slurmd has not registered since: whether a job runs there is not known"
        return Choice(Rung.WAIT, text)
    return None


def _by_order(world: World, view: ClusterView, incident: Incident) -> Choice | None:
    """What an operator's order to replace the machine calls for; None: there was none, or a fault is left that has its own remedy.

    A maintenance window that ended meanwhile, or findings that cleared, change nothing about it."""
    if incident.ordered is not None:
        if node_agents.unheard_yet(world, incident.node, incident.instance_id or None):
            return Choice(Rung.WAIT, _UNHEARD)
        return next_allowed(world, view, incident)
    if not incident.only_ordered:
        return None
    if incident.order is not None and incident.order.over is not None:  # whoever drained it had a reason
        return Choice(
            Rung.HUMAN, f"the order is dropped, and another operator had drained the node: {incident.order_dropped}"
        )
    if (held := ordered_replacement.no_return(world, incident.node)) is not None:
        return Choice(Rung.WAIT, f"the order is dropped; the node is returned later ({held}): {incident.order_dropped}")
    return Choice(
        Rung.VALIDATE, f"the order is dropped, the node proves itself and is returned: {incident.order_dropped}"
    )


def next_allowed(world: World, view: ClusterView, incident: Incident) -> Choice:
    """:func:`next_rung`; where nothing but silence accuses the machine, as far as the verdict's table allows it now."""
    choice = next_rung(world, incident)
    what = CONSEQUENCES.get(choice.rung)
    if what is None or not may_touch.about_silence(world, incident):
        return choice
    groups = common_cause.keeping_machines(common_cause.groups(world, silent_nodes.silent_nodes(world)))
    held = common_cause.holds(world, incident, groups)
    refusal = may_touch.why_not(world, view, incident, what, held)
    if refusal is None:
        return choice
    provider = world.book.provider
    reboots = provider is not None and not incident.rung and _can_be_done(world, provider, incident, Rung.REBOOT)
    if reboots and may_touch.why_not(world, view, incident, Consequence.REBOOT, held) is None:
        return Choice(Rung.REBOOT, f"reboot before {choice.rung.value}: {refusal.text}")
    return Choice(Rung.HUMAN if refusal.why is may_touch.TouchReason.RUNNING else Rung.WAIT, refusal.text)


CONSEQUENCES = {
    Rung.REBOOT: Consequence.REBOOT,
    Rung.STOP_START: Consequence.END_MACHINE,
    Rung.REPLACE: Consequence.END_MACHINE,
}
"""Rungs that touch a machine, as the table of verdicts names them."""


def next_rung(world: World, incident: Incident) -> Choice:
    """Rung on which the repair starts, or continues after ``incident.rung`` has failed."""
    repair = world.policy.repair
    earlier = earlier_faults(world, incident, repair.third_fault_window_s)
    tried = _replacements(world, incident)
    if incident.ordered is not None or incident.only_ordered:
        return _ordered_rung(world, incident, tried)
    if incident.remedy is Remedy.HUMAN:
        return Choice(Rung.HUMAN, f"{_evidence(world, incident)}: {_NO_STEP}")
    if len(earlier) >= 2:
        days = repair.third_fault_window_s / 86400
        names = ", ".join(i.id for i in earlier)
        return Choice(Rung.HUMAN, f"third hardware fault of this node in {days:.0f} days: {names}")
    if tried >= repair.attempts:
        return Choice(Rung.HUMAN, f"{tried} attempts to repair it failed: {incident.note}", repeats_note=True)
    provider = world.book.provider
    if provider is None:
        return Choice(Rung.WAIT, "waits until the actor has read the provider once")
    if provider.repairs_itself and incident.rung == Rung.WATCH:
        return Choice(Rung.HUMAN, f"provider {provider.name!r} repairs automatically, but did not repair this node")
    if provider.repairs_itself:
        return Choice(Rung.WATCH, f"provider {provider.name!r} repairs automatically; Holdfast waits for it")
    return _climb(world, provider, incident)


def _ordered_rung(world: World, incident: Incident, tried: int) -> Choice:
    """By an operator's order: replace, as often as a replacement is tried; no history of the node and of its group speaks against it."""
    provider = world.book.provider
    if incident.ordered is None:
        return Choice(
            Rung.HUMAN, f"the order to replace its machine is dropped ({incident.order_dropped}): {incident.note}"
        )
    if tried >= world.policy.repair.attempts:
        return Choice(Rung.HUMAN, f"{tried} attempts to replace it failed: {incident.note}", repeats_note=True)
    if provider is None:
        return Choice(Rung.WAIT, "waits until the actor has read the provider once")
    if provider.repairs_itself or not can_replace(world, incident.node, bool(incident.serving_id)):
        return Choice(
            Rung.HUMAN, f"a replacement is ordered, and provider {provider.name!r} cannot replace a machine now"
        )
    return Choice(Rung.REPLACE, f"ordered by {incident.ordered.who_and_why}")


def can_replace(world: World, node: str, known: bool) -> bool:
    """Whether the site's rungs, the node's sets and the provider allow a replacement. ``known``: the machine's id is."""
    can = world.can
    return _is_on(world, node, Rung.REPLACE) and (can.launch_first or (can.replace_in_place and known))


_NO_STEP = (
    "no step of Holdfast repairs this; repair the node, then resume it in Slurm (holdfast runbook awaiting-human)"
)
_MOST_NAMED = 3


def _evidence(world: World, incident: Incident) -> str:
    """The findings that call for an operator, by their names; the headline where it is not a finding that does."""
    mine = (f for f in node_incidents.findings_of(world, incident) if f.cleared_at is None and f.remedy is Remedy.HUMAN)
    names = list(dict.fromkeys(f"{f.check} {f.code}".strip() + f" on {f.component}" for f in mine))
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more if names else incident.headline


def _climb(world: World, provider: ProviderView, incident: Incident) -> Choice:
    """The lowest rung that the evidence and the history allow, and that the provider or an agent can carry out."""
    called_for, because = _called_for(world, incident)
    alone = _by_slurms_word_alone(world, incident)
    for rung in LADDER[LADDER.index(called_for) :]:
        if alone and (CONSEQUENCES.get(rung) is Consequence.END_MACHINE or _drained_again(world, incident)):
            break
        if _can_be_done(world, provider, incident, rung):
            above = "" if rung is called_for else f", {rung.value} is the next that can be done"
            if rung is Rung.REPLACE and (cap := _group_cap(world, incident)) is not None:
                return Choice(Rung.HUMAN, cap)
            return Choice(rung, f"{called_for.value} is called for{because}{above}")
    if incident.dead and not incident.rung:
        for rung in (Rung.STOP_START, Rung.REBOOT):  # no machine can take its place: what may bring it back
            if _can_be_done(world, provider, incident, rung):
                return Choice(rung, f"it is dead, and provider {provider.name!r} cannot replace a machine")
    if alone:
        return Choice(Rung.HUMAN, f"{incident.headline}: {_NO_FINDING}")
    return Choice(
        Rung.HUMAN,
        f"{called_for.value} is called for{because}, and provider {provider.name!r} cannot replace a machine",
    )


_NO_FINDING = (
    "no check finds anything wrong with the machine, and a drain of Slurm's is no ground to exchange it; look at slurm.conf, gres.conf and "
    "slurmd's log on the node, restart slurmd, then resume it (holdfast runbook awaiting-human)"
)


def _by_slurms_word_alone(world: World, incident: Incident) -> bool:
    """Slurm drained the node, and no check finds anything: a wrong line in gres.conf looks the same."""
    mine = node_incidents.findings_of(world, incident)
    return (
        incident.kind is IncidentKind.SLURM_DRAIN and not incident.dead and not any(f.cleared_at is None for f in mine)
    )


def _drained_again(world: World, incident: Incident) -> bool:
    """Slurm drained the node a short while ago as well, and Holdfast's repair did not last: the next one would not either."""
    since = world.now - timedelta(seconds=world.policy.repair.climb_window_s)
    mine = (i for i in world.book.incidents.values() if i.node == incident.node and i.id < incident.id)
    return any(i.kind is IncidentKind.SLURM_DRAIN and i.rung and i.opened_at >= since for i in mine)


_BEGINS = {Remedy.RESET_GPU: Rung.RESET_GPU, Remedy.REBOOT: Rung.REBOOT, Remedy.STOP_START: Rung.STOP_START}


def _called_for(world: World, incident: Incident) -> tuple[Rung, str]:
    """The first rung, and what made it higher than the evidence alone."""
    rung = Rung.REPLACE if incident.dead else _BEGINS.get(incident.remedy, Rung.REPLACE)
    if incident.rung:
        return max(rung, _above(incident.rung), key=LADDER.index), f" after {incident.rung} failed"
    # Neither Slurm's report nor what a user's job can cause shows that an earlier fault of the machine is back.
    if incident.users_doing or _by_slurms_word_alone(world, incident):
        return rung, ""
    for before in earlier_faults(world, incident, world.policy.repair.climb_window_s):
        above = _above(before.rung)
        if LADDER.index(above) > LADDER.index(rung):
            return above, f": {before.rung} did not last (incident {before.id})"
    return rung, ""


def _above(rung: str) -> Rung:
    """The next rung up; a replacement is followed by another one, nothing by the lowest."""
    if rung not in LADDER:
        return Rung.REPLACE if rung == Rung.WATCH else LADDER[0]
    return LADDER[min([str(each) for each in LADDER].index(rung) + 1, len(LADDER) - 1)]


def _can_be_done(world: World, provider: ProviderView, incident: Incident, rung: Rung) -> bool:
    """The site has not switched the rung off, and the agent, the provider or Slurm is able to do it."""
    if not _is_on(world, incident.node, rung):
        return False
    known = bool(incident.serving_id)
    match rung:
        case Rung.RESET_GPU:
            alive = node_agents.agent_of(world, incident.node, incident.instance_id or None) is not None
            return alive and bool(incident.gpu_minors)
        case Rung.REBOOT:
            return (provider.can.reboot and known) or (provider.slurm_reboots and not incident.dead)
        case Rung.STOP_START:
            return provider.can.stop_start and known
        case _:
            return provider.can.launch_first or (provider.can.replace_in_place and known)


def _is_on(world: World, node: str, rung: Rung) -> bool:
    return rung.value in world.policy.repair.rungs and _in_set(world, node, rung)


def _in_set(world: World, node: str, rung: Rung) -> bool:
    """Whether the node's sets allow the rung. In a set where nothing is done at all, what would be done is still recorded."""
    policy = policy_of(node, world)
    return policy.never_touch or rung.value in policy.rungs


def _replacements(world: World, incident: Incident) -> int:
    """Machines that this incident has asked for, whatever became of them; of one that an operator ordered, since the order."""
    asked = (i for i in world.book.intents_of(incident.id) if isinstance(i.action, Launch | Replace))
    order = incident.ordered
    return len({i.step for i in asked if order is None or i.planned_at >= order.at})


def _group_cap(world: World, incident: Incident) -> str | None:
    """Reason to stop: too many other nodes of one group got a machine in the window, so an operator has to find the cause. None: not too
    many. Several machines for one node point to no cause in the group; steps that were withheld or failed do not count."""
    nodes = world.view.nodes if world.view is not None else {}
    group = _group(world, incident.node)
    repair = world.policy.repair
    since = world.now - timedelta(seconds=repair.group_window_s)
    members = sum(1 for name in nodes if _group(world, name) == group)
    most = max(repair.replacements_per_group, int(members * repair.group_share))
    replaced = {
        i.action.node
        for i in world.book.intents.values()
        if isinstance(i.action, Launch | Replace)
        and i.state in COUNTED
        and i.planned_at > since
        and not ordered_replacement.of_an_order(world, i)
        and i.action.node != incident.node
        and _group(world, i.action.node) == group
    }
    if len(replaced) < most:
        return None
    days = repair.group_window_s / 86400
    return f"{len(replaced)} nodes of group {group!r} got another machine in {days:.0f} days, at most {most}: look for one cause"


def _group(world: World, name: str) -> str:
    """A node's first partition."""
    node = world.view.nodes.get(name) if world.view is not None else None
    return node.partitions[0] if node is not None and node.partitions else ""


def _cleared(world: World, incident: Incident) -> bool:
    mine = node_incidents.findings_of(world, incident)
    return bool(mine) and all(f.cleared_at is not None for f in mine)


def earlier_faults(world: World, incident: Incident, window_s: float) -> list[Incident]:
    """Hardware faults of this node before this one, within the window; the newest first."""
    since = world.now - timedelta(seconds=window_s)
    found = [
        i
        for i in world.book.incidents.values()
        if i.node == incident.node
        and i.id != incident.id
        and i.severity is Severity.FATAL
        and i.remedy not in (Remedy.NONE, Remedy.RESTART_JOB)
        and i.goes_at is None
        and i.opened_at >= since
        and i.id < incident.id
    ]
    return sorted(found, key=lambda i: i.id, reverse=True)
