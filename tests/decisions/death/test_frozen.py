"""The freeze of death detection: which nodes count for it, and who is notified when it lasts."""

from __future__ import annotations

import pytest

from holdfast.decisions.silence.silent_nodes import freeze_reason
from support.simulated import Site

TOLD = "no dead node is found since"


def _decommission(site: Site, *names: str) -> None:
    """Switched off for good, and taken out of slurm.conf."""
    for name in names:
        machine = site.machine(name)
        machine.powered = False
    site.run(5)
    for name in names:
        del site.slurm.nodes[name]


@pytest.mark.parametrize("restarted", [False, True])
def test_nodes_that_slurm_no_longer_has_do_not_freeze_the_detection_of_deaths(restarted: bool) -> None:
    site = Site(12)
    _decommission(site, "n9", "n10", "n11", "n12")
    if restarted:
        site.start_controller()
    site.run(120, step_s=5)
    assert site.loop.world is not None
    assert freeze_reason(site.loop.world) is None
    site.machine("n1").powered = False
    site.run(300, step_s=5)
    assert site.incident("n1").dead


def test_nodes_that_slurm_no_longer_has_do_not_make_the_silent_ones_few() -> None:
    """Three of eight are a third, whatever else the store remembers."""
    site = Site(40)
    names = [f"n{n}" for n in range(9, 41)]
    _decommission(site, *names)
    for name in ("n1", "n2", "n3"):
        site.machine(name).agent_up = False
    site.run(120, step_s=5)
    assert site.loop.world is not None
    assert freeze_reason(site.loop.world) is not None


def test_an_operator_is_told_once_of_a_freeze_of_more_than_five_minutes() -> None:
    site = Site(8)
    for name in ("n1", "n2", "n3", "n4"):
        site.machine(name).agent_up = False
    site.run(300, step_s=5)
    assert not [s for s in site.notices.sent if s.startswith(TOLD)], "a short one ends as it came"
    site.run(600, step_s=5)
    assert len([s for s in site.notices.sent if s.startswith(TOLD)]) == 1
    site.run(3600, step_s=30)
    assert len([s for s in site.notices.sent if s.startswith(TOLD)]) == 2, "once in each hour that it lasts"


def test_a_freeze_that_ends_in_time_is_not_told_of() -> None:
    site = Site(8)
    for name in ("n1", "n2", "n3", "n4"):
        site.machine(name).agent_up = False
    site.run(240, step_s=5)
    for name in ("n1", "n2", "n3", "n4"):
        site.machine(name).agent_up = True
    site.run(600, step_s=5)
    assert not [s for s in site.notices.sent if s.startswith(TOLD)]
