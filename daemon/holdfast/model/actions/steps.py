"""Steps and their keys: the only module that writes and parses them. Standard library only.

A step is done once for an incident: a kind of action on a target, as text ``Kind/target``. With the incident and the number of the attempt
it becomes the key of an intent, which the store never accepts twice; the key of an order is its id on the wire. So the texts below never
change: spelled in another way, a step would be done a second time (``tests/model/test_steps.py`` pins each of them).

``job`` and ``restarts`` name one run of a job. ``repair_attempt`` is the attempt of the ladder that the step belongs to. ``hour`` (since
1970) is part of a step that may follow after its incident was closed: the state snapshot holds such intents for an hour, so an attempt in
another hour is a separate step."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from holdfast.model.slurm.cluster import JobKey

_SERVING = re.compile(r"\.for-(\d+)-(\d+)\.\d+$")
_PARSED = 1 << 16
"""Keys whose parts are kept: more than one load of the store holds, so that a cycle reads each once."""


@dataclass(frozen=True, slots=True)
class Step:
    """Step done once within an incident: a kind of action, and what distinguishes it from the incident's other steps of that kind."""

    kind: str
    """Name of the action's class."""
    target: str

    @property
    def text(self) -> str:
        """``Kind/target``, the form that is stored."""
        return f"{self.kind}/{self.target}"


@dataclass(frozen=True, slots=True)
class StepKey:
    """Key of one attempt of a step, unique for ever. Attempts count from 1; attempt 0 was withheld and never done."""

    incident_id: str
    step: Step
    attempt: int

    @property
    def text(self) -> str:
        """``INCIDENT/kind/target/attempt``: the key of an intent, and of an order its id on the wire."""
        return f"{self.incident_id}/{self.step.text}/{self.attempt}"

    @staticmethod
    def parse(text: str) -> StepKey:
        """Read what :attr:`text` wrote; a target may contain slashes. Raises ValueError for a text that is no key."""
        return _parse(text)


@lru_cache(_PARSED)
def _parse(key: str) -> StepKey:
    incident_id, _, rest = key.partition("/")
    step, _, attempt = rest.rpartition("/")
    kind, _, target = step.partition("/")
    if not (incident_id and kind and attempt.isascii() and attempt.isdecimal()):
        raise ValueError(f"{key!r} is no key of a step (INCIDENT/kind/target/attempt)")
    return StepKey(incident_id, Step(kind, target), int(attempt))


def _run(job: JobKey, restarts: int) -> str:
    return f"{job.job_id}r{restarts}"


# Nodes


def drain(node: str) -> Step:
    return Step("Drain", node)


def set_down(node: str) -> Step:
    return Step("SetDown", node)


def undrain(node: str) -> Step:
    return Step("Undrain", node)


def promote_spare(node: str) -> Step:
    """A spare out of the pool, for a job."""
    return Step("PromoteSpare", node)


def release_spare(node: str, hour: int) -> Step:
    """A spare out of the pool that holds more than it should."""
    return Step("PromoteSpare", f"{node}.{hour}")


def adopt_spare(node: str) -> Step:
    """A repaired node into the pool."""
    return Step("AdoptSpare", node)


def adopt_idle_node(node: str, hour: int) -> Step:
    """An idle node into the pool that holds less than it should."""
    return Step("AdoptSpare", f"{node}.{hour}")


def adopt_cleared_node(node: str, incident_id: str) -> Step:
    """A node into the pool that was suspected in that incident of a job that hung, and was found good."""
    return Step("AdoptSpare", f"{node}.{incident_id}")


def keep_window(window_id: str, nodes: int, hour: int) -> Step:
    """The reservation of a maintenance window. ``nodes``: checksum of those that it is to hold."""
    return Step("KeepWindow", f"{window_id}.{nodes:08x}.{hour}")


def drain_for_operator(order_id: str, node: str) -> Step:
    """An operator's order to drain a node."""
    return Step("DrainForOperator", f"{node}.{order_id}")


def take_over_drain(order_id: str, node: str) -> Step:
    """Drain in the place of another operator's, as an order to replace the machine allows."""
    return Step("TakeOverDrain", f"{node}.{order_id}")


def notify_order(order_id: str) -> Step:
    """The order to replace a machine is not carried out: once for each order."""
    return Step("Notify", f"order.{order_id}")


def notify_order_waits(order_id: str) -> Step:
    """The node is drained for the order to replace its machine, and a brake or a budget holds it up: once for each order."""
    return Step("Notify", f"order_waits.{order_id}")


def release_for_operator(order_id: str, node: str) -> Step:
    """An operator's order to put a node back."""
    return Step("ReleaseForOperator", f"{node}.{order_id}")


# Jobs


def hold_nodes(job: JobKey, restarts: int) -> Step:
    return Step("HoldNodes", _run(job, restarts))


def drop_hold(reservation: str, hour: int) -> Step:
    return Step("DropHold", f"{reservation}.{hour}")


def requeue(job: JobKey, restarts: int) -> Step:
    return Step("Requeue", _run(job, restarts))


def requeue_rest(job: JobKey, restarts: int) -> Step:
    """The components of a heterogeneous job that Slurm left running when it requeued their leader."""
    return Step("Requeue", f"{_run(job, restarts)}.rest")


def release(job: JobKey, restarts: int, version: int) -> Step:
    """``version``: of the exclusions and the size that it starts with (32 bits); other ones are another step."""
    return Step("Release", f"{_run(job, restarts)}.{version:08x}")


def allow_nodes(job: JobKey, restarts: int, version: int, hour: int) -> Step:
    """``version``: of the list of nodes (32 bits)."""
    return Step("AllowNodes", f"{_run(job, restarts)}.{version:08x}.{hour}")


def hold_job(job: JobKey, restarts: int) -> Step:
    return Step("HoldJob", _run(job, restarts))


def tell_owner(job: JobKey, restarts: int) -> Step:
    return Step("TellOwner", _run(job, restarts))


def tell_owner_of_hands(job: JobKey, restarts: int) -> Step:
    """That nothing is done about a fault under the job for now: its node is in an operator's hands."""
    return Step("TellOwner", f"{_run(job, restarts)}.hands")


def tell_owner_of_recovery(job: JobKey, restarts: int, *, from_where: bool) -> Step:
    """That the job runs again; once more when it is known from where. ``restarts``: the run that was stopped."""
    return Step("TellOwner", f"{_run(job, restarts)}.{'resumed' if from_where else 'recovered'}")


def take_note_back(job: JobKey, restarts: int) -> Step:
    """The note to its owner that was proved wrong."""
    return Step("TellOwner", f"{_run(job, restarts)}.back")


# Machines


def launch(node: str, repair_attempt: int) -> Step:
    return Step("Launch", f"{node}.{repair_attempt}")


def replace(node: str, repair_attempt: int) -> Step:
    """The machine is exchanged in place."""
    return Step("Replace", f"{node}.{repair_attempt}")


def reboot(node: str, repair_attempt: int) -> Step:
    return Step("Reboot", f"{node}.{repair_attempt}")


def stop_start(node: str, repair_attempt: int) -> Step:
    return Step("StopStart", f"{node}.{repair_attempt}")


def terminate(instance_id: str) -> Step:
    return Step("Terminate", instance_id)


def assign(instance_id: str) -> Step:
    """The machine takes the node's name."""
    return Step("Assign", instance_id)


def report_fault(instance_id: str) -> Step:
    return Step("ReportFault", instance_id)


def check_instance(instance_id: str) -> Step:
    return Step("CheckInstance", instance_id)


# Orders to agents


def validate(node: str, repair_attempt: int) -> Step:
    """All checks of a repaired or new machine."""
    return Step("SendOrder", f"validate/{node}.{repair_attempt}")


def deep_check(node: str, repair_attempt: int) -> Step:
    """The active checks of a repaired or new machine."""
    return Step("SendOrder", f"deep/{node}.{repair_attempt}")


def check_spare(kind: str, node: str, period: int) -> Step:
    """``kind``: light or deep; ``period``: number of the period since 1970 in which it is due once."""
    return Step("SendOrder", f"check.{kind}/{node}.{period}")


def reset_gpu(node: str, repair_attempt: int) -> Step:
    return Step("SendOrder", f"reset_gpu/{node}.{repair_attempt}")


def collect_evidence(node: str) -> Step:
    return Step("SendOrder", f"evidence/{node}")


def collect_stacks(node: str, job: JobKey, restarts: int) -> Step:
    return Step("SendOrder", f"stacks/{node}.{_run(job, restarts)}")


def read_output(job: JobKey, restarts: int) -> Step:
    """The last lines of what a run that failed wrote. Its submit time belongs to the name: the step is of no incident, ids come again."""
    return Step("SendOrder", f"output/{_run(job, restarts)}@{job.submitted_s}")


def leave_job_note(job: JobKey, restarts: int) -> Step:
    """The file alongside its output that says why it was stopped. ``restarts``: the run that was stopped."""
    return Step("SendOrder", f"job_note/{_run(job, restarts)}")


def probe_peer(peer: str) -> Step:
    """``peer``: the node that tries to reach the incident's."""
    return Step("SendOrder", f"probe/{peer}")


def probe_pair(node: str, probe: str) -> Step:
    """One side of a pair probe. ``probe``: its name within the incident."""
    return Step("SendOrder", f"pair/{node}.{probe}")


def save(node: str, job: JobKey, restarts: int) -> Step:
    """The run's processes on the node are asked to save."""
    return Step("SendOrder", f"save/{_run(job, restarts)}.{node}")


def survey(node: str, job: JobKey, restarts: int) -> Step:
    """The run's checkpoint directory is read by the node's agent."""
    return Step("SendOrder", f"survey/{_run(job, restarts)}.{node}")


def end_job(node: str, job: JobKey, restarts: int) -> Step:
    """The end of what a requeued run still has on its faulty node."""
    return Step("SendOrder", f"end_job/{node}.{_run(job, restarts)}")


def end_step(node: str, job: JobKey, restarts: int) -> Step:
    """The end of a step that a survivor of a dead node's job still holds."""
    return Step("SendOrder", f"end_step/{node}.{_run(job, restarts)}")


def leave(node: str, job: JobKey, restarts: int) -> Step:
    """A slow group is asked to leave."""
    return Step("SendOrder", f"leave/{node}.{_run(job, restarts)}")


# The size of elastic jobs: each names its job (``label``) and the hour


def leave_room(label: str, node: str, job: JobKey, restarts: int, hour: int, *, serving: JobKey | None = None) -> Step:
    """A group is asked to leave, so that its job shrinks. ``serving``: for a pending job."""
    return Step("SendOrder", f"{label}.leave.{_run(job, restarts)}.{node}{_serving(serving)}.{hour}")


def requeue_group(label: str, job: JobKey, restarts: int, hour: int, *, serving: JobKey | None = None) -> Step:
    """A group that could not be asked to leave, or did not."""
    return Step("Requeue", f"{label}.{_run(job, restarts)}{_serving(serving)}.{hour}")


def served_by(step: Step) -> tuple[int, int] | None:
    """Id and submit time of the pending job that a group makes room for by one of these two; None: it is another step."""
    found = _SERVING.search(step.target) if step.kind in ("SendOrder", "Requeue") else None
    return (int(found[1]), int(found[2])) if found is not None else None


def _serving(job: JobKey | None) -> str:
    return "" if job is None else f".for-{job.job_id}-{job.submitted_s}"


def release_group(label: str, job: JobKey, restarts: int, hour: int) -> Step:
    return Step("Release", f"{label}.{_run(job, restarts)}.{hour}")


def delay_start(label: str, job: JobKey, restarts: int, hour: int) -> Step:
    return Step("DelayStart", f"{label}.{_run(job, restarts)}.{hour}")


def set_throttle(label: str, array_job_id: int, most: int | None, hour: int) -> Step:
    """``most``: elements that may run at a time; None: as many as there are."""
    return Step("SetThrottle", f"{label}.{array_job_id}={most}.{hour}")


def resizes(step: Step, label: str) -> bool:
    """Whether the step is one of the five above, for a job of this label. Job ids are used again: its time says for which."""
    return step.target.startswith(f"{label}.")


def same_but_hour(one: Step, other: Step) -> bool:
    """Whether two of the five above are one step, taken in this hour or in another."""
    return one.kind == other.kind and one.target.rpartition(".")[0] == other.target.rpartition(".")[0]


# Notifications


def notify_brake(name: str, tripped_at: datetime) -> Step:
    return Step("Notify", f"brake.{name}.{int(tripped_at.timestamp())}")


def notify_proposals(number: int, asked_at: datetime) -> Step:
    """Steps of the incident wait for an operator's accept. ``number``: of the newest of them; ``asked_at``: when it was asked, last."""
    return Step("Notify", f"proposal.{number}.{int(asked_at.timestamp())}")


def notify_proposal_expired(number: int) -> Step:
    """No one answered this proposal in time."""
    return Step("Notify", f"proposal_expired.{number}")


def notify_own_stops(uid: int | None) -> Step:
    """Hung jobs are no longer stopped for a while. ``uid``: the user whose limit it is; None: the limit in all."""
    return Step("Notify", f"own_stops.{'all' if uid is None else uid}")


def notify_failing(step: Step) -> Step:
    """That step fails for good, or again and again."""
    return Step("Notify", f"failing.{step.text}")


def notify_budget(step: Step) -> Step:
    """That step has waited long for a budget."""
    return Step("Notify", f"budget.{step.text}")


def notify_not_shown() -> Step:
    """A node that is repaired but for its return is not in Slurm."""
    return Step("Notify", "not_shown")


def notify_unfenced() -> Step:
    """A dead node that nothing keeps from writing."""
    return Step("Notify", "unfenced")


def notify_no_machine() -> Step:
    """No machine could be launched so far."""
    return Step("Notify", "launch")


def notify_awaiting_human(repair_attempt: int) -> Step:
    return Step("Notify", f"awaiting_human.{repair_attempt}")


def notify_frozen(since: datetime, hours: int) -> Step:
    """Too many agents are silent to declare a death. ``hours``: full hours since then; one notification in each."""
    return Step("Notify", f"frozen.{int(since.timestamp())}.{hours}")


def notify_file_system(name: str, since: datetime) -> Step:
    """A file system that does not answer on several nodes since then."""
    return Step("Notify", f"file_system.{zlib.crc32(name.encode()):08x}.{int(since.timestamp())}")


def notify_dispute() -> Step:
    """Two nodes claim one machine."""
    return Step("Notify", "dispute")


def notify_hang() -> Step:
    """A job that hangs and is left as it is."""
    return Step("Notify", "hangs")


def notify_held_job() -> Step:
    """A job that was held, and starts only once a user releases it."""
    return Step("Notify", "held_job")


def notify_owner(job: JobKey, restarts: int, what: str) -> Step:
    """Mail to the job's owner. ``restarts``: the run that was stopped; ``what``: ``recovered``, ``ended`` or ``held``."""
    return Step("Notify", f"owner.{_run(job, restarts)}.{what}")


def notify_one_cause() -> Step:
    """Jobs that failed seem to have one cause, which is no node."""
    return Step("Notify", "one_cause")


def notify_cannot_tell() -> Step:
    """Nodes of a job that failed did not pass their pair probes, and too few others could be asked."""
    return Step("Notify", "cannot_tell")


def notify_capacity_end() -> Step:
    return Step("Notify", "capacity_end")


def notify_short_of_spares(since: datetime) -> Step:
    return Step("Notify", f"spares.{int(since.timestamp())}")


def notify_stays_down() -> Step:
    """Nodes that Slurm set DOWN, and that only an operator's resume brings back."""
    return Step("Notify", "stays_down")


def notify_orphan(instance_id: str, week: int) -> Step:
    """``week``: number of the week since 1970; at most one notification in each."""
    return Step("Notify", f"orphan.{instance_id}.{week}")


def notify_silent(where: str, since: datetime, hours: int = 0, size: int = 0) -> Step:
    """Nodes that do not report, and of which nothing may be concluded. ``where``: a failure domain, the cluster, or one node.
    ``hours``: whole hours since then; one notification in each. ``size``: how many they are, as a class; one for each that is larger."""
    return Step("Notify", f"{_silent(where)}{int(since.timestamp())}{f'.{hours}.{size}' if size else _in_hour(hours)}")


def size_told(step: Step, where: str) -> int | None:
    """The size class of a :func:`notify_silent` of these nodes, whatever the time; None: it is another step."""
    head = _silent(where)
    words = step.target.removeprefix(head).split(".")
    if step.kind != "Notify" or not step.target.startswith(head) or not all(word.isdecimal() for word in words):
        return None
    return int(words[2]) if len(words) > 2 else 0


def _silent(where: str) -> str:
    return f"silent.{where.replace('/', '_').replace(' ', '_')}."


def _in_hour(hours: int) -> str:
    return f".{hours}" if hours else ""
