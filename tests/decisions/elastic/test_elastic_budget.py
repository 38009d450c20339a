"""How often a group of an elastic job is restarted: its peers keep its state, so what counts is whether it made a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.actions.action import HoldJob
from support.simulated import Site
from support.simulated.site import POLICY

LENIENT = replace(POLICY, job=replace(POLICY.job, suspect_nodes=99, suspect_nodes_hardware=99))
FAULTS = 4


def faults(site: Site, *, comment: str, steps: bool) -> bool:
    """One fault after another under a job of one node, which reports steps in between or not. Returns whether it is held in the end."""
    job = site.slurm.submit(1, comment=comment, exclusive=True)
    site.run(3)
    for number in range(FAULTS):
        if job.state != "RUNNING":
            break
        if "elastic" not in comment:  # its library reports each save: that it made none is known
            site.registers(job)
        step = 100 * (number + 1) if steps else 7
        site.agents.state(
            site.machine(job.nodes[0]), "progress", job.job_id, job.restarts, step=step, detail={"phase": "step"}
        )
        site.run(3)
        site.fault(job.nodes[0])
        site.run(30)
    return any(isinstance(i.action, HoldJob) for i in site.store.intents())


@pytest.mark.parametrize(
    ("comment", "steps", "held"),
    [
        ("holdfast elastic=1:2", True, False),
        ("holdfast elastic=1:2", False, True),
        ("holdfast", True, True),  # its steps are lost: only a checkpoint keeps them
    ],
)
def test_a_group_that_makes_steps_is_started_again_and_again(comment: str, steps: bool, held: bool) -> None:
    site = Site(8, spares=("n6", "n7", "n8"), policy=LENIENT)
    assert faults(site, comment=comment, steps=steps) is held
