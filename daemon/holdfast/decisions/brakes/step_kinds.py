"""Which kind of step an action is, for an operator's accept, and what exactly is asked about. Pure.

What only undoes or finishes an accepted step has no kind: the return of a requeued job, the end of its leftovers, the end of a machine that
was launched in vain, validation."""

from __future__ import annotations

from holdfast.model.actions.action import (
    Action,
    AdoptSpare,
    Assign,
    Drain,
    HoldJob,
    IntentState,
    Launch,
    PromoteSpare,
    Reboot,
    Release,
    Replace,
    Requeue,
    SendOrder,
    SetDown,
    StopStart,
    TakeOverDrain,
    Terminate,
    Undrain,
    Verb,
)
from holdfast.model.actions.steps import Step
from holdfast.model.book import Book
from holdfast.model.ids import UPKEEP
from holdfast.model.incidents.incident import Incident
from holdfast.model.operators.proposals import Question, StepKind
from holdfast.model.policies.resizing import DelayStart, SetThrottle

_NODE_KINDS: dict[type[Action], StepKind] = {
    Drain: StepKind.DRAIN,
    TakeOverDrain: StepKind.DRAIN,
    SetDown: StepKind.SET_DOWN,
    Reboot: StepKind.REBOOT,
    StopStart: StepKind.STOP_START,
    Launch: StepKind.REPLACE,
    Replace: StepKind.REPLACE,
    Assign: StepKind.REPLACE,
    AdoptSpare: StepKind.SPARE,
    Undrain: StepKind.UNDRAIN,
}
_RESIZES = (Requeue, Release, DelayStart, SetThrottle)
"""What changes the size of an elastic job, of no incident."""
JOB_KINDS = frozenset({StepKind.STOP_JOB, StepKind.REQUEUE})


def kind_of(book: Book, incident_id: str, action: Action, *, stops: bool) -> StepKind | None:
    """The kind; None: no operator is asked. ``stops``: the job that it is about still runs."""
    if incident_id == UPKEEP and isinstance(action, _RESIZES):
        return StepKind.RESIZE
    match action:
        case Requeue():
            return StepKind.STOP_JOB if stops else StepKind.REQUEUE
        case Release():
            return None if _requeued(book, incident_id) else StepKind.REQUEUE
        case HoldJob():
            return StepKind.STOP_JOB
        case SendOrder(verb=Verb.RESET_GPU):
            return StepKind.RESET_GPU
        case SendOrder(verb=Verb.SAVE | Verb.LEAVE):
            return StepKind.RESIZE if incident_id == UPKEEP else StepKind.STOP_JOB
        case PromoteSpare():
            return StepKind.SPARE if incident_id == UPKEEP else None
        case Terminate():
            return _kind_of_end(action, book.incidents.get(incident_id))
        case _:
            return _NODE_KINDS.get(type(action))


def _requeued(book: Book, incident_id: str) -> bool:
    """Whether Holdfast itself stopped or requeued a job for the incident: its restart belongs to that. One that Slurm requeued starts
    without Holdfast, which would only set its exclusions."""
    begun = (IntentState.STARTED, IntentState.DONE)
    return any(isinstance(i.action, Requeue | SetDown) and i.state in begun for i in book.intents_of(incident_id))


def _kind_of_end(action: Terminate, incident: Incident | None) -> StepKind | None:
    """A machine that was launched for the incident in vain serves no node: its end only gives back what was bought."""
    if action.fence:
        return StepKind.FENCE
    serves = incident is None or action.instance_id in (incident.instance_id, incident.machine)
    return StepKind.REPLACE if serves else None


def question(kind: StepKind, step: Step, action: Action, incident: Incident) -> Question:
    """What an operator is asked: an accept counts for exactly this."""
    if kind in JOB_KINDS:
        return Question(kind, run_of(step))
    if kind is StepKind.REPLACE:
        return Question(kind, f"{incident.node}.{incident.repair_attempt}", incident.serving_id)
    if kind is StepKind.UNDRAIN:
        return Question(kind, f"{incident.node}.{incident.repair_attempt}")
    if kind is StepKind.DRAIN:
        return Question(kind, step.target, incident.serving_id)
    if isinstance(action, Terminate):
        return Question(kind, step.target, action.instance_id)
    if isinstance(action, Reboot | StopStart | SendOrder):
        return Question(kind, step.target, action.instance_id, action.boot_id)
    return Question(kind, step.target)


def run_of(step: Step) -> str:
    """The run of a job that a step is about, as ``7r0``."""
    verb, _, rest = step.target.partition("/")
    if verb == "leave":
        return rest.rpartition(".")[2]
    return (rest or verb).partition(".")[0]


_TEXTS = {
    StepKind.DRAIN: "drain {node}",
    StepKind.SET_DOWN: "set {node} DOWN, upon which Slurm ends and requeues its jobs",
    StepKind.RESET_GPU: "reset the faulty GPUs of {node}",
    StepKind.REBOOT: "reboot {node}",
    StepKind.STOP_START: "stop {node}'s machine and start it on another host",
    StepKind.REPLACE: "replace {node}'s machine: launch another one and terminate this one, or exchange it in place",
    StepKind.FENCE: "terminate {node}'s machine, so that the dead node's run cannot write",
    StepKind.SPARE: "put {node} into the spare pool",
    StepKind.RESIZE: "change the size of an elastic job",
    StepKind.UNDRAIN: "put {node} back into service",
    StepKind.STOP_JOB: "stop job {job}, which then is queued again (or held)",
    StepKind.REQUEUE: "queue job {job} again",
}


def text_of(kind: StepKind, node: str, job: int | None, machine: str) -> str:
    """One line: what would be done, to what."""
    text = _TEXTS[kind].format(node=node, job=job)
    return f"{text} (machine {machine})" if machine else text
