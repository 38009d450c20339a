"""The actor's own limits, whatever the store says: only root can change them, and they survive a restart."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.actor.begun import Begun
from holdfast.actor.limits import LEAST_OUT, ActorLimits, LimitedStep, limited, most
from holdfast.controller.timing.lanes import pools
from holdfast.model.actions.action import (
    Action,
    AdoptSpare,
    Drain,
    DropHold,
    HoldJob,
    HoldNodes,
    Intent,
    IntentState,
    Launch,
    Notify,
    Reboot,
    Requeue,
    SetDown,
    StopStart,
    TakeOverDrain,
    Terminate,
    Undrain,
)
from holdfast.model.book import Change, NodeMark
from holdfast.model.errors import LeaderFencedOff, Unavailable
from holdfast.model.operators.maintenance import KeepWindow
from holdfast.model.operators.node_orders import DrainForOperator, ReleaseForOperator
from holdfast.model.policies.policy import Policy, RepairPolicy
from holdfast.model.slurm.cluster import JobKey, NodeReason
from holdfast.slurm.holding import HeldByReservation
from support.simulated.site import Site

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = JobKey("c", 7, NOW)
DRAIN = Drain("n1", "a reason")
SEEN = NodeReason("psu", "ops", NOW)


def limits(
    folder: Path | None = None, *, policy: Policy | None = None, factor: float = 3.0, nodes: int = 8
) -> ActorLimits:
    return ActorLimits(folder, policy or Policy(), factor, lambda: NOW, lambda: nodes)


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        (DRAIN, LimitedStep.OUT),
        (SetDown("n1", "a reason"), LimitedStep.OUT),
        (AdoptSpare("n1"), LimitedStep.OUT),
        (DrainForOperator("n1", "operator ops: psu"), LimitedStep.OUT),
        (ReleaseForOperator("n1", SEEN), LimitedStep.RELEASED),
        (TakeOverDrain("n1", "a reason", SEEN), LimitedStep.RELEASED),
        (Requeue(JOB, 0), LimitedStep.STOPPED),
        (HoldJob(JOB, "why"), LimitedStep.STOPPED),
        (Terminate("i-1", "n1"), LimitedStep.ENDED),
        (Reboot("n1", "i-1", "b", "t", via_slurm=False), LimitedStep.CYCLED),
        (StopStart("n1", "i-1", "b", "t"), LimitedStep.CYCLED),
        (Launch("n1", "t"), LimitedStep.BOUGHT),
        (Notify("s", "b"), None),
        (Undrain("n1", "mark"), None),
    ],
)
def test_what_takes_something_from_somebody_is_counted(action: Action, kind: LimitedStep | None) -> None:
    assert limited(action) is kind


@pytest.mark.parametrize(("kind", "nodes", "hour"), [
    (LimitedStep.OUT, 0, LEAST_OUT), (LimitedStep.OUT, 4096, 243), (LimitedStep.STOPPED, 0, 48), (LimitedStep.ENDED, 0, 12),
    (LimitedStep.CYCLED, 0, 12), (LimitedStep.BOUGHT, 0, 12),
])  # fmt: skip
def test_the_limits_are_a_multiple_of_brakes_and_budgets(kind: LimitedStep, nodes: int, hour: int) -> None:
    windows = most(Policy(), kind, 3.0, nodes)
    assert windows[0] == (timedelta(hours=1), hour)


def test_a_large_cluster_is_asked_for_its_size_only_where_it_matters() -> None:
    asked: list[int] = []

    def nodes() -> int:
        asked.append(1)
        return 4096

    mine = replace(limits(), nodes=nodes)
    for number in range(100):
        assert mine.full(Drain(f"n{number}", "r")) is None
        mine.begin(DRAIN, f"n{number}")
    assert asked == [1], "once an hour"
    mine = replace(limits(), nodes=_away)
    for number in range(LEAST_OUT):
        mine.begin(DRAIN, f"n{number}")
    assert mine.full(Drain("n99", "r")) is not None, "not known is small"


def _away() -> int:
    raise Unavailable("slurmctld")


def test_the_same_node_counts_once_and_the_oldest_leaves(tmp_path: Path) -> None:
    at = [NOW]
    mine = ActorLimits(tmp_path, Policy(), 3.0, lambda: at[0], lambda: 8)
    for _ in range(3):
        for number in range(LEAST_OUT):
            assert mine.full(Drain(f"n{number}", "r")) is None
            mine.begin(DRAIN, f"n{number}")
    held = mine.full(Drain("n99", "r"))
    assert held is not None
    assert held.text.startswith(
        f"the actor's own limit holds back further steps: {LEAST_OUT} nodes taken out of service within 1 h"
    )
    assert "2026-03-01 13:00 UTC" in held.text
    at[0] = NOW + timedelta(minutes=61)
    assert mine.full(Drain("n99", "r")) is None


def test_a_restart_forgets_nothing_and_a_broken_file_is_put_aside(tmp_path: Path) -> None:
    first = limits(tmp_path)
    for number in range(LEAST_OUT):
        first.begin(DRAIN, f"n{number}")
    assert limits(tmp_path).full(Drain("n99", "r")) is not None
    for broken in ("[", "[[1]]", '[["out", 1, 2]]', '[["out", "n1", 1e99]]', "[" * 100_000):
        (tmp_path / "steps.json").write_text(broken)
        assert limits(tmp_path).full(Drain("n99", "r")) is None
        assert not (tmp_path / "steps.json").exists()
    assert len(list(tmp_path.glob("steps.json.unreadable-*"))) == 5


def test_a_folder_that_is_away_stops_nothing_and_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mine = limits(tmp_path / "none")
    mine.begin(DRAIN, "n1")
    mine.begin(DRAIN, "n2")
    assert caplog.text.count("event=actor_limits_not_written") == 1
    assert mine.full(Drain("n3", "r")) is None


def test_what_goes_by_the_providers_word_and_a_factor_of_zero_hold_nothing() -> None:
    for mine in (replace(limits(), going=lambda: frozenset({"n99"})), limits(factor=0)):
        for number in range(100):
            mine.begin(DRAIN, f"n{number}")
        assert mine.full(Drain("n99", "r")) is None


@pytest.fixture
def site() -> Site:
    return Site(8)


def _made(site: Site, *actions: Action, state: IntentState = IntentState.PLANNED, first: int = 0) -> tuple[Intent, ...]:
    """Plan these steps as an intruder with write access to the store, each for a missing incident. ``first``: number of the first one."""
    fence = site.store.take_lease("head", site.clock.now(), 15)
    assert fence is not None
    made = tuple(
        Intent(
            f"1kjmmb0rr{n:03d}/{type(a).__name__}/x/1",
            f"1kjmmb0rr{n:03d}",
            a,
            "a stranger's",
            fence.fence,
            state,
            site.clock.now(),
        )
        for n, a in enumerate(actions, first)
    )
    site.store.commit(Change(intents=made), fence.fence)
    return made


def _planned(site: Site, *actions: Action, state: IntentState = IntentState.PLANNED, first: int = 0) -> list[Intent]:
    """As :func:`_made`; the actor polls several times."""
    made = _made(site, *actions, state=state, first=first)
    for _ in range(5):
        site.act()
    known = {i.key: i for i in site.store.intents()}
    return [known[intent.key] for intent in made]


def test_a_store_that_plans_everything_gets_so_many_nodes_and_a_word_to_people(site: Site, tmp_path: Path) -> None:
    """What a listener that was taken over could plan: all nodes of the cluster, at once."""
    repair = replace(site.policy.repair, terminations_per_hour=1, terminations_per_day=1)
    site.actor.limits = replace(
        limits(tmp_path, policy=replace(site.policy, repair=repair), factor=1.0), now=site.clock.now
    )
    for number in range(LEAST_OUT - 2):
        site.actor.limits.begin(DRAIN, f"before-{number}")
    drains = (Drain(f"n{n}", f"holdfast[1kjmmb0rr00{n - 1}]: a stranger's") for n in range(1, 6))
    states = [intent.state for intent in _planned(site, *drains)]
    assert states.count(IntentState.DONE) == 2
    assert states.count(IntentState.PLANNED) == 3
    assert "the actor's own limit holds back further steps" in site.actor.held_back
    assert "systemctl stop holdfast-actor" in site.actor.held_back, "a pause lies in the store that plans the steps"
    rows = json.loads((tmp_path / "steps.json").read_text())
    assert {row[1] for row in rows if row[1][0] == "n"} == {
        n.name for n in site.slurm.all_nodes().values() if n.draining
    }


def test_a_limit_that_holds_is_logged_once_and_its_end(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for held in ("", "own limit: 32 nodes", "own limit: 33 nodes", "", ""):
        site.actor.held_back = held
        site.actor._say_held_back()
    said = [r.getMessage().partition(" ")[0] for r in caplog.records if "own_limit" in r.getMessage()]
    assert said == ["event=own_limit_holds", "event=own_limit_over"]


@pytest.mark.parametrize("jobs", [None, (), "its own"])
def test_a_node_that_answers_and_trains_is_not_set_down_whatever_the_store_says(site: Site, jobs: object) -> None:
    """Not by a step that claims stuck tasks either, nor by one of an incident that the store does not have."""
    job = site.slurm.submit(2, comment="holdfast")
    node = job.nodes[0]
    given = (job.job_id,) if jobs == "its own" else jobs
    (down,) = _planned(site, SetDown(node, "holdfast[1kjmmb0rr000]: a stranger's", given, node_dead=False))  # type: ignore[arg-type]
    assert (down.state, down.outcome) == (IntentState.FAILED, "the node answers a connection: it lives")
    assert not site.slurm.node(node).down
    assert site.slurm.job(job.job_id).state == "RUNNING"


def test_what_does_not_answer_and_what_only_holds_stuck_tasks_may_be_set_down(site: Site) -> None:
    site.machine("n2").powered = False
    idle, dark = _planned(
        site,
        SetDown("n1", "holdfast[1kjmmb0rr000]: stuck tasks", (), node_dead=False),
        SetDown("n2", "holdfast[1kjmmb0rr001]: dead", (), node_dead=False),
    )
    assert (idle.state, dark.state) == (IntentState.DONE, IntentState.DONE)


def test_a_machine_that_answers_is_not_fenced_whatever_the_store_says(site: Site) -> None:
    job = site.slurm.submit(2, comment="holdfast")
    node = job.nodes[0]
    (fenced,) = _planned(site, Terminate(site.machine(node).instance_id, node, fence=True))
    assert (fenced.state, site.provider.terminated) == (IntentState.FAILED, {})
    assert site.slurm.job(job.job_id).state == "RUNNING"


def test_limits_are_for_root_alone_to_change() -> None:
    """They contain no budget that an operator extends, and no brake that one releases: they read the configuration."""
    small = replace(Policy(), repair=RepairPolicy(terminations_per_hour=0, terminations_per_day=0))
    mine = limits(policy=small)
    assert mine.full(Terminate("i-1", "n1")) is not None, "a budget of none is a limit of none"


# A store that says more than that a step is planned


@pytest.fixture
def guarded(site: Site, tmp_path: Path) -> Site:
    site.actor.limits = replace(limits(tmp_path, policy=site.policy), now=site.clock.now)
    site.actor.begun = Begun(tmp_path)
    return site


def test_what_the_store_calls_begun_is_looked_at_like_a_new_step(guarded: Site, tmp_path: Path) -> None:
    """Started steps are ended without a check, so the actor trusts only its own memory of what it has started."""
    job = guarded.slurm.submit(2, comment="holdfast")
    down, fenced = job.nodes
    steps = (
        SetDown(down, "holdfast[1kjmmb0rr000]: a stranger's", None, node_dead=False),
        Terminate(guarded.machine(fenced).instance_id, fenced, fence=True),
    )
    said = [intent.outcome for intent in _planned(guarded, *steps, state=IntentState.STARTED)]
    assert said == ["the node answers a connection: it lives"] * 2
    assert guarded.slurm.job(job.job_id).state == "RUNNING"
    assert guarded.provider.terminated == {}
    for number in range(LEAST_OUT - 1):
        assert guarded.actor.limits is not None
        guarded.actor.limits.begin(DRAIN, f"before-{number}")
    drains = (Drain(f"n{n}", f"holdfast[1kjmmb0rr{n:03d}]: a stranger's") for n in range(3, 8))
    _planned(guarded, *drains, state=IntentState.STARTED, first=3)
    assert sum(node.draining for node in guarded.slurm.all_nodes().values()) == 1
    assert "the actor's own limit holds back" in guarded.actor.held_back


def test_what_the_actor_has_begun_itself_it_ends_after_a_restart(guarded: Site, tmp_path: Path) -> None:
    drain = Drain("n1", "holdfast[1kjmmb0rr000]: ours")
    intent = Intent("1kjmmb0rr000/Drain/x/1", "1kjmmb0rr000", drain, "r", 1, IntentState.STARTED, guarded.clock.now())
    Begun(tmp_path).note(intent)
    again = Begun(tmp_path)
    assert again.has(intent)
    assert not again.has(replace(intent, action=Drain("n2", "holdfast[1kjmmb0rr000]: ours"))), "the key of another step"
    again.over(intent)
    assert not Begun(tmp_path).has(intent)
    for broken in ("[", "[1]", '{"a": 1}', "[" * 100_000):
        (tmp_path / "begun.json").write_text(broken)
        assert not Begun(tmp_path).has(intent)


def test_steps_that_begin_together_are_counted_together(guarded: Site) -> None:
    """All are handed out before the first has started: checking and counting is one operation."""
    limit = guarded.actor.limits
    assert limit is not None
    for number in range(LEAST_OUT - 3):
        limit.begin(DRAIN, f"before-{number}")
    plain = guarded.slurm.drain

    def slowly(node: str, reason: str) -> None:
        time.sleep(0.05)
        plain(node, reason)

    guarded.slurm.drain = slowly  # type: ignore[method-assign]
    drains = [Drain(f"n{n}", f"holdfast[1kjmmb0rr{n:03d}]: a stranger's") for n in range(1, 9)]
    intents = _made(guarded, *drains)
    with pools() as workers:
        guarded.actor._hand_out(workers)
    states = [i.state for i in guarded.store.intents() if i.key in {each.key for each in intents}]
    assert states.count(IntentState.DONE) == 3
    assert states.count(IntentState.PLANNED) == 5


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (KeepWindow("everything", ("n1",), NOW + timedelta(days=1)), "is not a maintenance window of Holdfast"),
        (KeepWindow("ops_own", (), NOW), "is not a maintenance window of Holdfast"),
        (KeepWindow("holdfast-maint-x", ("n1",), NOW + timedelta(days=300)), "is not a maintenance window of Holdfast"),
        (HoldNodes("everything", ("n1",), "mallory", JOB, 600), "is not a hold name of Holdfast"),
        (DropHold("ops_own"), "is not a hold name of Holdfast"),
    ],
)
def test_no_reservation_of_others_is_made_or_deleted(site: Site, action: Action, why: str) -> None:
    site.slurm.create_reservation("ops_own", ("n2",), users=("root",), duration_s=3600)
    (done,) = _planned(site, action)
    assert (done.state, why in done.outcome) == (IntentState.REFUSED, True), done.outcome
    assert set(site.slurm.all_reservations()) == {"ops_own"}


def test_a_hold_is_for_the_jobs_owner_alone(site: Site) -> None:
    job = site.slurm.submit(2, comment="holdfast")
    (done,) = _planned(
        site, HoldNodes(f"holdfast-1kjmmb0rr000-{job.job_id}", ("n5",), "mallory", site.slurm.job(job.job_id).key, 600)
    )
    assert (done.state, "mallory" in done.outcome) == (IntentState.REFUSED, True), done.outcome


def test_a_drain_of_an_operators_is_neither_ended_nor_taken_over(site: Site) -> None:
    """Whatever mark the store has of it."""
    site.slurm.operator_drains("n1", "psu")
    node = site.slurm.node("n1")
    fence = site.store.take_lease("head", site.clock.now(), 15)
    assert fence is not None
    mark = NodeMark("n1", "1kjmmb0rr000", node.reason, node.reason_user, node.reason_time)
    site.store.commit(Change(marks=(mark,)), fence.fence)
    said = _planned(site, Undrain("n1", "psu"), Drain("n1", "holdfast[1kjmmb0rr001]: ours now", node.given_reason))
    assert [each.state for each in said] == [IntentState.REFUSED, IntentState.REFUSED], [s.outcome for s in said]
    assert (site.slurm.node("n1").draining, site.slurm.node("n1").reason) == (True, "psu")


def test_operators_orders_are_refused_where_the_site_takes_none(site: Site) -> None:
    site.slurm.operator_drains("n1", "psu")
    site.actor.outside = replace(site.actor.outside, node_orders=False)
    orders = (ReleaseForOperator("n1", site.slurm.node("n1").given_reason), DrainForOperator("n2", "operator ops: psu"))
    said = _planned(site, *orders)
    assert [(i.state, "actor.node_orders" in i.outcome) for i in said] == [(IntentState.REFUSED, True)] * 2
    assert (site.slurm.node("n1").draining, site.slurm.node("n2").draining) == (True, False)


def test_where_drained_nodes_would_be_replaced_no_order_is_called_done_that_is_not(site: Site) -> None:
    """ParallelCluster: nodes are held by reservations, and an operator's own drain is left alone there."""
    site.slurm.operator_drains("n1", "psu")
    site.actor.outside = replace(site.actor.outside, scheduler=HeldByReservation(site.slurm))
    seen = site.slurm.node("n1").given_reason
    released, drained = _planned(site, ReleaseForOperator("n1", seen), DrainForOperator("n2", "operator ops: psu"))
    assert (released.state, "scontrol update NodeName=n1 State=RESUME" in released.outcome) == (
        IntentState.REFUSED,
        True,
    ), released.outcome
    assert drained.state is IntentState.FAILED
    assert "holdfast maintain n2" in drained.outcome
    assert (site.slurm.node("n1").draining, site.slurm.node("n2").draining) == (True, False)


@pytest.mark.parametrize("reason", ["psu", "Action:Replace", "holdfast[1kjmmb0rr001]: x", "Kill task failed", ""])
def test_no_drain_is_an_operators_without_the_operators_name(site: Site, reason: str) -> None:
    (done,) = _planned(site, DrainForOperator("n1", reason))
    assert (done.state, site.slurm.node("n1").draining) == (IntentState.REFUSED, False)


@pytest.mark.parametrize("reason", ["Action:Replace", "psu swap, alice", "holdfast: mine", ""])
def test_no_node_is_taken_out_in_words_that_are_not_ours(site: Site, reason: str) -> None:
    """HyperPod replaces or reboots a node whose reason it knows, whatever runs there; any other reads like an operator's drain."""
    site.machine("n2").powered = False
    said = _planned(site, Drain("n1", reason), SetDown("n2", reason, None, node_dead=False))
    assert [each.state for each in said] == [IntentState.REFUSED] * 2, [each.outcome for each in said]
    assert not any(node.out_of_service for node in site.slurm.all_nodes().values() if node.name != "n2")
    assert not site.slurm.node("n2").draining


@pytest.mark.parametrize("duration_s", [0, -1, 31 * 24 * 3600])
def test_a_hold_ends_in_time(site: Site, duration_s: int) -> None:
    job = site.slurm.job(site.slurm.submit(2, comment="holdfast").job_id)
    hold = HoldNodes(f"holdfast-1kjmmb0rr000-{job.key.job_id}", ("n5",), job.user, job.key, duration_s)
    (done,) = _planned(site, hold)
    assert (done.state, "is not allowed" in done.outcome) == (IntentState.REFUSED, True), done.outcome


@pytest.mark.parametrize("how", ["fenced off", "store away"])
def test_what_was_begun_once_is_no_leave_for_ever(
    guarded: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A DOWN is started while the node is dark, and its end cannot be recorded in the store; later the node lives and trains."""
    now_s = [1e9]
    guarded.actor.begun = Begun(tmp_path, lambda: now_s[0])
    job = guarded.slurm.submit(2, comment="holdfast")
    node = job.nodes[0]

    def away(*_: object, **__: object) -> None:
        raise Unavailable("slurmctld")

    def unwritten(*_: object, **__: object) -> None:
        raise LeaderFencedOff("another leads") if how == "fenced off" else Unavailable("the store")

    with monkeypatch.context() as dark:
        guarded.machine(node).powered = False
        dark.setattr(guarded.slurm, "set_down", away)
        dark.setattr(guarded.store, "finish_intent", unwritten)
        _made(guarded, SetDown(node, "holdfast[1kjmmb0rr000]: x", None, node_dead=False))
        guarded.act()
    guarded.machine(node).powered = True
    now_s[0] += 0 if how == "fenced off" else 1000
    assert [i.state for i in guarded.store.intents()] == [IntentState.STARTED]
    guarded.act()
    assert [i.outcome for i in guarded.store.intents()] == ["the node answers a connection: it lives"]
    assert not guarded.slurm.node(node).down
    assert guarded.slurm.job(job.job_id).state == "RUNNING"


def test_each_machine_that_is_bought_counts(guarded: Site) -> None:
    """Otherwise one node's name could buy machines without end."""
    tokens = [f"t-{n}" for n in range(20)] + [f"{'x' * 300}-{n}" for n in range(20)]
    states = [intent.state for intent in _planned(guarded, *(Launch("n1", token) for token in tokens))]
    assert states.count(IntentState.DONE) == 12
    assert "machines launched" in guarded.actor.held_back


def test_a_long_name_makes_the_actor_forget_nothing(tmp_path: Path) -> None:
    mine = limits(tmp_path)
    for number in range(LEAST_OUT - 1):
        mine.begin(DRAIN, f"n{number}")
    mine.begin(DRAIN, "x" * (2 << 20))
    assert limits(tmp_path).full(Drain("n99", "r")) is not None


def test_a_node_of_which_slurm_says_nothing_is_not_set_down(guarded: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not right after the outage of slurmctld: the node would not have been asked."""
    job = guarded.slurm.submit(2, comment="holdfast")
    plain, asked = guarded.slurm.node, list[str]()

    def once_away(name: str) -> object:
        asked.append(name)
        if len(asked) == 1:
            raise Unavailable("slurmctld")
        return plain(name)

    monkeypatch.setattr(guarded.slurm, "node", once_away)
    (down,) = _planned(guarded, SetDown(job.nodes[0], "holdfast[1kjmmb0rr000]: x", None, node_dead=False))
    assert (down.state, down.retryable) == (IntentState.FAILED, True)
    assert "the last check of the node failed" in down.outcome
    assert guarded.slurm.job(job.job_id).state == "RUNNING"


@pytest.mark.parametrize("name", ["ALL", "n[1-8]"])
def test_what_is_no_node_becomes_no_spare(site: Site, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm takes it for all nodes, and the limits for one."""
    asked = list[object]()
    monkeypatch.setattr(site.slurm, "create_reservation", lambda *words, **_: asked.append(words))
    (done,) = _planned(site, AdoptSpare(name))
    assert (done.state, asked) == (IntentState.FAILED, [])
