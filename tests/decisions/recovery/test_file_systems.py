"""``host.mounts`` in ``act_on`` while a file system does not answer: on many nodes one cause, one notification and no drain."""

from __future__ import annotations

import pytest

from holdfast.decisions.common.mounts import ALONE_S
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site


def hangs(site: Site, *nodes: str, check: str = "host.mounts", code: str = "hang") -> None:
    """As an agent reports it where the check may act."""
    for node in nodes:
        site.fault(
            node,
            check=check,
            code=code,
            component="/scratch",
            severity=Severity.DEGRADED,
            remedy=Remedy.REBOOT,
            sticky=True,
            gpu_uuid=None,
            gpu_minor=None,
            evidence={"source": "fs1:/export"},
        )


def well(site: Site, *nodes: str) -> None:
    for node in nodes:
        site.agents.clear(site.machine(node), check="host.mounts", component="/scratch")


def drained(site: Site) -> list[str]:
    return sorted(name for name, node in site.slurm.nodes.items() if node.drain)


@pytest.mark.parametrize("apart_s", [0, 60])
def test_many_nodes_are_one_cause_that_is_told_once(apart_s: int) -> None:
    """They were drained one after another up to the brake."""
    site = Site(12)
    site.run(5)
    for node in ("n1", "n2", "n3", "n4", "n5"):
        hangs(site, node)
        site.run(apart_s, step_s=5)
    site.run(3000, step_s=10)
    assert drained(site) == []
    (subject,) = site.notices.sent
    assert subject.startswith("fs1:/export does not answer on")
    assert site.book.brakes == {}


def test_a_node_that_is_alone_with_it_is_drained_after_a_while() -> None:
    site = Site(6)
    site.run(5)
    hangs(site, "n1")
    site.run(int(ALONE_S) - 20, step_s=5)
    assert drained(site) == []
    site.run(60, step_s=5)
    assert drained(site) == ["n1"]


def test_what_follows_from_it_on_the_same_nodes_is_no_fault_of_theirs() -> None:
    site = Site(6)
    site.run(5)
    hangs(site, "n1", "n2")
    site.run(10)
    hangs(site, "n1", check="host.dstate", code="stuck")
    site.run(900, step_s=10)
    assert drained(site) == []


def test_the_node_on_which_it_stays_when_the_others_are_well_is_drained() -> None:
    site = Site(6)
    site.run(5)
    hangs(site, "n1", "n2", "n3")
    site.run(900, step_s=10)
    assert drained(site) == []
    well(site, "n1", "n2")
    site.run(60, step_s=5)
    assert drained(site) == ["n3"]
