"""Texts of messages to people: what happened, evidence, what Holdfast does next, what they can do, where to read on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from holdfast.model.agents.report import Finding
from holdfast.model.book import Book
from holdfast.model.notice import LEVEL_WORDS, MOST_MATTERS, RUNBOOKS, Matter, Message, NoticeLevel, Topic

_LISTED = 20
"""Most matters listed in a message; the others are counted."""
_NAMED = 8
"""Most nodes named in a subject."""
_SUBJECT_MOST, _BODY_MOST = 200, 4000
_EVIDENCE_MOST = 3


@dataclass(frozen=True, slots=True)
class TopicText:
    """What a message adds to the decision's own text."""

    title: str
    """Of several matters: ``12 TITLE``."""
    next_step: str
    """What Holdfast does next."""
    you_can: str
    """What an operator does; ``{node}``, ``{incident}`` and ``{job}`` are filled in."""


_SHOW = "holdfast incident show {incident}"
TOPIC_TEXTS: Mapping[Topic, TopicText] = {
    Topic.AWAITING_HUMAN: TopicText(
        "nodes need an operator",
        "nothing: the node stays out of service until you act.",
        f"{_SHOW}; once it is fit: scontrol update nodename={{node}} state=resume; "
        "for another machine: holdfast incident retry {incident}",
    ),
    Topic.NOT_IN_SLURM: TopicText(
        "repaired nodes are missing in Slurm",
        "it waits until Slurm shows the node, then tests and returns it.",
        f"put the node back into slurm.conf; {_SHOW}",
    ),
    Topic.CANNOT_FENCE: TopicText(
        "dead nodes cannot be fenced",
        "the job waits until the node is off or reports again.",
        f"make sure that the node is off; {_SHOW}",
    ),
    Topic.NODES_DO_NOT_REPORT: TopicText(
        "groups of nodes do not report",
        "it watches; nothing is done to the nodes until two witnesses agree.",
        "check network, power and console; holdfast nodes",
    ),
    Topic.VERDICTS_FROZEN: TopicText(
        "freezes of verdicts", "no silent node is replaced until most agents report again.", "holdfast nodes"
    ),
    Topic.STAYS_DOWN: TopicText(
        "groups of nodes stay DOWN", "nothing: Slurm keeps them DOWN until they are resumed.", "holdfast nodes"
    ),
    Topic.TWO_NODES_ONE_MACHINE: TopicText(
        "machines are claimed by two nodes", "neither machine is touched until this is settled.", _SHOW
    ),
    Topic.NOBODYS_MACHINE: TopicText(
        "machines serve nothing", "it does not touch them.", "terminate them, or give them a node's name, by hand"
    ),
    Topic.NO_MACHINE: TopicText(
        "nodes wait for a machine",
        "it asks the provider again, at growing intervals.",
        f"{_SHOW}; holdfast budget show",
    ),
    Topic.CAPACITY_ENDS: TopicText(
        "nodes whose capacity ends", "jobs were asked to save; the nodes are drained before the end.", _SHOW
    ),
    Topic.SPARES_SHORT: TopicText(
        "spare pools are short", "nodes return to the pool as they are repaired.", "holdfast spares"
    ),
    Topic.MAINTENANCE_WINDOW: TopicText(
        "maintenance reservations differ", "it keeps its hands off these nodes.", "scontrol show reservation"
    ),
    Topic.ORDER_DROPPED: TopicText(
        "orders to replace a machine are not carried out",
        "nothing more for this order.",
        "holdfast node history {node}; order it again if it still holds: holdfast node replace {node}",
    ),
    Topic.ORDER_WAITS: TopicText(
        "orders to replace a machine wait",
        "the order is carried out once nothing holds it.",
        f"{_SHOW}; holdfast budget show; holdfast incident close, to withdraw the order",
    ),
    Topic.STEP_FAILING: TopicText("steps fail repeatedly", "the step is tried again while it is due.", _SHOW),
    Topic.BRAKE: TopicText(
        "brakes hold",
        "new steps of this kind wait until you release the brake.",
        "holdfast nodes; holdfast release KIND",
    ),
    Topic.BUDGET_SPENT: TopicText(
        "nodes wait for a budget",
        "the step is taken as soon as the budget has one left.",
        f"{_SHOW}; holdfast budget show; holdfast budget extend, or the budgets of the node set",
    ),
    Topic.PROPOSAL: TopicText(
        "steps wait for an accept", "nothing is done without an accept.", f"{_SHOW}; holdfast proposals"
    ),
    Topic.JOB_HANGS: TopicText("jobs hang", "the job is left running.", _SHOW),
    Topic.HANGS_LIMITED: TopicText(
        "limits on restarts of hung jobs", "jobs that hang are not restarted for a while.", _SHOW
    ),
    Topic.JOB_STALL: TopicText("groups of jobs stall", "none is restarted, and no node is accused.", _SHOW),
    Topic.FILE_SYSTEM: TopicText(
        "file systems do not answer", "no node is drained for it.", "check the file server and the network to it"
    ),
    Topic.JOB_HELD: TopicText(
        "jobs are held",
        "the job starts only after its owner or an operator releases it.",
        f"scontrol release {{job}}; {_SHOW}",
    ),
    Topic.JOB_RECOVERED: TopicText("jobs run again", "nothing more.", _SHOW),
    Topic.JOB_NOT_BACK: TopicText(
        "jobs did not run again", "the job is not started again until its owner does so.", _SHOW
    ),
    Topic.FAILED_JOBS: TopicText("jobs failed without a node to blame", "no node is drained for it.", _SHOW),
    Topic.HEALED: TopicText("nodes are back in service", "nothing more.", _SHOW),
    Topic.DIGEST: TopicText("daily summaries", "nothing.", "holdfast incidents"),
    Topic.SEVERAL: TopicText("notices", "see each line.", "holdfast status; holdfast incidents; holdfast notices"),
    Topic.TEST: TopicText("tests", "nothing: this is a test.", "nothing has to be done"),
    Topic.OTHER: TopicText("notices", "see the incident.", "holdfast status; holdfast incidents"),
}


@dataclass(frozen=True, slots=True)
class NoticeLinks:
    """Where messages point to."""

    runbooks: str = "docs"
    """Base of the runbooks: a folder or an address."""
    incidents: str = ""
    """Base address of the dashboard; empty: no link."""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class MessageWriter:
    """Writes messages; implements :data:`holdfast.decisions.notices.plan.Build`."""

    links: NoticeLinks = field(default_factory=NoticeLinks)
    book: Book = field(default_factory=Book)

    def __call__(
        self,
        number: str,
        at: datetime,
        level: NoticeLevel,
        topic: Topic,
        matters: Sequence[Matter],
        over: bool,
        more: int,
    ) -> Message:
        count = len(matters) + more
        subject = _subject(topic, matters, count, over)
        if over:
            body = "\n".join(_lines(matters, count)) if count > 1 else self._end(matters[0], at)
        elif count == 1:
            body = self._one(matters[0])
        else:
            body = self._several(topic, matters, count)
        carried = tuple(replace(each, body="") for each in matters[:MOST_MATTERS])
        prefix = f"{self.links.cluster}: " if self.links.cluster else ""
        subject = f"{prefix}{subject}"[:_SUBJECT_MOST]
        return Message(number, at, level, topic, subject, body[:_BODY_MOST], count, over, carried)

    def _one(self, matter: Matter) -> str:
        parts = [matter.body.strip() or matter.subject]
        parts += [f"Evidence: {line}" for line in self._evidence(matter)]
        return "\n".join([*parts, *self._closing(matter.topic, matter)])

    def _end(self, matter: Matter, at: datetime) -> str:
        """How it ended, as the incident says it; empty: it belongs to none that is known, and to no condition."""
        if matter.condition:
            called = f"; you were called at {matter.since:%Y-%m-%d %H:%M}" if matter.since is not None else ""
            return f"It is no longer so at {at:%Y-%m-%d %H:%M} UTC{called}. Nothing has to be done for it any more."
        incident = self.book.incidents.get(matter.incident_id)
        if incident is None:
            return ""
        now = "closed" if not incident.open else f"now {incident.state.value}"
        return f"Incident {incident.id} is {now}" + (f": {incident.note}" if incident.note else "")

    def _several(self, topic: Topic, matters: Sequence[Matter], count: int) -> str:
        same_topic = topic is not Topic.SEVERAL
        first = matters[0].body.strip() if same_topic else ""
        shown = [f"Of the first: {first}"] if first else []
        return "\n".join([*_lines(matters, count), *shown, *self._closing(topic, matters[0] if same_topic else None)])

    def _closing(self, topic: Topic, matter: Matter | None) -> list[str]:
        text = TOPIC_TEXTS[topic]
        lines = [f"Next, Holdfast: {text.next_step}"]
        node = ",".join(matter.nodes) if matter is not None else ""
        number = matter.incident_id if matter is not None else ""
        if number or "{incident}" not in text.you_can:
            lines.append(f"You can: {text.you_can.format(node=node or 'NODE', incident=number, job=self._job(number))}")
        else:
            lines.append("You can: holdfast incidents")
        lines.append(f"Runbook: {runbook_command(topic)}{self._page(topic)}")
        if self.links.incidents and number:
            lines.append(f"Incident: {self.links.incidents.rstrip('/')}/{number}")
        return lines

    def _page(self, topic: Topic) -> str:
        """The page's address, where the site has one: the command needs the controller's package."""
        return f" ({runbook(self.links, topic)})" if "://" in self.links.runbooks else ""

    def _job(self, number: str) -> str:
        incident = self.book.incidents.get(number)
        return str(incident.run.job_id) if incident is not None and incident.run is not None else "JOB"

    def _evidence(self, matter: Matter) -> list[str]:
        found = [f for f in self.book.findings.values() if matter.incident_id and f.incident_id == matter.incident_id]
        return [_finding(f) for f in sorted(found, key=lambda f: (f.fault_at, f.id))[:_EVIDENCE_MOST]]


def _finding(finding: Finding) -> str:
    return f"{finding.check} on {finding.node} at {finding.fault_at:%Y-%m-%d %H:%M:%S} UTC: {finding.summary}"[:300]


def runbook_command(topic: Topic) -> str:
    """The command that prints the topic's runbook on any machine with the controller's package."""
    page = RUNBOOKS[topic].rpartition("/")[2].removesuffix(".md")
    return "holdfast runbook" + (f" {page}" if page != "README" else "")


def runbook(links: NoticeLinks, topic: Topic) -> str:
    """Where the runbook of the topic is."""
    page = RUNBOOKS[topic]
    return f"{links.runbooks.rstrip('/')}/{page}"


def _subject(topic: Topic, matters: Sequence[Matter], count: int, over: bool) -> str:
    head = "over: " if over else ""
    if count == 1:
        return head + matters[0].subject
    names = list(dict.fromkeys(name for each in matters for name in each.nodes))
    named = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return f"{head}{count} {TOPIC_TEXTS[topic].title}" + (f": {named}" if named else "")


def _lines(matters: Iterable[Matter], count: int) -> list[str]:
    lines = [f"- {each.subject}" for each in list(matters)[:_LISTED]]
    return [*lines, f"- and {count - len(lines)} more"] if count > len(lines) else lines


def level_word(level: NoticeLevel) -> str:
    """The level as people read it."""
    return LEVEL_WORDS[level]
