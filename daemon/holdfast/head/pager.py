"""Pages that need neither the store nor the other process: each process of the head node pages on its own, once per outage.

A page is normally a step in the store that the actor carries out. An outage that prevents this needs another way."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from holdfast.model.parts import Condition, PartName, PartState, ProcessSeen
from holdfast.ports import Notifier
from holdfast_checks.whole_file import write_whole

log = logging.getLogger(__name__)

LASTS_S = 60.0
"""A shorter outage is a restart or a failover of the database."""
REPEAT_S = 60.0
"""A page that could not be delivered is tried again after this long."""
GONE_S = 60.0
"""How long the controller may be gone: a restart takes seconds, and a migration starts before the actor waits for it."""
PAGED = frozenset({PartName.STORE, PartName.DISK, PartName.LOOP, PartName.ACTOR, PartName.NOTIFIER, PartName.SLURM})
"""Parts whose failure prevents normal pages or all decisions."""
_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Page:
    """The message for one outage."""

    subject: str
    body: str
    lasts_s: float = 0.0
    """How long the outage has lasted when it is first seen."""


@dataclass(frozen=True, slots=True)
class PagedOutage:
    """Record of one outage, kept for the next process of the same name."""

    since_s: float
    """By the machine's monotonic clock."""
    text: str = ""
    sent: bool = False
    tried_s: float | None = None


def due(
    known: Mapping[str, PagedOutage], found: Mapping[str, Page], now_s: float, *, settled: bool = True
) -> tuple[dict[str, PagedOutage], tuple[str, ...]]:
    """Current outages, and those to be paged now. Pure. A start in the future is from another boot and is replaced by now.

    ``settled``: False while the process cannot know yet that an outage is over, for example after its restart in the middle of one."""
    held = {name: outage for name, outage in known.items() if outage.since_s <= now_s}
    now = {} if settled else dict(held)
    now |= {name: held.get(name, PagedOutage(now_s - page.lasts_s, page.subject)) for name, page in found.items()}
    now = {name: outage for name, outage in now.items() if _CAUSES.get(name) not in now}
    ripe = (
        name
        for name, outage in now.items()
        if name in found
        and not outage.sent
        and not _explained(name, now)
        and now_s - outage.since_s >= LASTS_S
        and (outage.tried_s is None or now_s - outage.tried_s >= REPEAT_S)
    )
    return now, tuple(ripe)


_CAUSES = {PartName.LOOP.value: PartName.STORE.value}
"""A loop that fails because it has no store counts as the store's outage."""


_TOGETHER = {PartName.STORE.value: PartName.DISK.value}
"""A store that fails as its disk is found full is the disk's outage; one that fails later, on a disk paged before, is worse, and paged."""
TOGETHER_S = 120.0
"""Two outages that begin this close to each other are one; the store's counts from its last write, the disk's from its reading."""


def _explained(name: str, now: Mapping[str, PagedOutage]) -> bool:
    """Whether another outage is the cause, and is paged instead."""
    cause = now.get(_TOGETHER.get(name, ""))
    return cause is not None and abs(cause.since_s - now[name].since_s) <= TOGETHER_S


def ended(known: Mapping[str, PagedOutage], now: Mapping[str, PagedOutage]) -> tuple[PagedOutage, ...]:
    """Outages that were paged and are over."""
    return tuple(outage for name, outage in known.items() if outage.sent and name not in now)


def pages_of(parts: tuple[PartState, ...], who: str) -> dict[str, Page]:
    """Pages of the controller. ``who``: name of this head node, for operators."""
    failed = {p.name: p for p in parts if p.condition is Condition.FAILED and p.name in PAGED}
    return {
        name.value: Page(
            f"Holdfast on {who}: {name.value} failed",
            f"{p.text}\nNext step: {p.next_step}\nholdfast status",
            p.lasts_s,
        )
        for name, p in failed.items()
    }


def pages_of_actor(controller: ProcessSeen, problem: str, who: str) -> dict[str, Page]:
    """Pages of the actor: its controller is gone, which would otherwise page that the store is away. ``problem``: the actor's own."""
    if controller.silent_s < GONE_S:
        return {}
    gone = f"the controller of this machine has given no sign of life for {controller.silent_s:.0f} s"
    also = f"\nThe actor: {problem}" if problem else ""
    body = f"{gone}: nothing is decided.{also}\nNext step: journalctl -u holdfast-controller   # holdfast runbook cannot-start"
    return {"controller": Page(f"Holdfast on {who}: the controller is gone", body, controller.silent_s)}


@dataclass
class Pager:
    """Sends the pages. Called from one thread, which may hang in the notifier for a while without harm."""

    notifier: Notifier
    path: Path
    """Record of the pages sent; in ``run.dir``, which is not on a disk that can fill up."""
    clock_s: Callable[[], float]
    _known: dict[str, PagedOutage] = field(default_factory=dict)
    _read: bool = False

    def look(self, found: Mapping[str, Page], *, settled: bool = True) -> None:
        """Send what is due. ``found``: the current outages; ``settled``: whether any other outage is over. Never raises."""
        before = self._remembered()
        self._known, ripe = due(before, found, self.clock_s(), settled=settled)
        over = ended(before, self._known)
        for name in ripe:
            sent = self._send(found[name])
            self._known[name] = replace(self._known[name], sent=sent, tried_s=self.clock_s(), text=found[name].subject)
        for outage in over:
            self._send(Page(f"over: {outage.text}", "holdfast status"), over_of=outage.text)
        if self._known != before:
            self._write()

    def _send(self, page: Page, over_of: str = "") -> bool:
        try:
            self.notifier.notify(page.subject, page.body, over_of=over_of)
        except Exception as error:  # noqa: BLE001 - whatever the address does, the process lives on and tries again
            log.error("event=page_failed subject=%r error=%r", page.subject, f"{type(error).__name__}: {error}"[:300])
            return False
        return True

    def _remembered(self) -> dict[str, PagedOutage]:
        if not self._read:
            self._read = True
            try:
                with self.path.open("rb") as file:
                    found = json.loads(file.read(_MOST_BYTES))
                self._known = {str(name): PagedOutage(**given) for name, given in found.items()}
            except (OSError, ValueError, TypeError, AttributeError):
                self._known = {}
        return dict(self._known)

    def _write(self) -> None:
        text = json.dumps({name: asdict(outage) for name, outage in self._known.items()})
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, text, 0o660)
        except OSError as error:
            log.warning("event=pages_not_remembered path=%s error=%r", self.path, str(error))
