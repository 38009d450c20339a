"""Each field of an incident, of a recovery and of a finding is shown, or is on a list of hidden ones, with the reason.

A field is shown where it is in the API's shape and another value of it changes what ``holdfast`` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, get_args, get_origin

import pytest

from holdfast.api.answers.job_shapes import JobShape, JobsShape
from holdfast.api.answers.shape import Shape
from holdfast.api.answers.shapes import (
    EventShape,
    FindingShape,
    IncidentShape,
    IncidentsShape,
    IncidentStory,
    JobKeyShape,
    RecoveryShape,
    ReplacementShape,
)
from holdfast.api.client import ApiClient
from holdfast.api.shown.views import finding_shape, incident_shape
from holdfast.cli.app import run
from holdfast.model.agents.report import Finding, SeenFinding
from holdfast.model.incidents.incident import Incident, Recovery
from support.store_nouns import NOW, finding, incident, recovery

NOT_IN_THE_API: dict[type[Any], dict[str, str]] = {
    Incident: {
        "notice": "key by which the next poll recognizes the provider's notice; its text is the headline",
        "pair_probed": "how far the decision is; the timeline has each probe and its outcome",
        "stalled": "the headline and the page name the jobs",
        "odd": "what the decision keeps of the stacks; the timeline has the stacks with the odd ranks",
        "before_death": "what it is shown as again once a node thought dead reports; the timeline has the finding",
        "drain_lost_at": "the note and the timeline say that slurmctld forgot the drain, and when",
        "job_uid": "whose job: `holdfast jobs` shows the job and its user",
        "by_job": "says which brake counts the drain, and the headline what was found",
        "order_withdrawn": "whether people are called for it; order_dropped says who ended the order",
        "earlier_orders": "the timeline has each order; the store takes none twice by this",
        "by_order": "the kind says that an order opened it, the check whether a finding leads by now",
        "code": "stands in the headline, after the check",
        "by_program": "says how many nodes with this fault make the job the suspect; the hold's reason names them",
        "resumed_in_doubt": "the note says that it waits for an operator, and why",
        "proposals": "`holdfast proposals` and `holdfast incident show` have them in separate lists",
        "operated": "a count by which the store refuses a change made from an older incident",
    },
    Recovery: {
        "exclusions_known": "whether the user's own were read; nothing is written over them before",
        "excluded_before": "the user's own; scontrol shows them, and they are put back",
        "excluded_added": "scontrol shows the job's exclusions; actions on them are in the timeline",
        "in_service_only": "the note says why the job waits; actions on its exclusions are in the timeline",
        "series": "what jobs that are counted together share; the note says why one is held",
        "released_at": "the incident of the held job is closed then",
        "via_down": "how the requeue is done; the actions SetDown and Requeue are in the timeline",
        "suspect": "the note says that the job itself is the suspect",
        "started_at": "the timeline of the recovery before, or squeue, has the start of the run",
        "next_run_ended": "the note has Slurm's state of that run",
        "stopped_estimated": "the timeline says 'about' of the steps that were lost",
    },
    Finding: {
        "id": "the store's number",
        "node": "its incident's",
        "instance_id": "of the incident, or of the machine under test that took its place",
        "boot_id": "as the machine",
        "failed": "the shape's verdict",
        "sticky": "how it clears; cleared_at says whether it has",
        "last_fault_at": "last_seen_at, by the time of its receipt, and how often it was seen",
        "incident_id": "findings are shown with their incident",
    },
}
"""Fields of the model without a field of the same name in the shape."""

FOR_PROGRAMS: dict[type[Shape], dict[str, str]] = {
    IncidentShape: {},
    RecoveryShape: {
        "id": "made of the job's id and its restarts",
        "job": "the job's id is shown; cluster and submit time name it for programs",
        "restarts_before": "names the run for programs",
        "uid": "the user's name is shown",
        "nodes_before": "the incident's node is shown; the timeline has the job's stop",
        "partition": "squeue shows it",
        "created_at": "the timeline has the beginning of the recovery",
        "consent": "the actions' reasons have it, in the timeline",
        "ground": "consent is its words",
        "spare": "the action that takes it is in the timeline",
        "hold": "the action that makes the reservation is in the timeline",
        "checkpoint_step": "holdfast jobs has the newest step that the job saved",
        "checkpoint_at": "the timings have the work that was lost",
        "checkpoint_known": "the note of a held job says how many failures are known to have made no progress",
        "stopped_step": "the timings have the steps that were lost",
    },
    FindingShape: {
        "verdict": "severity and remedy say what follows",
        "fault_at": "rows are in its order; the timeline has the time of each",
        "received_at": "the timeline has the time at which it joined",
        "last_seen_at": "how often it was seen is shown",
        "evidence": "numbers behind the summary",
        "gpu_uuid": "the component is shown",
        "gpu_minor": "the incident's GPUs are shown",
        "pci": "the component is shown",
    },
}
"""Fields of the shapes that ``--json`` has and no table."""

ID = "0h3k5d2m8x1q"
SHAPES: dict[type[Any], type[Shape]] = {Incident: IncidentShape, Recovery: RecoveryShape, Finding: FindingShape}


def a_recovery() -> RecoveryShape:
    return RecoveryShape.model_validate(recovery())


def a_finding() -> FindingShape:
    return finding_shape(SeenFinding(finding(), 0, NOW))


def screens(shape: Shape) -> Iterator[tuple[tuple[str, ...], Shape]]:
    """The verbs that show a shape of this kind, with the answer that has it."""
    about = shape if isinstance(shape, IncidentShape) else incident_shape(incident())
    recoveries = [shape] if isinstance(shape, RecoveryShape) else []
    findings = [shape] if isinstance(shape, FindingShape) else []
    event = EventShape(id=1, at=NOW, kind="incident.opened", incident_id=ID, node="n1", job=None, text="", detail={})
    story = IncidentStory(
        incident=about, findings=findings, timeline=[event], actions=[], recoveries=recoveries, timings=None
    )
    yield ("incident", "show", ID), story
    if isinstance(shape, IncidentShape):
        yield ("incidents",), IncidentsShape(incidents=[shape])
    if isinstance(shape, RecoveryShape):
        job = JobShape(job_id=7, user="ann", uid=1, state="", nodes=[], checkpoint=None, recoveries=recoveries)
        yield ("jobs",), JobsShape(jobs=[job], elastic=[])


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Shape], tuple[str, ...]]:
    """What the verbs print of a shape."""
    monkeypatch.setenv("HOLDFAST_TOKEN", "t")

    def call(shape: Shape) -> tuple[str, ...]:
        told = []
        for verb, answer in screens(shape):
            sent = answer.model_dump(mode="json")
            monkeypatch.setattr(ApiClient, "_call", lambda *_args, sent=sent: sent)
            assert run(verb) == 0
            told.append(capsys.readouterr().out)
        return tuple(told)

    return call


def parts(kind: Any) -> Iterator[Any]:
    """The types that an annotation is made of, outermost first."""
    yield get_origin(kind) or kind
    for inner in get_args(kind):
        yield from parts(inner)


def another(kind: Any, value: Any) -> Any:
    """A value of the field's type that is not this one."""
    kinds = [each for each in parts(kind) if isinstance(each, type)]
    enum = next((each for each in kinds if issubclass(each, StrEnum)), None)
    if enum is not None:
        return next(word for word in enum if word != value)
    others: tuple[tuple[type, Any], ...] = (
        (list, [4711] if int in kinds else ["something else"]),
        (Mapping, {"something": "else"}),
        (datetime, datetime(2026, 1, 31, 7, 8, 9, 5000, tzinfo=UTC)),
        (ReplacementShape, ReplacementShape(by="ops", at=NOW, reason="board", ticket="OPS-1", instance_id="i-1")),
        (JobKeyShape, JobKeyShape(cluster="other", job_id=7, submit_time=NOW)),
        (bool, not value),
        (int, 4711),
        (str, "something else"),
    )
    return next(other for plain, other in others if plain in kinds)


def of(shape: type[Shape]) -> Shape:
    return {IncidentShape: lambda: incident_shape(incident()), RecoveryShape: a_recovery, FindingShape: a_finding}[
        shape
    ]()


@pytest.mark.parametrize("noun", SHAPES, ids=lambda noun: noun.__name__)
def test_each_field_is_in_the_api_or_has_a_reason_not_to_be(noun: type[Any]) -> None:
    shape, excused = SHAPES[noun].model_fields, NOT_IN_THE_API[noun]
    missing = {f.name for f in fields(noun)} - set(shape)
    assert missing == set(excused), "put the field into the shape, or here with the reason"
    assert all(excused.values())


@pytest.mark.parametrize(
    ("shape", "field"),
    [(s, f) for s in FOR_PROGRAMS for f in s.model_fields],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_each_field_is_printed_or_has_a_reason_not_to_be(shown: Any, shape: type[Shape], field: str) -> None:
    plain = of(shape)
    value = getattr(plain, field)
    changed = plain.model_copy(update={field: another(shape.model_fields[field].annotation, value)})
    excused = field in FOR_PROGRAMS[shape]
    assert (shown(changed) == shown(plain)) is excused, (
        "it is shown: take it from the list"
        if excused
        else "show it on incident show, incidents or jobs, or give the reason here"
    )
