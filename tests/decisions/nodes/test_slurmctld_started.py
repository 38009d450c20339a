"""Right after a start of slurmctld, "no job there" justifies nothing that cannot be undone."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from holdfast.model.incidents.incident import IncidentState
from support.simulated import Site
from support.simulated.provider import FULL, IN_PLACE
from support.simulated.slurm import SLURMD_TIMEOUT_S

_S = IncidentState


def waiting(can: object = IN_PLACE) -> Site:
    """n1 is drained for a lost GPU, and waits for the end of a job without consent."""
    site = Site(4, can=can)  # type: ignore[arg-type]
    site.slurm.submit(1, required=("n1",), exclusive=True)
    site.fault("n1")
    site.run(60)
    assert (site.incident("n1").state, touched(site)) == (_S.CONTAINED, [])
    return site


def touched(site: Site) -> list[str]:
    """Steps on machines that were taken."""
    return [k for k in site.kinds() if k in ("Replace", "Terminate", "Reboot", "StopStart", "Launch")]


def keep_the_drain(site: Site) -> None:
    """slurmctld has lost only the jobs (an old StateSaveLocation)."""
    node = site.slurm.nodes["n1"]
    drain = (node.drain, node.reason, node.user, node.time)
    site.slurm.start_cold()
    node.drain, node.reason, node.user, node.time = drain


@pytest.mark.parametrize("can", [IN_PLACE, FULL], ids=["in place", "launch first"])
def test_a_machine_is_not_touched_before_its_slurmd_has_registered(can: object) -> None:
    site = waiting(can)
    site.slurm.registers_after_s = 90
    keep_the_drain(site)
    site.run(85)
    assert touched(site) == [], site.story()
    assert "has not registered" in site.incident("n1").note
    site.run(900, step_s=5)
    assert touched(site), site.story()


def test_one_that_never_registers_is_waited_for_as_long_as_slurm_waits() -> None:
    site = waiting()
    site.slurm.registers_after_s = 10_000
    keep_the_drain(site)
    site.run(SLURMD_TIMEOUT_S - 20, step_s=5)
    assert touched(site) == [], site.story()
    site.run(120, step_s=5)
    assert touched(site), site.story()


def test_the_actor_reads_it_again_right_before_the_step() -> None:
    """slurmctld starts between the decision and its step."""
    site = waiting()
    site.slurm.registers_after_s = 60
    site.slurm.finish(site.slurm.jobs[100], "COMPLETED")
    site.at_boundary = lambda intent, moment: keep_the_drain(site) if _first(intent.kind, moment, site) else None
    site.run(50)
    assert touched(site) == [], site.story()
    site.run(300)
    assert touched(site) == ["Replace"], site.story()


def _first(kind: str, moment: str, site: Site) -> bool:
    return kind == "Replace" and moment == "started" and site.slurm.nodes["n1"].registers_at_s == 0


def test_a_start_between_two_readings_is_seen() -> None:
    site = Site(2)
    site.slurm.registers_after_s = 5
    assert site.loop.observer.slurm.back_at is None
    site.slurm.restart()
    site.run(2)
    back_at = site.loop.observer.slurm.back_at
    assert isinstance(back_at, datetime)
    site.run(60)
    assert site.loop.observer.slurm.back_at == back_at, "once for each start"
    assert site.clock.now() - back_at >= timedelta(seconds=59)
