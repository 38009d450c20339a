"""A site whose human-readable texts change every second: decisions must not depend on them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast.model.actions.action import Intent
from holdfast.model.agents.report import Report
from holdfast.ports import Accepted, IntentOutcome, Operation
from holdfast.store import books
from support.simulated.site import Site
from support.simulated.store import MemoryStore

Reword = Callable[[str], str]

SENTENCES = (
    "the job has already failed",
    "the job has lost the node",
    "registered checkpoint",
    "policy of partition gpu",
    "the node has reported again in the meantime",
    "node.dead: silent to the controller, and unreachable for peer n2",
    "refused: unsupported verb 'run_checks'; this agent knows validate",
    "refused: expired before it could be carried out",
    "most of its nodes fail the pair probe: look for what they share; none is taken out",
    "attempt 7 failed: the same hardware came back: GPU-1",
    "brake 'drains' holds: 8 nodes are suspect",
    "job.unexplained: job 1 of ada on 2 nodes failed (FAILED), and no finding says why",
    "Xid 79 GPU-1: fell off the bus",
    "bad",
    "done",
)
"""Sentences that once decided something, and similar ones."""


def another_sentence(text: str) -> str:
    """One of :data:`SENTENCES`."""
    return SENTENCES[zlib.crc32(text.encode()) % len(SENTENCES)]


def plain_words(text: str) -> str:
    return f"reworded {zlib.crc32(text.encode()):08x}"


class RewordedStore(MemoryStore):
    """Rewords texts as they come in, and all of them again by :meth:`reword`."""

    def __init__(self, words: Reword) -> None:
        super().__init__()
        self._reword = words
        self._round = 0

    def _words(self, text: str) -> str:
        """Another text in each round. What is empty remains empty: code may ask whether there is a text."""
        return self._reword(f"{self._round} {text}") if text else text

    def accept(self, report: Report) -> Accepted:
        findings = tuple(replace(f, summary=self._words(f.summary)) for f in report.findings)
        outcomes = tuple(replace(o, summary=self._words(o.summary)) for o in report.outcomes)
        return super().accept(replace(report, findings=findings, outcomes=outcomes))

    def finish_intent(self, key: str, fence: int, outcome: IntentOutcome, at: datetime) -> None:
        super().finish_intent(key, fence, replace(outcome, text=self._words(outcome.text)), at)

    def operate(self, operation: Operation, at: datetime) -> None:
        super().operate(replace(operation, reason=self._words(operation.reason)), at)

    def reword(self) -> None:
        self._round += 1
        words = self._words
        for name, i in self._incidents.items():
            self._incidents[name] = replace(i, note=words(i.note), headline=words(i.headline))
        for name, r in self._recoveries.items():
            self._recoveries[name] = replace(r, note=words(r.note), consent=words(r.consent))
        for key, intent in self._intents.items():
            self._intents[key] = replace(intent, reason=words(intent.reason), outcome=words(intent.outcome))
        for kind, brake in self._brakes.items():
            self._brakes[kind] = replace(brake, reason=words(brake.reason))
        for row in self._rows.values():
            row.finding = replace(row.finding, summary=words(row.finding.summary))
        for name, record in self._nodes.items():
            self._nodes[name] = replace(record, check_note=words(record.check_note))
        if "paused" in self._notes:
            self._notes["paused"] = words(self._notes["paused"])
        seen = books.read_provider(self._notes.get(books.PROVIDER))
        if seen is not None:
            notices = tuple(replace(n, text=words(n.text)) for n in seen.notices)
            self._notes[books.PROVIDER] = books.write_provider(replace(seen, notices=notices, error=words(seen.error)))


class RewordedSite(Site):
    """As :class:`Site`; before each second's cycles every text in its store is replaced."""

    def __init__(self, nodes: int = 4, *, words: Reword, **options: Any) -> None:
        super().__init__(nodes, store=RewordedStore(words), **options)

    def world_moves(self) -> None:
        super().world_moves()
        assert isinstance(self.store, RewordedStore)
        self.store.reword()


def decided(site: Site) -> dict[str, Sequence[object]]:
    """Everything that the site's controller and actor decided, and its results, without human-readable texts."""
    return {
        "events": [(e.at, e.kind, e.incident_id, e.node, e.job) for e in site.store.events()],
        "incidents": [
            replace(i, note="", headline="") for i in sorted(site.store.incidents(limit=10_000), key=lambda i: i.id)
        ],
        "recoveries": [replace(r, note="", consent="") for r in site.store.recoveries()],
        "intents": [_step(i) for i in site.store.intents(limit=10_000)],
        "brakes": sorted((b.kind, b.tripped_at, b.released_at is None) for b in site.book.brakes.values()),
        "slurm": [call for call in site.slurm.calls if call[0] != "tell_owner"],
        "jobs": [(j.job_id, j.state, j.restarts, j.nodes, j.excluded) for j in site.slurm.jobs.values()],
        "nodes": [(n.name, n.drain, n.down) for n in site.slurm.nodes.values()],
        "machines": [(m.instance_id, m.node, m.boot_id) for m in site.machines.values()],
        "people": [len(site.notices.sent)],
    }


def _step(intent: Intent) -> tuple[object, ...]:
    return (intent.key, intent.kind, intent.action.target, intent.state, intent.retryable, intent.planned_at)
