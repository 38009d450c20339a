"""What Prometheus sees of the present: read from memory at the moment of the scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast import unexpected, unknown
from holdfast.api.connections import Ended
from holdfast.api.deps import ApiDeps
from holdfast.api.spares import spares_shape
from holdfast.api.status import head_of, vitals
from holdfast.api.views import cluster_shape
from holdfast.decisions.inputs import InputKind
from holdfast.decisions.parts import parts_of
from holdfast.decisions.probing.suspects import CHECKS
from holdfast.model.book import BrakeKind
from holdfast.model.incident import ABOUT_JOBS, IncidentState
from holdfast.model.parts import Condition


class Gauges(Collector):
    def __init__(self, deps: ApiDeps) -> None:
        self._deps = deps

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        deps = self._deps
        shown = cluster_shape(
            deps.world(), deps.agents.views(), deps.clock.now(), head_of(deps), slurm_seen_at=deps.slurm_seen_at()
        )
        agents = Counter(a.status for n in shown.nodes for a in n.agents)
        yield _labelled(
            "holdfast_agents", "Agents by status.", "status", {s: agents[s] for s in ("heard", "silent", "unknown")}
        )
        states = Counter(str(i.state) for n in shown.nodes for i in n.incidents)
        by_state = {s.value: states[s.value] for s in IncidentState if s is not IncidentState.CLOSED}
        yield _labelled("holdfast_open_incidents", "Open incidents by state.", "state", by_state)
        checks = Counter(i.check for n in shown.nodes for i in n.incidents if i.kind in ABOUT_JOBS)
        jobs = {check: checks[check] for check in sorted(CHECKS.values())}
        yield _labelled("holdfast_open_job_incidents", "Open incidents about jobs that accuse no node.", "check", jobs)
        tripped = {b.kind for b in shown.brakes}
        brakes = {kind.value: int(kind.value in tripped) for kind in BrakeKind}
        yield _labelled("holdfast_brake_tripped", "1 while a brake holds.", "kind", brakes)
        yield from _of_other_releases()
        aside = sum(a.set_aside for n in shown.nodes for a in n.agents)
        yield _plain("holdfast_agents_set_aside", "Files and items that agents cannot read and have set aside.", aside)
        inputs = Counter(each.part.value for each in deps.aside())
        about = {part.value: inputs[part.value] for part in InputKind}
        yield _labelled(
            "holdfast_inputs_set_aside", "Inputs that no decision can be made about, by part.", "part", about
        )
        yield from _unexpected()
        yield from _spares(deps)
        yield _plain(
            "holdfast_lemons", "Nodes whose history makes them the last choice.", sum(n.lemon for n in shown.nodes)
        )
        waiting = "Steps that wait for an operator's accept (mode propose)."
        yield _plain("holdfast_proposals_open", waiting, shown.proposals_open)
        yield _plain("holdfast_paused", "1 while an operator has paused Holdfast.", shown.paused is not None)
        yield _plain("holdfast_leader", "1 on the controller that leads.", shown.leader)
        yield _plain("holdfast_slurm_answers", "1 while Slurm answers.", shown.slurm_read_at is not None)
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
    if shape.wanted is not None:
        yield _plain("holdfast_spares_wanted", "Spares wanted; absent without a number.", shape.wanted)


def _plain(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _labelled(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], float(value))
    return family
