"""A finding about a machine, boot or GPU that no longer serves its node is no reason for an action on what serves now."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.model.book import NodeRecord
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.machine import ProviderCan
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site
from support.simulated.provider import FULL, IN_PLACE

_S = IncidentState


def other_machine(site: Site) -> None:
    site.provider.exchange("n1")


def other_board(site: Site) -> None:
    """The same machine with other GPUs; its agent reports another fault."""
    machine = site.machine("n1")
    site.provider.power_cycle("n1")
    machine.gpu_prefix, machine.all_ok = "new-board", False


def installed_again(site: Site) -> None:
    """The same machine and GPUs; its agent has lost its findings, and reports that all is OK."""
    site.provider.power_cycle("n1")


SWAPS = pytest.mark.parametrize("swap", [other_machine, other_board, installed_again])
CAN = pytest.mark.parametrize("can", [IN_PLACE, FULL], ids=["in place", "launch first"])
Swap = Callable[[Site], None]


def in_a_window(can: ProviderCan, swap: Swap, step_s: float = 5) -> Site:
    """A state is found in a window of an hour, during which n1's machine is replaced from outside."""
    site = Site(4, can=can)
    site.run(5)
    site.slurm.operator_reserves("vendor", "n1", hours=1)
    site.run(2)
    site.fault("n1", check="gpu.lost", code="lost", sticky=True)
    site.run(600, step_s=step_s)
    swap(site)
    site.run(2940, step_s=step_s)
    assert site.slurm.calls == []
    return site


@SWAPS
@CAN
def test_after_a_window_the_new_machine_is_left_alone(can: ProviderCan, swap: Swap) -> None:
    site = in_a_window(can, swap)
    by_itself = dict(site.provider.tokens)
    site.run(5400, step_s=5)
    assert site.slurm.calls == [], site.story()
    assert site.provider.tokens == by_itself
    assert site.incident("n1").state is _S.CLOSED


@SWAPS
def test_no_job_is_stopped_on_the_new_machine(swap: Swap) -> None:
    site = in_a_window(IN_PLACE, swap)
    site.run(75)
    job = site.slurm.submit(4, comment="holdfast", exclusive=True)
    assert "n1" in job.nodes
    site.run(600, step_s=5)
    assert (job.restarts, site.slurm.calls) == (0, [])


@SWAPS
def test_outside_of_a_window_as_well(swap: Swap) -> None:
    """A pause holds the drain while the machine is swapped."""
    site = Site(4)
    site.operate("pause")
    site.fault("n1", check="gpu.lost", code="lost", sticky=True)
    site.run(10)
    swap(site)
    site.run(100)
    site.operate("resume")
    site.run(100)
    assert ("drain", "n1") not in site.slurm.calls, site.story()
    assert site.incident("n1").state is _S.CLOSED


@pytest.mark.parametrize("all_ok", [True, False])
def test_an_event_outlives_a_reboot_until_all_checks_pass(all_ok: bool) -> None:
    site = Site(4)
    site.operate("pause")
    site.fault("n1")
    site.run(10)
    installed_again(site)
    site.machine("n1").all_ok = all_ok
    site.run(100)
    site.operate("resume")
    site.run(100)
    assert (("drain", "n1") in site.slurm.calls) is not all_ok, site.story()


def test_a_reboot_alone_keeps_a_state_until_all_checks_have_answered() -> None:
    site = in_a_window(IN_PLACE, lambda site: None)
    site.machine("n1").all_ok = False
    site.provider.power_cycle("n1")
    site.run(300)
    assert site.slurm.calls == [], "its checks may not have run yet"
    site.run(900, step_s=5)
    assert ("drain", "n1") in site.slurm.calls, site.story()


def test_a_state_that_is_still_so_is_acted_upon() -> None:
    site = in_a_window(IN_PLACE, lambda site: None)
    site.run(300)
    assert ("drain", "n1") in site.slurm.calls, site.story()


def test_while_the_machine_before_reports_too_the_finding_holds() -> None:
    site = in_a_window(IN_PLACE, other_machine)
    site.machines[site.incident("n1").instance_id].powered = True
    site.run(1200, step_s=5)
    assert ("drain", "n1") in site.slurm.calls, site.story()


@pytest.mark.parametrize(
    ("after", "exchanged"),
    [
        ({"C", "D"}, {"A", "B"}),
        ({"C"}, {"A", "B"}),
        ({"A", "C"}, {"B"}),
        ({"A"}, set()),
        (set(), set()),
        ({"A", "B", "C"}, set()),
    ],
    ids=["a board", "a smaller board", "one of two", "one is lost", "all are lost", "one more"],
)
def test_gpus_are_exchanged_where_others_came_in_their_place(after: set[str], exchanged: set[str]) -> None:
    record = NodeRecord("n1", "i-1", "b-1", frozenset({"A", "B"}))
    assert record.with_gpus("b-2", frozenset(after)).exchanged_gpus == exchanged
    back = record.with_gpus("b-2", frozenset(after)).with_gpus("b-3", frozenset({"A", "B"}))
    assert not back.exchanged_gpus & {"A", "B"}


def test_a_new_boot_does_not_forget_the_window() -> None:
    site = in_a_window(IN_PLACE, installed_again)
    site.run(5)
    ended = site.book.nodes["n1"].hands_ended_at
    assert ended is None
    site.run(70)
    ended = site.book.nodes["n1"].hands_ended_at
    site.provider.power_cycle("n1")
    site.run(100)
    assert site.book.nodes["n1"].hands_ended_at == ended is not None


def test_a_machine_on_trial_is_not_taken_for_one_that_serves() -> None:
    """A watched incident of the same node is not closed by the agent of a machine that is launched for another incident."""
    site = Site(4, can=FULL)
    site.fault(
        "n1", check="disk.wear", code="wear", severity=Severity.WARNING, remedy=Remedy.NONE, sticky=True, minor=None
    )
    site.run(700, step_s=5)
    watched = site.incident("n1").id
    site.machine("n1").powered = False
    while not site.provider.candidates():
        site.run(1)
    site.run(60)
    assert {i.id: i.state for i in site.store.incidents(node="n1")}[watched] is _S.WATCHING, site.story()
