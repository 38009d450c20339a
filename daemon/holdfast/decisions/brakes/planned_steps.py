"""Whether a step that was planned may still be begun, by the node sets and the operator's accepts. Pure.

The controller asks this of what it planned earlier, and the actor of each step right before it, from its own settings and Slurm's own
answer: the settings may have changed since, or an operator may have taken an accept back."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.decisions.brakes.guard import harmless
from holdfast.decisions.brakes.proposing import accepted
from holdfast.decisions.brakes.step_kinds import kind_of, question
from holdfast.decisions.common import slurm_view
from holdfast.decisions.common.node_policy import NodePolicy, least_shown
from holdfast.model.actions.action import DropHold, HoldNodes, Intent, TellOwner
from holdfast.model.book import Book
from holdfast.model.incidents.incident import Incident
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import Job, Node


def restricts(policy: Policy) -> bool:
    """Whether anything but ``[mode] mode = "act"`` holds for some node."""
    return policy.mode is not Mode.ACT or bool(policy.nodes or policy.other_nodes)


def goes_by_slurm(policy: Policy) -> bool:
    """Whether Slurm has to be asked which nodes a set has."""
    return any(each.partitions or each.features for each in policy.nodes)


def forbids(policy: Policy, book: Book, intent: Intent, shown: Mapping[str, Node], job: Job | None) -> str | None:
    """Why the step may not be begun; None: it may. ``shown``: Slurm's nodes; ``job``: the one that the step is about, as Slurm shows it."""
    action, incident = intent.action, book.incidents.get(intent.incident_id)
    if harmless(action):
        return None
    rule = least_shown(_nodes(intent, incident, job), shown, policy)
    if rule.never_touch or rule.mode is Mode.OBSERVE:
        return f"{rule.why}: recorded, not done"
    if rule.mode is Mode.ACT or isinstance(action, DropHold | TellOwner):
        return None
    return _not_accepted(rule, book, intent, incident, stops=job is not None and slurm_view.holds(job))


def _not_accepted(
    rule: NodePolicy, book: Book, intent: Intent, incident: Incident | None, *, stops: bool
) -> str | None:
    kind = kind_of(book, intent.incident_id, intent.action, stops=stops)
    if kind is None or kind not in rule.asks:
        return None
    if incident is not None and accepted(
        book, incident, intent.step, question(kind, intent.step, intent.action, incident), intent.planned_at
    ):
        return None
    return f"mode propose: no operator's accept for {kind.value} is on record; it is asked for first"


def _nodes(intent: Intent, incident: Incident | None, job: Job | None) -> tuple[str, ...]:
    action = intent.action
    named = (action.target.node, incident.node if incident is not None else None)
    kept = action.nodes if isinstance(action, HoldNodes) else ()
    parts = (job, *job.components) if job is not None and slurm_view.holds(job) else ()
    return tuple(dict.fromkeys((*(n for n in named if n), *kept, *(node for part in parts for node in part.nodes))))
