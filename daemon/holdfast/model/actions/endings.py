"""List of all ways in which Holdfast can end, stop, reboot or take away a machine, a node or its processes, with the proof required for
each.

One list: ``docs/safety.md`` shows it (``docs/generate.py``), ``tests/decisions/machines/test_endings.py`` holds it to the code (every
action, order and verb is in it or is named as harmless) and walks it with a lying agent. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EndingProof(StrEnum):
    """Proof required right before the step, and who gives it. Without it nothing is done."""

    TOKEN = "token"  # noqa: S105 - a proof, no secret
    """The agent's token is bound to its node: it reports, and gets orders, as that node alone."""
    BOOT = "boot"
    """The order names node, machine and boot; an agent refuses one that is not its own."""
    ON_NODE = "on_node"
    """The agent looks on the node itself, and asks Slurm: no job holds it, or the run that the order names is over."""
    FREE = "free"
    """Slurm, asked now, shows the node out of service by Holdfast and without a job."""
    DRAINED = "drained"
    """Slurm, asked now, shows no other hand on the node: a foreign drain stays."""
    NAMED = "named"
    """Slurm, asked now, shows the drain that the order names: its reason, user and time; another drain stays."""
    PROVIDER = "provider"
    """The provider, asked now by id and by node, shows this machine as this node's."""
    LAUNCHED = "launched"
    """The provider's record shows the machine as launched for this node, and no other live machine has the node's name."""
    UNCLAIMED = "unclaimed"
    """No other node claims the machine: by its agent, by the store's record, by an open incident. An agent's report alone is no claim on
    what
    another node has by the record and reports itself, and the provider names as that node's."""
    ADDRESS = "address"
    """Slurm reaches no other node at its address."""
    DEAD = "dead"
    """Two witnesses of different kinds found the node dead, and its agent has not reported since."""
    OFF = "off"
    """The step counts as a fence only once the provider shows that very machine terminated."""
    RUN = "run"
    """The job, its run and its restarts are read from Slurm again, and are those that were decided on."""


@dataclass(frozen=True, slots=True)
class Ending:
    """One way to end something, and what proves that it hits the right one."""

    step: str
    """Name of the action's class, with the order's verb after a dot."""
    carried_out: str
    """Who carries it out and with what, for people."""
    proofs: tuple[EndingProof, ...]


_MACHINE = (EndingProof.PROVIDER, EndingProof.UNCLAIMED, EndingProof.ADDRESS)

ENDINGS = (
    Ending("Terminate", "provider: terminate", (*_MACHINE, EndingProof.FREE, EndingProof.OFF)),
    Ending(
        "Replace",
        "provider: exchange in place (ParallelCluster: `power_down` of the node)",
        (EndingProof.FREE, *_MACHINE),
    ),
    Ending(
        "Assign",
        "provider: hand the node's name over",
        (EndingProof.LAUNCHED, EndingProof.UNCLAIMED, EndingProof.ADDRESS),
    ),
    Ending("Reboot", "provider: reboot", (EndingProof.FREE, *_MACHINE)),
    Ending(
        "Reboot.via_slurm",
        "`scontrol reboot`: slurmd runs RebootProgram",
        (EndingProof.FREE, EndingProof.UNCLAIMED, EndingProof.ADDRESS),
    ),
    Ending("StopStart", "provider: stop and start", (EndingProof.FREE, *_MACHINE)),
    Ending(
        "SetDown",
        "`scontrol update state=down`: Slurm ends the node's jobs",
        (EndingProof.DEAD, EndingProof.DRAINED, EndingProof.RUN),
    ),
    Ending("Drain", "`scontrol update state=drain`: jobs continue", (EndingProof.TOKEN, EndingProof.DRAINED)),
    Ending(
        "TakeOverDrain",
        "`scontrol update state=drain` in the place of the drain that an operator's order names: jobs continue",
        (EndingProof.NAMED,),
    ),
    Ending(
        "DrainForOperator",
        "`scontrol update state=drain`, as an operator ordered it: jobs continue",
        (EndingProof.DRAINED,),
    ),
    Ending("Requeue", "`scontrol requeue`: ends a run, never a machine", (EndingProof.TOKEN, EndingProof.RUN)),
    Ending("HoldJob", "`scontrol requeuehold`: ends a run, never a machine", (EndingProof.RUN,)),
    Ending(
        "SendOrder.reset_gpu",
        "agent: reset of GPUs",
        (EndingProof.TOKEN, EndingProof.BOOT, EndingProof.UNCLAIMED, EndingProof.ON_NODE),
    ),
    Ending(
        "SendOrder.end_stuck_job",
        "agent: SIGKILL to a job's leftovers",
        (EndingProof.TOKEN, EndingProof.BOOT, EndingProof.ON_NODE),
    ),
    Ending(
        "SendOrder.end_leftover_step",
        "agent: SIGKILL to a leftover step",
        (EndingProof.TOKEN, EndingProof.BOOT, EndingProof.ON_NODE),
    ),
    Ending(
        "SendOrder.ask_group_to_leave",
        "agent: a group's launcher exits with 85",
        (EndingProof.TOKEN, EndingProof.BOOT, EndingProof.RUN),
    ),
)
"""All of them. What is not here ends nothing."""

HARMLESS = frozenset({
    "Undrain", "HoldNodes", "PromoteSpare", "Release", "DelayStart", "SetThrottle", "AllowNodes", "DropHold", "TellOwner", "Launch",
    "ReportFault", "CheckInstance", "AdoptSpare", "KeepWindow", "ReleaseForOperator", "Notify",
    "SendOrder.validate", "SendOrder.collect_evidence", "SendOrder.probe_peer", "SendOrder.ask_job_to_save", "SendOrder.probe_pair",
    "SendOrder.run_checks", "SendOrder.collect_stacks", "SendOrder.survey_checkpoints", "SendOrder.read_job_output",
    "SendOrder.leave_job_note",
})  # fmt: skip
"""Actions and orders that end, stop and reboot nothing."""
ENDING_PORTS = {
    "provider": frozenset({"terminate", "replace", "assign", "reboot", "stop_start"}),
    "scheduler": frozenset({"reboot", "power_down", "set_down", "drain", "requeue", "hold"}),
}
"""Verbs of the ports by which the steps above are carried out."""
HARMLESS_PORTS = {
    "provider": frozenset({"launch", "report_fault"}),
    "scheduler": frozenset({
        "undrain", "set_instance_id", "power_up", "release", "delay_start", "set_array_throttle", "set_excluded_nodes", "set_num_nodes",
        "set_job_reservation", "tell_owner", "create_reservation", "set_reservation_nodes", "delete_reservation",
    }),
}  # fmt: skip
"""Verbs that change something and end nothing."""
