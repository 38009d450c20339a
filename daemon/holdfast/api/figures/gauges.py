"""What Prometheus sees of the present: read from memory at the moment of the scrape.

Two collectors: what each process knows of itself, and what only the controller that leads knows of the cluster
(``api/figures/exposing.py`` says which of the two is answered)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast import __version__, unexpected, unknown
from holdfast.api.answers.node_shapes import ClusterShape
from holdfast.api.deps import ApiDeps
from holdfast.api.reads.spares import spares_shape
from holdfast.api.reads.status import head_of, vitals
from holdfast.api.shown.views import cluster_shape
from holdfast.api.transport.connections import Ended
from holdfast.decisions.inputs import InputKind
from holdfast.decisions.parts import notifier_of, parts_of
from holdfast.decisions.probing.suspects import CHECKS
from holdfast.metrics.trouble import by_state, held_jobs, in_service_with_fault, troubled
from holdfast.model.book import BrakeKind, World, at_set
from holdfast.model.errors import OutsideError
from holdfast.model.incidents.incident import ABOUT_JOBS, IncidentState
from holdfast.model.notice import NOTE, NoticeLevel
from holdfast.model.parts import Condition
from holdfast.model.policies.policy import Policy

MOST_NODES = 1_000
"""Nodes in trouble that are shown one by one; the rest is a number: a rack that lost its power is no reason for a series of each node."""


class _Gauges(Collector):
    def __init__(self, deps: ApiDeps) -> None:
        self._deps = deps

    def describe(self) -> Iterator[Metric]:
        return iter(())


class ProcessGauges(_Gauges):
    """What this process knows of itself; also while it does not lead."""

    def collect(self) -> Iterator[Metric]:
        deps = self._deps
        yield _plain("holdfast_leader", "1 on the controller that leads.", deps.leader())
        yield InfoMetricFamily("holdfast_build", "Release of this controller.", {"release": __version__})
        yield from _of_other_releases()
        yield from _unexpected()
        yield _plain("holdfast_order_polls", "Agents that wait for orders.", deps.orders.waiting())
        untaken = "How long the oldest planned step has waited for an actor; above 30 no actor takes steps."
        yield _plain("holdfast_steps_untaken_seconds", untaken, deps.untaken.waits_s)
        stages = CounterMetricFamily("holdfast_turn_stage_seconds", "Time in each stage of turns.", labels=["stage"])
        for name, spent_s in deps.stage_times().items():
            stages.add_metric([name], spent_s)
        yield stages
        yield from _parts(deps)
        yield from _connections(deps)
        turned_s = deps.loop_turned_at()
        if turned_s is not None:
            age_s = deps.clock.monotonic_s() - turned_s
            yield _plain("holdfast_loop_age_seconds", "Time since the control loop's last complete turn.", age_s)


def _notices(deps: ApiDeps) -> Iterator[Metric]:
    """From the store, so that a restart resets none; none while it does not answer."""
    text = (
        "Messages to people since the store was made, by level and outcome: made, delivered, failed (a try), given_up."
    )
    family = CounterMetricFamily("holdfast_notices", text, labels=["level", "outcome"])
    totals = _totals(deps)
    for level in NoticeLevel if totals is not None else ():
        for outcome in ("made", "delivered", "failed", "given_up"):
            family.add_metric([level.value, outcome], float((totals or {}).get(f"{level.value}/{outcome}", 0)))
    yield family


def _totals(deps: ApiDeps) -> dict[str, int] | None:
    try:
        found = json.loads(deps.store.note(NOTE) or "{}").get("totals", {})
        return {str(key): int(value) for key, value in found.items()}
    except (OutsideError, ValueError, TypeError, AttributeError):
        return None


def _brake_names(policy: Policy) -> Iterator[str]:
    """Of the site's brakes, and of those of each node set with its own limits."""
    for kind in BrakeKind:
        yield kind.value
        yield from (at_set(kind.value, each.name) for each in policy.nodes if each.brakes)


class ClusterGauges(_Gauges):
    """The state of the cluster, which only the controller that leads knows."""

    def collect(self) -> Iterator[Metric]:
        deps = self._deps
        world = deps.world()
        shown = cluster_shape(
            world, deps.agents.views(), deps.clock.now(), head_of(deps), slurm_seen_at=deps.slurm_seen_at()
        )
        yield from _of_nodes(shown)
        tripped = {b.kind for b in shown.brakes}
        brakes = {**dict.fromkeys(_brake_names(deps.policy), 0), **dict.fromkeys(sorted(tripped), 1)}
        yield _labelled("holdfast_brake_tripped", "1 while a brake holds.", "kind", brakes)
        inputs = Counter(each.part.value for each in deps.aside())
        about = {part.value: inputs[part.value] for part in InputKind}
        yield _labelled(
            "holdfast_inputs_set_aside", "Inputs that no decision can be made about, by part.", "part", about
        )
        yield from _spares(deps)
        waiting = "Steps that wait for an operator's accept (mode propose)."
        yield _plain("holdfast_proposals_open", waiting, shown.proposals_open)
        yield _plain("holdfast_paused", "1 while an operator has paused Holdfast.", shown.paused is not None)
        yield _plain("holdfast_slurm_answers", "1 while Slurm answers.", shown.slurm_read_at is not None)
        yield from _trouble(world)
        yield from _notices(deps)


def _of_nodes(shown: ClusterShape) -> Iterator[Metric]:
    agents = Counter(a.status for n in shown.nodes for a in n.agents)
    yield _labelled(
        "holdfast_agents", "Agents by status.", "status", {s: agents[s] for s in ("heard", "silent", "unknown")}
    )
    states = Counter(str(i.state) for n in shown.nodes for i in n.incidents)
    open_states = {s.value: states[s.value] for s in IncidentState if s is not IncidentState.CLOSED}
    yield _labelled("holdfast_open_incidents", "Open incidents by state.", "state", open_states)
    checks = Counter(i.check for n in shown.nodes for i in n.incidents if i.kind in ABOUT_JOBS)
    jobs = {check: checks[check] for check in sorted(CHECKS.values())}
    yield _labelled("holdfast_open_job_incidents", "Open incidents about jobs that accuse no node.", "check", jobs)
    aside = sum(a.set_aside for n in shown.nodes for a in n.agents)
    yield _plain("holdfast_agents_set_aside", "Files and items that agents cannot read and have set aside.", aside)
    yield _plain(
        "holdfast_lemons", "Nodes whose history makes them the last choice.", sum(n.lemon for n in shown.nodes)
    )


def _trouble(world: World | None) -> Iterator[Metric]:
    """Nothing before the first turn: no trouble is then known, which is not the same as none."""
    nodes = troubled(world) if world is not None else ()
    text = "Nodes in trouble by state; a node has the gravest that holds (docs/metrics.md)."
    yield _labelled("holdfast_nodes", text, "state", {s.value: n for s, n in by_state(nodes).items()})
    state = GaugeMetricFamily(
        "holdfast_node_state", "1 for each node in trouble, with its state.", labels=["node", "state"]
    )
    info = InfoMetricFamily(
        "holdfast_node",
        "The machine of each node in trouble; a label without a value is not known.",
        labels=["node", "instance_id", "instance_type", "gpu"],
    )
    for node in nodes[:MOST_NODES]:
        state.add_metric([node.name, node.state.value], 1.0)
        info.add_metric([node.name, node.instance_id, node.instance_type, node.gpu], {})
    yield state
    yield info
    text = f"Nodes in trouble that holdfast_node_state leaves out, as it has {MOST_NODES} at most."
    yield _plain("holdfast_node_state_left_out", text, max(len(nodes) - MOST_NODES, 0))
    text = (
        "Nodes in service whose fault is still there: an operator resumed or acknowledged them, or no step was taken."
    )
    yield _plain(
        "holdfast_nodes_in_service_with_fault", text, len(in_service_with_fault(world)) if world is not None else 0
    )
    text = "Jobs that Holdfast holds until their owner or an operator releases them."
    yield _plain("holdfast_held_jobs", text, held_jobs(world) if world is not None else 0)


def _parts(deps: ApiDeps) -> Iterator[Metric]:
    seen = vitals(deps)
    conditions = {p.name.value: _CONDITION[p.condition] for p in parts_of(seen)}
    text = "How each part is: 0 good or not known, 1 warning, 2 failed (docs/safety.md)."
    yield _labelled("holdfast_part_condition", text, "part", conditions)
    if seen.committed_s is not None:
        text = "Time since the store last took a write of this controller as the leader."
        yield _plain("holdfast_store_write_age_seconds", text, seen.now_s - seen.committed_s)
    if seen.actor is not None:
        text = "Time since the actor of this machine last gave a sign of life."
        yield _plain("holdfast_actor_silent_seconds", text, seen.actor.silent_s)
    notifier = notifier_of(seen)
    if notifier is not None:
        since = (notifier.failing_since or seen.now) if notifier.error else seen.now
        text = "How long messages to people have not been delivered; 0: the newest one was, or there was none."
        yield _plain("holdfast_notices_failing_seconds", text, max((seen.now - since).total_seconds(), 0.0))
    if seen.disk is not None:
        yield _plain("holdfast_disk_free_bytes", "Free on the store's file system.", seen.disk.free_bytes)
        yield _plain("holdfast_disk_total_bytes", "Size of the store's file system.", seen.disk.total_bytes)
        yield _plain("holdfast_store_bytes", "Size of the database with its log.", seen.disk.store_bytes)
    if seen.certificate is not None and seen.certificate.ends_at is not None:
        text = "Unix time at which the controller's certificate ends."
        yield _plain("holdfast_certificate_end_seconds", text, seen.certificate.ends_at.timestamp())


def _connections(deps: ApiDeps) -> Iterator[Metric]:
    if deps.connections is None:
        return
    seen = deps.connections.seen()
    yield _labelled(
        "holdfast_connections",
        "Open connections to the API: known (an agent, an operator or a viewer was authenticated on it) or not.",
        "of",
        {"known": seen.known, "unknown": seen.open - seen.known},
    )
    yield _plain("holdfast_connections_most", "Connections to the API at most.", seen.most)
    text = f"Connections to the API that the controller closed or refused, by reason: {', '.join(Ended)}."
    ended = CounterMetricFamily("holdfast_connections_ended", text, labels=["reason"])
    for kind in Ended:
        ended.add_metric([kind.value], float(deps.connections.ended[kind]))
    yield ended


_CONDITION = {Condition.GOOD: 0, Condition.UNKNOWN: 0, Condition.WARNING: 1, Condition.FAILED: 2}


def _unexpected() -> Iterator[Metric]:
    text = "Times that a part of the controller failed unexpectedly, since its start."
    yield _labelled("holdfast_unexpected_errors", text, "part", dict(unexpected.counts()))
    text = "1 while a part of the controller fails: what it does is left undone until it passes again."
    yield _labelled("holdfast_failing", text, "part", {"turn": 0} | dict.fromkeys(unexpected.standing(), 1))


def _of_other_releases() -> Iterator[Metric]:
    """Of this process, since its start (``docs/upgrade.md``)."""
    met = dict(unknown.counts())
    yield _plain("holdfast_unknown_words", "Different words of another release that were met.", met.pop("word", 0))
    text = "Documents in the store that cannot be read, by table."
    yield _labelled("holdfast_unreadable_documents", text, "table", met)


def _spares(deps: ApiDeps) -> Iterator[Metric]:
    shape = spares_shape(deps.world())
    tested = sum(s.ready and s.under_test for s in shape.spares)
    states = {"ready": shape.ready - tested, "under_test": tested, "not_ready": len(shape.spares) - shape.ready}
    yield _labelled("holdfast_spares", "Nodes of the spare pool, by state.", "state", states)
    wanted = GaugeMetricFamily("holdfast_spares_wanted", "Spares wanted; no sample without a number.")
    if shape.wanted is not None:
        wanted.add_metric([], float(shape.wanted))
    yield wanted


def _plain(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _labelled(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], float(value))
    return family
