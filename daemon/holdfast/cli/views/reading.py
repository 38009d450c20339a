"""Verbs that read: nodes, incidents, jobs, metrics."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import quote

import typer

from holdfast.api.client import ApiClient
from holdfast.cli.common.answers import read
from holdfast.cli.common.options import IncidentIdArgument, Json, NodeOption, SinceOption, Url
from holdfast.cli.common.restraints import held_lines
from holdfast.cli.common.show import (
    agent_word,
    as_json,
    console,
    counted,
    line,
    moment,
    narrow,
    seconds,
    table,
    write_new,
)
from holdfast.cli.common.when import asked, both, given
from holdfast.model.elastic_jobs.room_names import job_label
from holdfast.model.errors import Rejected, Usage
from holdfast.model.ids import abbreviated
from holdfast.model.incidents.fleet import NodeGroup, fleet_text, group_of, natural
from holdfast.model.slurm.hostlist import expand

if TYPE_CHECKING:
    from holdfast.api.answers.job_shapes import CheckpointShape, ElasticJobShape, GroupShape, JobShape
    from holdfast.api.answers.node_shapes import ClusterShape, NodeShape
    from holdfast.api.answers.proposal_shapes import ProposalShape
    from holdfast.api.answers.shapes import (
        EventShape,
        FindingShape,
        IncidentShape,
        ReplacementShape,
        SpreadShape,
        TimingsShape,
    )

T = TypeVar("T")
INCIDENT_COLUMNS = ("ID", "NODE", "STATE", "SEVERITY", "FAULT (UTC)", "WHAT", "REASON")


def all_nodes(url: Url, as_data: Json, wanted: Wanted) -> None:
    """A row for each that is wanted, in natural order, and one line that sums them up."""
    got = ApiClient(url).get("/v1/nodes")
    if as_data and wanted.everything:
        as_json(got)
        return
    from holdfast.api.answers.node_shapes import ClusterShape  # noqa: PLC0415

    cluster = read(ClusterShape, got)
    shown = sorted((n for n in cluster.nodes if is_wanted(n, wanted)), key=lambda n: natural(n.name))
    if as_data:
        names = {n.name for n in shown}
        as_json({**got, "nodes": [n for n in got.get("nodes", []) if n.get("name") in names]})
        return
    for sentence in cluster_lines(cluster):
        line(sentence)
    columns = ("NODE", "SLURM", "AGENT", "GPUS", "ROLE", "JOBS", "INCIDENT", "REASON")
    empty = "no nodes are known yet" if not cluster.nodes else "no node is wrong" if wanted.bad else "no such node"
    listed(columns, [node_row(n) for n in shown], empty, ("GPUS", "ROLE", "REASON"))
    for sentence in reason_lines(shown) if narrow() else ():
        line(sentence)
    for sentence in summary_lines(cluster.nodes, shown, wanted):
        line(sentence)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which nodes are to be shown."""

    names: tuple[str, ...] = ()
    """Empty: all."""
    partition: str | None = None
    bad: bool = False

    @property
    def everything(self) -> bool:
        return not (self.names or self.partition or self.bad)


def hostlist(text: str) -> tuple[str, ...]:
    """The names of a host list, blanks behind commas allowed. Raises Usage."""
    try:
        return expand(re.sub(r"\s*,\s*", ",", text.strip()))
    except Rejected as error:
        raise Usage(str(error)) from error


def is_wanted(node: NodeShape, wanted: Wanted) -> bool:
    named = not wanted.names or node.name in wanted.names
    return named and wanted.partition in (None, *node.partitions) and (not wanted.bad or is_bad(node))


def is_bad(node: NodeShape) -> bool:
    """Out of service, silent, with an open incident, or put back before its fault was repaired. A node that never had an agent is not."""
    return bool(node.incidents or node.trouble) or node_group(node) is not NodeGroup.IN_SERVICE


def node_group(node: NodeShape) -> NodeGroup:
    states, agents = [str(i.state) for i in node.incidents], [a.status for a in node.agents]
    return group_of(node.state.split("+") if node.state else (), states, agents, busy=bool(node.jobs))


def summary_lines(everything: Sequence[NodeShape], shown: Sequence[NodeShape], wanted: Wanted) -> list[str]:
    """Of all that were asked about, not of the bad ones alone; names that are not known."""
    asked = [n for n in everything if is_wanted(n, replace(wanted, bad=False))]
    lines = [fleet_text(Counter(node_group(n).value for n in asked))] if asked else []
    known = {n.name for n in everything}
    unknown = [name for name in wanted.names if name not in known]
    if unknown:
        lines.append(
            f"not known: {', '.join(unknown[:5])}{' …' if len(unknown) > 5 else ''}; `holdfast nodes` lists them"
        )
    if wanted.bad and shown:
        lines.append(f"{counted(len(shown), 'node')} shown; `holdfast nodes NODE` has the history of one")
    return lines


def listed(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    empty: str,
    spared: Sequence[str],
    *,
    never: Sequence[str] = (),
    title: str = "",
) -> None:
    """A table without the columns ``spared`` where the terminal is narrow, and without ``never``: those in which nothing would be."""
    gone = {*never, *(spared if narrow() else ())}
    kept = [index for index, name in enumerate(columns) if name not in gone]
    table(title, [columns[index] for index in kept], [[row[index] for index in kept] for row in rows], empty)


def cluster_lines(got: ClusterShape) -> list[str]:
    lines = [f"cluster {got.cluster or '?'}, mode {got.mode or '?'}"]
    if got.slurm_read_at is None:
        lines.append("Slurm does not answer: decisions that depend on it wait")
    lines += held_lines(got)
    if got.untaken:
        lines.append(got.untaken)
    lines += [f"failing: {each}; see `holdfast runbook turn-fails`" for each in got.failing]
    return lines + [f"set aside: {each}; no decision is made about it" for each in got.set_aside]


def reason_lines(nodes: Sequence[NodeShape]) -> list[str]:
    """What the column REASON would say, below the table: a narrow terminal would break it into a word a line. Two lines each at most."""
    width = console().width
    said = ((node.name, reason_of(node)) for node in nodes)
    return [textwrap.shorten(f"{name}: {reason}", 2 * width - 10, placeholder=" …") for name, reason in said if reason]


def reason_of(node: NodeShape) -> str:
    return abbreviated(node.why or node.trouble or node.reason or "")


def node_row(node: NodeShape) -> list[object]:
    return [
        node.name,
        node.state or "?",
        ", ".join(dict.fromkeys(agent_word(a.status) for a in node.agents)),
        node.gpus or "",
        ", ".join(roles_of(node)),
        ", ".join(node.job_names or map(str, node.jobs)),
        ", ".join(i.id for i in node.incidents),
        reason_of(node),
    ]


def roles_of(node: NodeShape) -> list[str]:
    """``spare``, ``lemon``, both or neither."""
    return [word for word, so in (("spare", node.spare), ("lemon", node.lemon)) if so]


def incidents(
    url: Url = None,
    as_data: Json = False,
    only_open: Annotated[bool, typer.Option("--open", help="Only open ones.")] = False,
    node: NodeOption = None,
    since: SinceOption = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
) -> None:
    """Incidents, newest first."""
    start = given(since)
    got = ApiClient(url).get(
        "/v1/incidents", open="true" if only_open else None, node=node, since=asked(start), limit=limit
    )
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.shapes import IncidentsShape  # noqa: PLC0415

    rows = [incident_row(i) for i in read(IncidentsShape, got).incidents]
    if start is not None:
        line(f"since {both(start)}")
    if narrow():
        rows = [[*row[:4], str(row[4])[5:16], ": ".join(str(cell) for cell in row[5:] if cell), ""] for row in rows]
    listed(INCIDENT_COLUMNS, rows, "no incidents", ("SEVERITY", INCIDENT_COLUMNS[-1]))


def incident_row(i: IncidentShape) -> list[object]:
    return [
        i.id,
        i.node,
        i.state,
        i.severity,
        moment(i.fault_at)[:19],
        abbreviated(i.headline),
        i.note,
    ]


def show(
    incident_id: IncidentIdArgument,
    url: Url = None,
    as_data: Json = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Also when each action was begun, each state in between, and GPU UUIDs in full."),
    ] = False,
) -> None:
    """One incident: what was found, what happened, how long it took, what was lost."""
    got = ApiClient(url).get(f"/v1/incidents/{quote(incident_id, safe='')}")
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.shapes import IncidentStory  # noqa: PLC0415

    story = read(IncidentStory, got)
    incident = story.incident
    line(f"{incident.id}  {incident.node}  {incident.state}  {incident.severity}: {incident.headline}")
    if incident.note:
        line(f"  {incident.note}")
    start = incident.fault_at
    for sentence in about_lines(incident):
        line(f"  {sentence}")
    for proposal in story.proposals:
        line(f"  {proposal_line(proposal)}")
    found = [finding_row(f) for f in sorted(story.findings, key=lambda f: f.fault_at)]
    if found:
        columns = ("FINDING", "SEVERITY", "REMEDY", "IF ENFORCED", "WHAT")
        listed(columns, found, "", ("REMEDY",), title="findings")
    events = story.timeline if everything else main_events(story.timeline)
    timeline = timeline_rows(start, events, in_full=everything)
    listed(("SINCE FAULT", "AT (UTC)", "EVENT", "WHAT"), timeline, "no events", ("AT (UTC)",), title="timeline")
    jobs = [(r.job.job_id, r.user, r.phase, r.gpus, r.resumed_step, r.note) for r in story.recoveries]
    if jobs:
        table("jobs", ("JOB", "USER", "PHASE", "GPUS", "RESUMED AT STEP", "NOTE"), jobs, "")
    if story.timings:
        table("timings", ("PHASE", "TIME"), timing_rows(story.timings), "nothing is timed yet")


def about_lines(i: IncidentShape) -> list[str]:
    """What is known of an incident in addition to its state, its headline and its note."""
    closed = f", closed {moment(i.closed_at)}" if i.closed_at else ""
    since = f", {i.state} since {moment(i.state_since)}" if i.state_since and not i.closed_at else ""
    kind = f" ({i.kind})" if i.kind else ""
    gpus = f", GPUs {', '.join(map(str, i.gpu_minors))}" if i.gpu_minors else ""
    boot = f", boot {i.boot_id}" if i.boot_id else ""
    now = f"; the node is now {i.machine}" if i.machine else ""
    proved = f", proved {moment(i.validated_at)} UTC" if i.validated_at else ""
    earlier = f", after {counted(i.repair_attempt, 'earlier attempt')}" if i.repair_attempt else ""
    about = (
        (True, f"fault at {moment(i.fault_at)} UTC, opened {moment(i.opened_at)}{since}{closed}"),
        (True, f"check {i.check}{kind}, remedy {i.remedy}{gpus}"),
        (i.instance_id, f"machine {i.instance_id}{boot}{now}"),
        (i.job, f"about job run {i.job}"),
        (i.suspects, f"nodes that may be at fault: {', '.join(i.suspects)}"),
        (i.goes_at, f"the provider takes the machine away at {moment(i.goes_at)} UTC"),
        (i.dead, "two independent witnesses agreed that the node is dead"),
        (i.order, f"replacement {order_text(i.order)}" if i.order else ""),
        (i.order_dropped, f"that order is not carried out: {i.order_dropped}"),
        (i.acknowledged, "an operator took it over: Holdfast does not act on it"),
        (
            i.repair_attempt or i.rung or i.validated_at,
            f"repair step: {i.rung or 'none'}{earlier}{proved}",
        ),
    )
    return [text for known, text in about if known]


def order_text(order: ReplacementShape) -> str:
    ticket = f" (ticket {order.ticket})" if order.ticket else ""
    why = f": {order.reason}" if order.reason else ""
    return f"of machine {order.instance_id} ordered by {order.by} at {moment(order.at)} UTC{why}{ticket}"


def proposal_line(p: ProposalShape) -> str:
    """A proposal with its answer, on `incident show`."""
    until = f" until {moment(p.until)[:16]} UTC" if p.state in ("open", "accepted", "snoozed") and p.until else ""
    by = f" by {p.by}{f': {p.why}' if p.why else ''}" if p.by else ""
    return f"proposal {p.id} ({p.state}{until}{by}): {p.what}; {p.reason}"


def finding_row(finding: FindingShape) -> list[object]:
    """For a check that only observes also what it would call for."""
    name, component = f"{finding.check} {finding.code}", finding.component
    would = ", ".join(filter(None, (finding.would_severity, finding.would_remedy)))
    where = "" if component == "node" or finding.summary.startswith(component) else f"{component}: "
    marks = (
        (finding.consequence, "a consequence"),
        (finding.repeats, f"seen {finding.repeats + 1} times"),
        (finding.cleared_at, "cleared"),
    )
    what = abbreviated(f"{where}{finding.summary}") + "".join(f" ({word})" for so, word in marks if so)
    return [name.strip(), finding.severity, finding.remedy, would, what]


def bundle(
    incident_id: IncidentIdArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; default: ID.tar.gz here.")
    ] = None,
    url: Url = None,
) -> None:
    """Fetch the evidence that was collected before the hardware was released (a tar.gz)."""
    target = output or Path(f"{incident_id}.tar.gz")
    if target.exists():
        raise Usage(f"{target} exists already: name another file with --output")
    data = ApiClient(url).fetch(f"/v1/incidents/{quote(incident_id, safe='')}/bundle")
    write_new(target, data)
    line(f"{target}: {len(data)} bytes")


_IN_BETWEEN = ("incident.state", "recovery.phase")


def main_events(events: Sequence[EventShape]) -> list[EventShape]:
    """Without states in between, but for what the stacks of a job that hangs say, and without
    the start of actions that have ended: their plan says why, their end what came of it."""
    begun = [e.detail.get("key") for e in events if e.kind == "action.started"]
    ended = {
        e.detail.get("key")
        for e in events
        if e.kind in ("action.done", "action.failed", "action.refused") and e.detail.get("key") in begun
    }
    return [
        e
        for e in events
        if (e.kind not in _IN_BETWEEN or e.detail.get("stacks"))
        and not (e.kind == "action.started" and e.detail.get("key") in ended)
    ]


def timeline_rows(start: datetime, events: Iterable[EventShape], *, in_full: bool = False) -> list[list[object]]:
    return [
        [
            f"{(e.at - start).total_seconds():+.3f} s",
            _time_of_day(start, e.at),
            event_name(e),
            e.text if in_full else abbreviated(e.text),
        ]
        for e in events
    ]


def _time_of_day(start: datetime, at: datetime) -> str:
    """With the date only where it is another day than the fault's."""
    first, shown = moment(start), moment(at)
    return shown[11:] if shown[:10] == first[:10] else shown


def event_name(event: EventShape) -> str:
    """``action.done Drain n1``: an action's event says of which action."""
    detail = event.detail
    named = event.kind.startswith("action.") and detail.get("kind")
    return " ".join(str(w) for w in (event.kind, named, detail.get("target", "")) if w) if named else event.kind


def timing_rows(timings: TimingsShape) -> list[list[object]]:
    rows: list[list[object]] = [[phase, seconds(value)] for phase, value in timings.phases.items()]
    for name, took_s in (
        ("fault to running", timings.time_to_running_s),
        ("fault to resumed", timings.time_to_resumed_s),
    ):
        if took_s is not None:
            rows.append([name, seconds(took_s)])
    if timings.jobs:
        rows += [
            ["lost work", lost(timings.lost_work_s, seconds)],
            ["lost steps", lost(timings.lost_steps, str)],
            ["lost GPU-hours", lost(timings.lost_gpu_hours, "{:.3f}".format)],
        ]
    return rows


def lost(value: T | None, shown: Callable[[T], str]) -> str:
    """A value that was never reported is unknown, never zero."""
    return "unknown" if value is None else shown(value)


def jobs(
    url: Url = None,
    as_data: Json = False,
    job: Annotated[int | None, typer.Option(help="Only this job.")] = None,
    since: SinceOption = None,
) -> None:
    """Jobs made of replica groups, with their size and where each group is; jobs that were recovered or registered checkpoints."""
    got = ApiClient(url).get("/v1/jobs", job_id=job, since=asked(given(since)))
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.job_shapes import JobsShape  # noqa: PLC0415

    page = read(JobsShape, got)
    for elastic in page.elastic:
        show_groups(elastic)
    columns = ("JOB", "USER", "SLURM", "NODES", "CHECKPOINT STEP", "LAST STEP", "RECOVERY", "INCIDENT", "NOTE")
    rows = [row for j in page.jobs for row in job_rows(j)]
    listed(columns, rows, "no jobs on record", ("USER", "LAST STEP", "INCIDENT"))


def show_groups(job: ElasticJobShape) -> None:
    """An elastic job: its size, what was decided last, who is where."""
    spares = f" and {counted(job.spares, 'spare')}" if job.spares else ""
    aim = f", going to {job.target}" if job.target != job.size else ""
    state = f"{counted(job.running, 'group')} running, size {job.size}{aim}; declared {job.sizes}{spares}"
    line(f"{job_label(job.base_job_id)}  {job.user}  {job.name}: {state}")
    decided = job.decision
    if decided:
        line(f"  {moment(decided.at)[:19]} {decided.reason} ({decided.outcome or decided.state})")
    columns = ("GROUP", "ROLE", "JOB", "SLURM", "NODES", "STEP", "PHASE", "NOTE")
    listed(columns, [group_row(g) for g in job.groups], "no groups", ("JOB",))


def group_row(group: GroupShape) -> list[object]:
    note = "asked to leave" if group.leaving else group.reason
    if group.waits_until and group.reason == "BeginTime":
        note = f"until {moment(group.waits_until)[11:19]}"
    if group.trouble:
        note = f"{group.trouble}: incident {group.incident_id}"
    head = [group.group, group.role, group.job_id, group.state, ",".join(group.nodes)]
    return [*head, group.step, group.phase, note]


def _newest_step(said: CheckpointShape) -> int | None:
    """What was found in the directory, where that is newer than the job's own report."""
    found = said.survey.complete[:1] if said.survey else []
    later = said.surveyed_at is not None and (said.saved_at is None or said.surveyed_at > said.saved_at)
    return found[0].step if found and later else said.saved_step


def job_rows(job: JobShape) -> list[list[object]]:
    """One row per recovery; one for a job without any."""
    said = job.checkpoint
    saved, told = (_newest_step(said), said.progress_step) if said else (None, None)
    head: list[object] = [job.job_id, job.user, job.state, ",".join(job.nodes), saved, told]
    ways: list[list[object]] = [[r.phase, r.incident_id, r.note] for r in job.recoveries]
    return [[*head, *way] for way in ways or [["", "", ""]]]


def metrics(
    url: Url = None,
    as_data: Json = False,
    days: Annotated[float, typer.Option(min=0.001, max=400, help="Length of the window, ending now.")] = 30.0,
    since: SinceOption = None,
    each: Annotated[bool, typer.Option("--each", help="Also every incident (with --json).")] = False,
) -> None:
    """MTTD, MTTR, the phases and what was lost, from the record of events."""
    start = given(since)
    window_s = days * 86400 if start is None else max((datetime.now(UTC) - start).total_seconds(), 1.0)
    got = ApiClient(url).get("/v1/metrics", window_s=window_s, each="true" if each else None)
    if as_data:
        as_json(got)
        return
    from holdfast.api.answers.shapes import MetricsShape  # noqa: PLC0415

    window = read(MetricsShape, got)
    line(f"{counted(window.incidents, 'incident')} from {moment(window.since)} to {moment(window.until)} UTC")
    named = (
        ("MTTD", window.mttd),
        ("MTTR (running again)", window.mttr),
        ("MTTR (resumed)", window.mttr_resumed),
        ("node back in service", window.time_to_return),
    )
    spreads = [*named, *((f"phase {name}", s) for name, s in window.phases.items())]
    columns = ("WHAT", "N", "MEAN", "P50", "P90", "P99", "MAX")
    table("", columns, [spread_row(name, s) for name, s in spreads if s], "nothing is timed in this window")
    work, steps = lost(window.lost_work_s, seconds), lost(window.lost_steps, str)
    line(f"lost work {work}, steps {steps}, GPU-hours {lost(window.lost_gpu_hours, '{:.3f}'.format)}")


def spread_row(name: str, spread: SpreadShape) -> list[object]:
    times_s = (spread.mean, spread.p50, spread.p90, spread.p99, spread.max)
    return [name, spread.count, *map(seconds, times_s)]
