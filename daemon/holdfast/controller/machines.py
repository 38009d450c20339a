"""Steps at the provider: launch, replace, reboot, end a machine. Each finds what it has done already, and looks before it lets go."""

from __future__ import annotations

from holdfast.controller.outside import Outside, Refused, done, prove_free
from holdfast.model.action import CheckInstance, Launch, Reboot, Replace, ReportFault, StopStart, Terminate
from holdfast.model.errors import NotFound, OutsideError, Unavailable
from holdfast.model.machine import Instance
from holdfast.ports import Outcome

GONE = frozenset({"shutting-down", "terminated"})
POWER_OFF_PATIENCE_S = 30.0
"""How long one attempt waits for a terminated machine to be off."""


def launch(action: Launch, incident: str, outside: Outside) -> Outcome:
    found = outside.provider.find_launched(action.token)
    made = found or outside.provider.launch(action.node, incident=incident, token=action.token)
    return done(f"{'found' if found else 'launched'} {made.instance_id}", instance_id=made.instance_id)


def terminate(action: Terminate, incident: str, outside: Outside) -> Outcome:
    serving = outside.provider.instance_of(action.node)
    shown = _prove_its_machine(action, outside)
    ours = serving is None and shown is not None and shown.incident == incident  # launched on trial, never served
    if not action.fence and not ours and (serving is None or serving.instance_id == action.instance_id):
        prove_free(action.node, outside)
    outside.provider.terminate(action.instance_id)
    state = _wait_until_off(action.instance_id, outside)
    if action.fence and state != "terminated":
        raise Unavailable(f"{action.instance_id} is {state}, not confirmed off")
    return done(f"{action.instance_id} is {state}", state=state)


def _prove_its_machine(action: Terminate, outside: Outside) -> Instance | None:
    """Which machine a node has, its own agent says; before one is ended, the provider must say the same. None: it is gone."""
    try:
        shown = outside.provider.instance(action.instance_id)
    except NotFound:
        return None
    if shown.node != action.node and shown.state not in GONE:
        whose = f"{shown.node}'s" if shown.node else "nobody's"
        raise Refused(f"{action.instance_id} is {whose} machine, not {action.node}'s: left alone")
    return shown


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


def replace(action: Replace, incident: str, outside: Outside) -> Outcome:
    """Exchange the machine in place. One that is going, or gone, is found so by the provider and not ordered again."""
    prove_free(action.node, outside)
    made = outside.provider.replace(action.node, action.instance_id, incident=incident, token=action.token)
    same = made.instance_id == action.instance_id
    text = (
        f"{action.instance_id} is being replaced"
        if same
        else f"{made.instance_id} takes the place of {action.instance_id}"
    )
    launched = made.launched_at.isoformat() if made.launched_at is not None and not same else ""
    return done(f"{text} ({made.state})", instance_id=made.instance_id, state=made.state, launched_at=launched)


def reboot(action: Reboot, incident: str, outside: Outside) -> Outcome:
    """Not repeated while Slurm has the order; the decision looks at the boot that is heard before it asks again."""
    prove_free(action.node, outside)
    if action.via_slurm:
        node = outside.scheduler.node(action.node)
        if not node.rebooting:
            outside.scheduler.reboot(action.node, node.reason)  # Slurm puts it in the place of the old one
        return done(f"Slurm reboots {action.node}")
    outside.provider.reboot(action.instance_id, incident=incident, token=action.token)
    return done(f"{action.instance_id} is being rebooted")


def stop_start(action: StopStart, incident: str, outside: Outside) -> Outcome:
    prove_free(action.node, outside)
    shown = outside.provider.stop_start(action.instance_id, incident=incident, token=action.token)
    return done(f"{action.instance_id} was stopped and started, it is {shown.state}", state=shown.state)


def report_fault(action: ReportFault, outside: Outside) -> Outcome:
    """A courtesy: what comes of it is nobody's trouble."""
    try:
        outside.provider.report_fault(action.instance_id, since=action.since, text=action.text)
    except OutsideError as error:
        return done(f"the provider took no word of it: {error}")
    return done("told the provider")


def check(action: CheckInstance, outside: Outside) -> Outcome:
    instance: Instance = outside.provider.instance(action.instance_id)
    return done(f"{instance.instance_id} is {instance.state}", state=instance.state, healthy=instance.healthy)
