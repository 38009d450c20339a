"""What the actor does at most, whatever the store says: nobody but root can change it, and a restart forgets nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.controller.actor_limits import LEAST_OUT, ActorLimits, Limited, limited, most
from holdfast.model.action import (
    Action,
    Drain,
    HoldJob,
    Intent,
    IntentState,
    Launch,
    Notify,
    Reboot,
    Requeue,
    SetDown,
    StopStart,
    Terminate,
    Undrain,
)
from holdfast.model.book import Change
from holdfast.model.cluster import JobKey
from holdfast.model.errors import Unavailable
from holdfast.model.policy import Policy, RepairPolicy
from support.simulated.site import Site

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = JobKey("c", 7, NOW)
DRAIN = Drain("n1", "a reason")


def limits(
    folder: Path | None = None, *, policy: Policy | None = None, factor: float = 3.0, nodes: int = 8
) -> ActorLimits:
    return ActorLimits(folder, policy or Policy(), factor, lambda: NOW, lambda: nodes)


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        (DRAIN, Limited.OUT),
        (SetDown("n1", "a reason"), Limited.OUT),
        (Requeue(JOB, 0), Limited.STOPPED),
        (HoldJob(JOB, "why"), Limited.STOPPED),
        (Terminate("i-1", "n1"), Limited.ENDED),
        (Reboot("n1", "i-1", "b", "t", via_slurm=False), Limited.CYCLED),
        (StopStart("n1", "i-1", "b", "t"), Limited.CYCLED),
        (Launch("n1", "t"), Limited.BOUGHT),
        (Notify("s", "b"), None),
        (Undrain("n1", "mark"), None),
    ],
)
def test_what_takes_something_from_somebody_is_counted(action: Action, kind: Limited | None) -> None:
    assert limited(action) is kind


@pytest.mark.parametrize(("kind", "nodes", "hour"), [
    (Limited.OUT, 0, LEAST_OUT), (Limited.OUT, 4096, 243), (Limited.STOPPED, 0, 48), (Limited.ENDED, 0, 12), (Limited.CYCLED, 0, 12),
    (Limited.BOUGHT, 0, 12),
])  # fmt: skip
def test_the_limits_are_a_multiple_of_brakes_and_budgets(kind: Limited, nodes: int, hour: int) -> None:
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
        mine.take(DRAIN, f"n{number}")
    assert asked == [1], "once an hour"
    mine = replace(limits(), nodes=_away)
    for number in range(LEAST_OUT):
        mine.take(DRAIN, f"n{number}")
    assert mine.full(Drain("n99", "r")) is not None, "not known is small"


def _away() -> int:
    raise Unavailable("slurmctld")


def test_the_same_node_counts_once_and_the_oldest_leaves(tmp_path: Path) -> None:
    at = [NOW]
    mine = ActorLimits(tmp_path, Policy(), 3.0, lambda: at[0], lambda: 8)
    for _ in range(3):
        for number in range(LEAST_OUT):
            assert mine.full(Drain(f"n{number}", "r")) is None
            mine.take(DRAIN, f"n{number}")
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
        first.take(DRAIN, f"n{number}")
    assert limits(tmp_path).full(Drain("n99", "r")) is not None
    for broken in ("[", "[[1]]", '[["out", 1, 2]]', '[["out", "n1", 1e99]]', "[" * 100_000):
        (tmp_path / "steps.json").write_text(broken)
        assert limits(tmp_path).full(Drain("n99", "r")) is None
        assert not (tmp_path / "steps.json").exists()
    assert len(list(tmp_path.glob("steps.json.unreadable-*"))) == 5


def test_a_folder_that_is_away_stops_nothing_and_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mine = limits(tmp_path / "none")
    mine.take(DRAIN, "n1")
    mine.take(DRAIN, "n2")
    assert caplog.text.count("event=actor_limits_not_written") == 1
    assert mine.full(Drain("n3", "r")) is None


def test_what_goes_by_the_providers_word_and_a_factor_of_zero_hold_nothing() -> None:
    for mine in (replace(limits(), going=lambda: frozenset({"n99"})), limits(factor=0)):
        for number in range(100):
            mine.take(DRAIN, f"n{number}")
        assert mine.full(Drain("n99", "r")) is None


@pytest.fixture
def site() -> Site:
    return Site(8)


def _planned(site: Site, *actions: Action) -> list[Intent]:
    """Somebody who writes the store plans these steps, each for an incident that is not there; the actor looks often."""
    fence = site.store.take_lease("head", site.clock.now(), 15)
    assert fence is not None
    now = site.clock.now()
    made = tuple(
        Intent(
            f"1kjmmb0rr{n:03d}/{type(a).__name__}/x/1",
            f"1kjmmb0rr{n:03d}",
            a,
            "a stranger's",
            fence.fence,
            IntentState.PLANNED,
            now,
        )
        for n, a in enumerate(actions)
    )
    site.store.commit(Change(intents=made), fence.fence)
    for _ in range(5):
        site.act()
    known = {i.key: i for i in site.store.intents()}
    return [known[intent.key] for intent in made]


def test_a_store_that_plans_everything_gets_so_many_nodes_and_a_word_to_people(site: Site, tmp_path: Path) -> None:
    """What the listener could plan if it were taken over: all nodes of the cluster, at once."""
    repair = replace(site.policy.repair, terminations_per_hour=1, terminations_per_day=1)
    site.actor.limits = replace(
        limits(tmp_path, policy=replace(site.policy, repair=repair), factor=1.0), now=site.clock.now
    )
    for number in range(LEAST_OUT - 2):
        site.actor.limits.take(DRAIN, f"before-{number}")
    drains = (Drain(f"n{n}", f"holdfast[1kjmmb0rr00{n - 1}]: a stranger's") for n in range(1, 6))
    states = [intent.state for intent in _planned(site, *drains)]
    assert states.count(IntentState.DONE) == 2
    assert states.count(IntentState.PLANNED) == 3
    assert "the actor's own limit holds back further steps" in site.actor.held_back
    rows = json.loads((tmp_path / "steps.json").read_text())
    assert {row[1] for row in rows if row[1][0] == "n"} == {
        n.name for n in site.slurm.all_nodes().values() if n.draining
    }


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
    """No budget that an operator extends, and no brake that he releases, is in them: they read the configuration."""
    small = replace(Policy(), repair=RepairPolicy(terminations_per_hour=0, terminations_per_day=0))
    mine = limits(policy=small)
    assert mine.full(Terminate("i-1", "n1")) is not None, "a budget of none is a limit of none"
