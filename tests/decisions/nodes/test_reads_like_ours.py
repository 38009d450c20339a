"""A drain whose reason reads like one of Holdfast's is an operator's unless it is the one that Holdfast has recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.model.actions.action import Intent, IntentState
from holdfast.model.incidents.incident import IncidentState
from holdfast_checks.result import Remedy
from support.simulated import Site
from support.simulated.provider import IN_PLACE

_S = IncidentState
_MACHINES = {"i-0001", "i-0002"}


def _takes(site: Site, incident: str, name: str = "n1") -> None:
    site.slurm.operator_drains(name, f"holdfast[{incident}]: bob works on this machine, hands off", user="root")


def _is_bobs(site: Site, name: str = "n1") -> bool:
    node = site.slurm.nodes[name]
    return node.drain and "bob" in node.reason


def _untouched(site: Site) -> None:
    assert _is_bobs(site)
    assert site.slurm.undrained == []
    assert site.provider.live() == _MACHINES
    assert not _MACHINES & set(site.provider.terminated)
    assert site.incident("n1").state is _S.AWAITING_HUMAN
    assert "root" in site.incident("n1").note


def test_a_drain_over_ours_in_our_words_ends_the_repair_before_it_begins() -> None:
    site = Site(2)
    job = site.slurm.submit(1, exclusive=True)
    site.fault("n1")
    site.run(10)
    assert site.incident("n1").state is _S.CONTAINED
    _takes(site, site.incident("n1").id)
    site.slurm.finish(job, "COMPLETED")
    site.run(900, step_s=5)
    _untouched(site)
    assert site.provider.tokens == {}


def test_a_drain_that_names_a_closed_incident_is_left_alone_when_a_fault_comes() -> None:
    site = Site(2)
    site.fault("n1")
    site.run(400, step_s=5)
    first = site.incident("n1")
    assert first.state is _S.CLOSED
    _takes(site, first.id)
    before, ended = site.provider.live(), dict(site.provider.terminated)
    site.fault("n1", code="63")
    site.run(900, step_s=5)
    assert _is_bobs(site)
    assert (site.provider.live(), dict(site.provider.terminated)) == (before, ended)
    assert (site.incident("n1").id != first.id, site.incident("n1").state) == (True, _S.AWAITING_HUMAN)


def test_a_drain_with_an_invented_incident_is_left_alone_when_a_fault_comes() -> None:
    site = Site(2)
    _takes(site, "1kjmmb3pg001")
    site.run(5)
    site.operate("resume")
    site.fault("n1")
    site.run(900, step_s=5)
    assert _is_bobs(site)
    assert (site.provider.live(), site.provider.tokens) == (_MACHINES, {})


@pytest.mark.parametrize("kind", ["Terminate", "Drain"])
@pytest.mark.parametrize("moment", ["planned", "started"])
def test_a_drain_in_our_words_right_before_a_step_stops_it(kind: str, moment: str) -> None:
    site = Site(2)
    site.at_boundary = _when(kind, moment, lambda: _takes(site, site.incident("n1").id))
    site.fault("n1")
    site.run(900, step_s=5)
    _untouched(site)


@pytest.mark.parametrize(
    ("remedy", "kind"), [(Remedy.REBOOT, "Reboot"), (Remedy.STOP_START, "StopStart"), (Remedy.REPLACE, "Replace")]
)
def test_no_machine_step_is_done_under_a_drain_that_only_reads_like_ours(remedy: Remedy, kind: str) -> None:
    site = Site(2, can=IN_PLACE)
    site.at_boundary = _when(kind, "started", lambda: _takes(site, site.incident("n1").id))
    site.fault("n1", remedy=remedy)
    site.run(900, step_s=5)
    (step,) = [i for i in site.store.intents() if i.kind == kind]
    assert step.state is IntentState.REFUSED
    _untouched(site)


def _when(kind: str, moment: str, do: Callable[[], object]) -> Callable[[Intent, str], None]:
    seen: list[str] = []

    def boundary(intent: Intent, now: str) -> None:
        if (intent.kind, now) == (kind, moment) and not seen:
            seen.append(intent.key)
            do()

    return boundary


def test_the_machine_of_a_dead_node_is_not_fenced_under_an_operators_drain() -> None:
    site = Site(4)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(1)
    machine = site.machine("n1")
    site.at_boundary = _when("Terminate", "started", lambda: site.slurm.operator_drains("n1"))
    machine.cut_off, machine.unreachable_by = True, set(site.slurm.nodes)
    site.run(120)
    assert (job.state, site.incident("n1").dead) == ("RUNNING", True)
    assert dict(site.provider.terminated) == {}


@pytest.mark.parametrize("boundary", ["started", "acted"])
def test_our_own_drain_is_ours_whenever_the_actor_dies(boundary: str) -> None:
    site = Site(2)
    site.kill_at = ("Drain", boundary)
    site.fault("n1")
    site.run(600, step_s=5)
    assert site.killed == 1
    assert site.incident("n1").state is _S.CLOSED
    assert sum(site.provider.terminated.values()) == 1


def test_a_view_from_before_a_step_takes_nothing_from_us() -> None:
    """Slurm's answer may be older than the store's record of it: the mark is newer than the drain, or gone before it."""
    site = Site(2)
    plain, views = site.slurm.view, []

    def late() -> object:
        views.append(plain())
        return views[-2] if len(views) > 1 else views[-1]

    site.slurm.view = late  # type: ignore[method-assign, assignment]
    site.fault("n1")
    site.run(600)
    assert site.incident("n1").state is _S.CLOSED
    assert sum(site.provider.terminated.values()) == 1
