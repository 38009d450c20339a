"""Text output of the demo: one short line per event, and the milestones at the end. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from holdfast.model.actions.action import (
    AdoptSpare,
    Assign,
    Drain,
    DropHold,
    HoldNodes,
    Launch,
    Notify,
    PromoteSpare,
    Release,
    Replace,
    Requeue,
    Terminate,
    Verb,
)
from holdfast.model.event import ATTEMPT_FAILED
from holdfast.model.ids import abbreviated

EventDocument = Mapping[str, Any]
_STEPS = {
    Drain.__name__: "node drained",
    HoldNodes.__name__: "nodes kept",
    PromoteSpare.__name__: "spare in",
    Requeue.__name__: "requeue ordered",
    Release.__name__: "start ordered",
    DropHold.__name__: "nodes released",
    Verb.EVIDENCE.value: "evidence",
    Launch.__name__: "EC2 launch",
    Terminate.__name__: "EC2 terminate",
    Replace.__name__: "exchange ordered",
    Notify.__name__: "human called",
    Assign.__name__: "name handed over",
    AdoptSpare.__name__: "spare again",
}
_EVENTS = {
    "incident.opened": "detected",
    "job.hurt": "job affected",
    "job.stopped": "job stopped",
    "job.running": "job RUNNING",
    "job.resumed": "job resumed",
    "instance.up": "new machine up",
    "node.validated": "validated",
    "node.returned": "node in service",
    "incident.closed": "incident closed",
}
_UNHAPPY = {"action.failed": "failed", "action.refused": "refused", "action.withheld": "withheld"}
_MILESTONES = (
    ("fault.occurred", "fault"),
    ("incident.opened", "detected"),
    ("node.out_of_service", "node out of service"),
    ("job.stopped", "job stopped"),
    ("job.running", "job RUNNING again"),
    ("job.resumed", "job resumed from its checkpoint"),
    ("instance.up", "new machine's agent reports"),
    ("node.validated", "new machine validated"),
    ("node.returned", "node back in service"),
    ("incident.closed", "incident closed"),
)
_OWN_MARK = re.compile(r"holdfast\[[0-9a-z]+\]: ")
_GOOD = ("job RUNNING", "job resumed", "validated", "node in service", "incident closed")


class TimelineLine(NamedTuple):
    label: str
    text: str
    style: str


def line_of(event: EventDocument) -> TimelineLine | None:
    """The output line for an event; None: none, since another line covers it."""
    kind, detail = event["kind"], event["detail"]
    text = abbreviated(_OWN_MARK.sub("", event["text"]))
    step = detail.get("verb") or detail.get("kind", "")
    if kind in _UNHAPPY:
        return TimelineLine(f"{step} {_UNHAPPY[kind]}", text, "bold red")
    if ATTEMPT_FAILED in detail:
        return TimelineLine("climbs", text, "bold red")
    label = _STEPS.get(step) if kind == "action.done" else _EVENTS.get(kind)
    if label is None:
        return None
    style = "bold red" if label == "detected" else "bold green" if label in _GOOD else "default"
    return TimelineLine(label, text, style)


def after_s(event: EventDocument, fault_at: datetime) -> float:
    """Seconds from the fault to the event, by the event's own time."""
    return max(0.0, (datetime.fromisoformat(event["at"]) - fault_at).total_seconds())


def milestones(title: str, timeline: Sequence[EventDocument], fault_at: datetime) -> Table:
    """First occurrence of each milestone, and the time since the one before."""
    first: dict[str, EventDocument] = {}
    for event in timeline:
        first.setdefault(event["kind"], event)
    found = sorted(
        (after_s(first[kind], fault_at), n, name) for n, (kind, name) in enumerate(_MILESTONES) if kind in first
    )
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("since the fault", justify="right")
    table.add_column("step", justify="right")
    table.add_column("milestone")
    before = 0.0
    for at_s, _, name in found:
        table.add_row(f"{at_s:.2f} s", f"{at_s - before:.2f} s", name)
        before = at_s
    return table


def figures(timings: Mapping[str, Any]) -> Table:
    """MTTD, MTTR and what was lost. Definitions: ``docs/metrics.md``."""
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(style="bold", justify="right")
    table.add_column()
    table.add_column(style="dim")
    for name, key, meaning in (
        ("MTTD", "time_to_detect_s", "fault → evidence on disk"),
        ("MTTR", "time_to_running_s", "fault → job RUNNING again"),
        ("resumed", "time_to_resumed_s", "fault → the job's own report, its load time included"),
        ("node back", "time_to_return_s", "fault → replaced, validated, in service"),
    ):
        value = timings.get(key)
        table.add_row(name, "?" if value is None else f"{value:.2f} s", meaning)
    resumed = timings.get("time_to_resumed_s") is not None
    lost = str(timings.get("lost_steps", "?")) if resumed else "?"
    table.add_row("steps lost", lost, "done again since the checkpoint")
    return table


def told(at_s: float, line: TimelineLine, width: int) -> Text:
    """One line of the live view; text that does not fit is wrapped below."""
    head = f"  +{at_s:5.2f} s  "
    label = f"{line.label:<17}"
    room = max(20, width - len(head) - len(label))
    words, rows = line.text.split(), [""]
    for word in words:
        if rows[-1] and len(rows[-1]) + 1 + len(word) > room:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    text = Text(head, style="dim")
    text.append(label, style=line.style)
    text.append(("\n" + " " * (len(head) + len(label))).join(rows), style="default")
    return text
