"""Steps at the provider: launch, replace, reboot, terminate a machine. Each detects what it has already done, and each except a launch
first proves that the machine is the node's (:mod:`holdfast.decisions.machines.machine_proof`)."""

from __future__ import annotations

from holdfast.actor.adapters import NotProven, NotYetProven, Outside, done, prove_free, prove_not_taken
from holdfast.decisions.machines.machine_proof import (
    GONE,
    MachineFacts,
    OwnershipDoubt,
    ProvenMachine,
    UnprovenMachine,
    prove_exchangeable,
    prove_expendable,
    prove_not_exchanged,
    prove_serving,
    prove_successor,
)
from holdfast.model.actions.action import (
    Assign,
    CheckInstance,
    Launch,
    Reboot,
    Replace,
    ReportFault,
    StopStart,
    Terminate,
)
from holdfast.model.errors import NotFound, OutsideError, Rejected, Unavailable
from holdfast.model.ids import has_slurms_words, without_slurms_words
from holdfast.model.machine import Instance
from holdfast.model.slurm.cluster import Node
from holdfast.ports import IntentOutcome

POWER_OFF_PATIENCE_S = 30.0
"""How long one attempt waits for a terminated machine to be off."""


def launch(action: Launch, incident: str, outside: Outside) -> IntentOutcome:
    found = outside.provider.find_launched(action.token)
    if found is None and (doubt := prove_not_exchanged(action, outside.provider.instance_of(action.node))) is not None:
        raise NotYetProven(doubt)
    made = found or outside.provider.launch(action.node, incident=incident, token=action.token)
    return done(f"{'found' if found else 'launched'} {made.instance_id}", instance_id=made.instance_id)


def terminate(action: Terminate, incident: str, outside: Outside) -> IntentOutcome:
    look = _look(action, outside)
    machine = _proven(prove_expendable(look, fence=action.fence))
    ours = not machine.serves and machine.incident == incident  # launched on trial, never served
    if action.fence:
        prove_not_taken(action.node, outside)
    if not action.fence and (machine.serves or look.serving is None):
        _prove_free(action.node, outside, ours=ours)
    outside.provider.terminate(machine.instance_id)
    state = _wait_until_off(machine.instance_id, outside)
    if action.fence and state != "terminated":
        raise Unavailable(f"{machine.instance_id} is {state}, not confirmed off")
    return done(f"{machine.instance_id} is {state}", state=state)


def _prove_free(node: str, outside: Outside, *, ours: bool) -> None:
    """Prove that no job runs on the node: the provider shows no other machine for it, so jobs may run on the one to be terminated.
    ``ours``: it was launched on trial, so it is also free where the node is not in Slurm."""
    try:
        prove_free(node, outside)
    except NotFound:
        if not ours:
            raise


def assign(action: Assign, incident: str, outside: Outside) -> IntentOutcome:
    machine = _proven(prove_successor(_look(action, outside), incident))
    outside.provider.assign(machine.instance_id, machine.node)
    return done(f"{machine.instance_id} serves {machine.node}")


def _look(action: Terminate | Assign | Replace | Reboot | StopStart | ReportFault, outside: Outside) -> MachineFacts:
    """Read the provider (by node and by id), Slurm and the store right before the step. Raises as they do."""
    node, machine = action.node, action.instance_id
    serving = outside.provider.instance_of(node)
    shown: Instance | None = None
    if machine:
        try:
            shown = outside.provider.instance(machine)
        except NotFound:
            shown = None
    claims = outside.claims(machine) - {node}
    known = frozenset(other for other in claims if in_slurm(other, outside))
    return MachineFacts(node, machine, shown, serving, _addresses(node, shown, outside), known)


def in_slurm(node: str, outside: Outside) -> bool:
    """Whether Slurm knows the node: one that was renamed or decommissioned claims no machine."""
    try:
        outside.scheduler.node(node)
    except NotFound:
        return False
    return True


def _addresses(node: str, shown: Instance | None, outside: Outside) -> dict[str, str]:
    """Slurm's address of the node; those of all nodes only where the provider shows another one."""
    if shown is None or not shown.address or shown.state in GONE:
        return {}
    own = outside.scheduler.node(node).address
    if own == shown.address:
        return {node: own}
    return {name: each.address for name, each in outside.scheduler.all_nodes().items()}


def _proven(verdict: ProvenMachine | UnprovenMachine) -> ProvenMachine:
    """The proven machine. Raises Unavailable where the provider's record may catch up, Rejected for a machine that is gone (the ladder
    continues), NotProven."""
    if isinstance(verdict, ProvenMachine):
        return verdict
    if verdict.passes:
        raise NotYetProven(verdict)
    if verdict.doubt is OwnershipDoubt.UNKNOWN:
        raise Rejected(verdict.text)
    raise NotProven(verdict)


def _wait_until_off(instance_id: str, outside: Outside) -> str:
    until_s = outside.clock.monotonic_s() + POWER_OFF_PATIENCE_S
    while True:
        state = _state(instance_id, outside)
        if state == "terminated" or outside.clock.monotonic_s() >= until_s:
            return state
        outside.sleep(0.25)


def _state(instance_id: str, outside: Outside) -> str:
    try:
        return outside.provider.instance(instance_id).state
    except NotFound:
        return "terminated"


def replace(action: Replace, incident: str, outside: Outside) -> IntentOutcome:
    """Replace the machine in place. The provider detects one that is already being replaced or gone, and does not order it again."""
    machine = _proven(prove_exchangeable(_look(action, outside)))
    prove_free(action.node, outside)
    made = outside.provider.replace(machine.node, machine.instance_id, incident=incident, token=action.token)
    same = made.instance_id == action.instance_id
    text = (
        f"{action.instance_id} is being replaced"
        if same
        else f"{made.instance_id} takes the place of {action.instance_id}"
    )
    launched = made.launched_at.isoformat() if made.launched_at is not None and not same else ""
    return done(f"{text} ({made.state})", instance_id=made.instance_id, state=made.state, launched_at=launched)


def reboot(action: Reboot, incident: str, outside: Outside) -> IntentOutcome:
    """Reboot the machine. Not repeated while Slurm has the order; the decision reads the reported boot time before it asks again."""
    if action.via_slurm:
        prove_free(action.node, outside)
        node = outside.scheduler.node(action.node)
        if not node.rebooting:
            outside.scheduler.reboot(action.node, _reboot_reason(node))
        return done(f"Slurm reboots {action.node}")
    machine = _proven(prove_serving(_look(action, outside)))
    prove_free(action.node, outside)
    outside.provider.reboot(machine.instance_id, incident=incident, token=action.token)
    return done(f"{machine.instance_id} is being rebooted")


def _reboot_reason(node: Node) -> str | None:
    """Reason for the reboot; None: keep the drain's reason and time. slurmctld 22.05 replaces a reason that already has its suffix
    with the suffix alone."""
    return without_slurms_words(node.reason) if has_slurms_words(node.reason) else None


def stop_start(action: StopStart, incident: str, outside: Outside) -> IntentOutcome:
    machine = _proven(prove_serving(_look(action, outside)))
    prove_free(action.node, outside)
    shown = outside.provider.stop_start(machine.instance_id, incident=incident, token=action.token)
    return done(f"{machine.instance_id} was stopped and started, it is {shown.state}", state=shown.state)


def report_fault(action: ReportFault, outside: Outside) -> IntentOutcome:
    """Best effort; errors are ignored."""
    try:
        machine = _proven(prove_serving(_look(action, outside)))
        outside.provider.report_fault(machine.instance_id, since=action.since, text=action.text)
    except (OutsideError, NotProven) as error:
        return done(f"the provider did not accept the fault report: {error}")
    return done("reported to the provider")


def check(action: CheckInstance, outside: Outside) -> IntentOutcome:
    instance: Instance = outside.provider.instance(action.instance_id)
    if instance.node not in ("", action.node):
        text = f"{instance.instance_id} is {instance.node}'s machine: its state proves nothing about {action.node}"
        raise NotProven(UnprovenMachine(OwnershipDoubt.ELSEWHERE, text, other=instance.node))
    return done(f"{instance.instance_id} is {instance.state}", state=instance.state, healthy=instance.healthy)
