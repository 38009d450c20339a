"""The record of a quiet period: the node's state, open incidents and everything that Holdfast records, every ten seconds, as a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lifecycle.boot_trixie import Site

EVERY_S = 10.0


class QuietWatch:
    """Samples of one site, each one line in ``log``, and one for each event."""

    def __init__(self, site: Site, log: Path) -> None:
        self._site = site
        self._log = log
        self._last_event = max((int(event["id"]) for event in site.events()), default=0)
        self._failed_before: list[str] = []
        self.samples = 0
        self.states: set[str] = set()
        """Slurm's, of the node."""
        self.jobs: set[int] = set()
        """Those that the controller saw run."""
        self.recorded: list[str] = []
        """Kind of every event since the first sample."""
        self.failed: list[str] = []
        """Parts that ``holdfast status`` called failed, one for each sample."""
        log.write_text("")

    def sample(self) -> None:
        """One sample. A node out of service, an open incident, a step or a message, or a part that failed twice in a row: fails with the
        last lines of the log."""
        state = self._site.machine.call("sinfo -h -o '%T|%E'").strip()
        (node,) = json.loads(self._site.holdfast("nodes --json"))["nodes"]
        found = [_short(one) for one in self._site.incidents()]
        failed = self._failed_parts()
        events = self._site.events(self._last_event)
        self._last_event = max((int(event["id"]) for event in events), default=self._last_event)
        self.samples += 1
        self.states.add(state.partition("|")[0])
        self.jobs |= set(node["jobs"])
        self.recorded += [str(event["kind"]) for event in events]
        self.failed += failed
        for event in events:
            self.note(f"event {json.dumps(event)}")
        self.note(
            f"slurm={state} seen={node['state']} jobs={node['jobs']} why={node['why']!r} incidents={found} failed={failed}"
        )
        wrong = [word for word in (state,) if word.startswith(("drain", "down"))]
        wrong += found + [str(e) for e in events if str(e["kind"]).startswith("action.") and not _of_the_pool(e)]
        wrong += sorted(set(failed) & set(self._failed_before))
        self._failed_before = failed
        assert not wrong, "\n".join(self._log.read_text().splitlines()[-20:])

    def _failed_parts(self) -> list[str]:
        shown = json.loads(self._site.asked("/v1/status"))
        return [part["name"] for part in shown["parts"] if part["condition"] == "failed"]

    def note(self, line: str) -> None:
        """A line with the time in front."""
        with self._log.open("a") as log:
            log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {line}\n")


def _of_the_pool(event: dict[str, Any]) -> bool:
    """After half an hour an operator is notified that the pool lacks a spare: the page asks for one, and here the node is the cluster."""
    return str(event["detail"].get("key", "")).startswith("upkeep/Notify/spares.")


def _short(incident: dict[str, Any]) -> str:
    return f"{incident['id']}:{incident['state']}:{incident.get('check', '')}"
