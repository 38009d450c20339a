"""What a real Slurm shows of reboots: those that wait, those that it gives up, and those that it was not informed of."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from holdfast.decisions.nodes.hands_off import Hands, HandsOff, found
from holdfast.model.ids import slurm_reason
from holdfast.model.policies.policy import MaintenancePolicy
from holdfast.model.slurm.cluster import Node
from holdfast.practice.cluster.cluster import Practice
from holdfast.slurm.commands import SlurmCommands
from support.practice import eventually

pytestmark = pytest.mark.slurm
REASON = slurm_reason("1kjmmb3pg001", "gpu.xid 79")
WITHIN_S = 60.0


@pytest.fixture
def site(make_practice: Callable[..., Practice]) -> tuple[Practice, SlurmCommands]:
    """ResumeTimeout as short as a test can bear; ReturnToService=1."""
    practice = make_practice(nodes=2, gpus=1, extra_slurm_conf="ResumeTimeout=5\n")
    practice.up()
    return practice, SlurmCommands(env=practice.command_env())


def _hands(node: Node) -> HandsOff | None:
    now = datetime.now(UTC)
    return found(node, (), now, MaintenancePolicy(), keeping=(), ours=False, drained_by_others=False)


def test_a_reboot_that_waits_keeps_its_order_through_a_drain(site: tuple[Practice, SlurmCommands]) -> None:
    practice, slurm = site
    job_id = practice.sbatch("exec sleep 300", "-N1", "-w", "n1")
    eventually(lambda: slurm.job(job_id).state == "RUNNING", within_s=WITHIN_S)
    practice.command("scontrol", "reboot", "n1")
    eventually(lambda: "REBOOT_REQUESTED" in slurm.node("n1").flags, within_s=WITHIN_S)
    assert _hands(slurm.node("n1")) == HandsOff(Hands.REBOOT_WAITS)
    slurm.drain("n1", REASON)
    drained = slurm.node("n1")
    assert (drained.draining, drained.reason, "REBOOT_REQUESTED" in drained.flags) == (True, REASON, True)
    practice.command("scancel", str(job_id))
    eventually(
        lambda: slurm.node("n1").reboot_issued or "reboot" in slurm.node("n1").reason, within_s=WITHIN_S, every_s=0.05
    )


def test_a_reboot_that_slurm_gives_up_is_its_own_word(site: tuple[Practice, SlurmCommands]) -> None:
    practice, slurm = site
    practice.machine("n2").power_off()
    practice.command("scontrol", "reboot", "n2")
    eventually(lambda: slurm.node("n2").reboot_timed_out, within_s=WITHIN_S)
    node = slurm.node("n2")
    assert node.reason_user == slurm.config()["SlurmUser"].partition("(")[0]
    assert (node.reason_time is not None, node.draining, node.down_by_slurm) == (True, False, False)


def test_a_reboot_that_no_one_told_slurm_of_is_its_own_word_and_stays(site: tuple[Practice, SlurmCommands]) -> None:
    practice, slurm = site
    machine = practice.machine("n1")
    machine.power_off()
    time.sleep(2.5)  # Slurm compares whole seconds: the boot must be later than the last answer before it
    machine.reboot()
    eventually(lambda: slurm.node("n1").rebooted_unexpectedly and slurm.node("n1").responding, within_s=WITHIN_S)
    node = slurm.node("n1")
    assert node.reason_user == slurm.config()["SlurmUser"].partition("(")[0]
    assert node.reason_time is not None
