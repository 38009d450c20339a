"""The head node's wall clock is set back by an hour: what Slurm wrote before lies in the future. Found by the soak."""

from __future__ import annotations

from holdfast.model.actions.action import DropHold, IntentState
from holdfast.model.machine import NoticeKind
from support.simulated import Site
from support.simulated.anything import Anything

HOUR_S = 3600.0


def test_slurmds_start_of_before_says_nothing_of_a_silence_after_it() -> None:
    """slurmd's start, an hour ahead by the new clock, was a sign of life in each turn: the loop never settled."""
    drawn = Anything()
    drawn.begin(slurm_reboots=True, quick=True, provider="nothing", spares=("n5", "n6"))
    drawn.is_cut_off(name="n4")
    drawn.the_clock_is_set(step_s=-HOUR_S - 0.5)
    drawn.management_network_is_cut(names=["n1", "n3"], seconds=40)
    drawn.operator_resumes(name="n4")
    drawn.promises()
    drawn.teardown()


def test_a_view_of_before_is_no_sign_of_life() -> None:
    """Slurm does not answer, and its last view is of an hour ahead by the new clock."""
    drawn = Anything()
    drawn.begin(slurm_reboots=False, quick=True, provider="launches beside", spares=("n5", "n6"))  # word: a test's key
    drawn.many_fail(apart_s=1, names=["n6", "n5", "n1", "n2", "n3", "n4"])
    drawn.slurm_away(away=True)
    drawn.provider_announces(in_s=20, kind=NoticeKind.STOP, name="n3")
    drawn.what_was_announced_happens()
    drawn.the_clock_is_set(step_s=-HOUR_S - 0.5)
    drawn.promises()
    drawn.teardown()


def test_a_hold_lasts_as_long_as_it_was_made_for() -> None:
    """Slurm would keep the nodes for the job until its own time of the end, an hour more."""
    site = Site(nodes=4)
    site.provider.capacity = False
    held = site.slurm.submit(3, comment="holdfast", exclusive=True)
    site.slurm.submit(1, comment="", exclusive=True)
    site.run(5)
    site.fault(held.nodes[0])
    site.run(20)
    assert site.slurm.reservations
    site.clock.step(-HOUR_S)
    site.run(500)
    assert site.slurm.reservations
    site.run(300)
    assert not site.slurm.reservations
    dropped = [i for i in site.store.intents() if isinstance(i.action, DropHold)]
    assert [(i.state, i.reason) for i in dropped] == [(IntentState.DONE, "its time is over")]
