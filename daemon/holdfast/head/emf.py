"""Writes the metrics of the cluster as CloudWatch's Embedded Metric Format, for its agent to send."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.core import Metric

from holdfast import unexpected
from holdfast.metrics.emf import Growth, Measured, emf_documents, measured
from holdfast.ports import Clock

log = logging.getLogger(__name__)

PART = "emf"
"""Part of the process (:mod:`holdfast.unexpected`)."""
STDOUT = "-"
MOST_BYTES = 64 * 2**20
"""The file is then renamed to ``FILE.1``, in place of an older one: it is on a disk that the store may need."""


@dataclass
class EmfWriter:
    """One for each controller process; :meth:`run` is its task."""

    families: Callable[[], Iterable[Metric]]
    """Of the cluster, with their labels."""
    leads: Callable[[], bool]
    clock: Clock
    file: str
    """Path, or ``-`` for standard output."""
    interval_s: float
    _growth: Growth = field(default_factory=Growth)
    _failing: bool = False

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(self.interval_s)
            try:
                await asyncio.to_thread(self.write)
            except OSError as error:
                self._note_failure(error)
            except Exception as error:  # noqa: BLE001 - these lines are missing then, nothing else
                unexpected.failed(PART, error)
            else:
                self._failing = False
                unexpected.passed(PART)

    def write(self) -> int:
        """Append the lines of now. Returns how many. Nothing where another controller leads. Raises OSError."""
        if not self.leads():
            self._growth = Growth()
            return 0
        values = self._growth.since_last(_values(self.families()))
        lines = [json.dumps(each, separators=(",", ":")) for each in emf_documents(values, self.clock.now())]
        text = "".join(f"{line}\n" for line in lines)
        if self.file == STDOUT:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            _append(Path(self.file), text)
        return len(lines)

    def _note_failure(self, error: OSError) -> None:
        if not self._failing:
            log.warning("event=emf_unwritten file=%s error=%r", self.file, error.strerror or str(error))
        self._failing = True


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
        full = file.tell() > MOST_BYTES
    if full:
        os.replace(path, path.with_name(f"{path.name}.1"))


_GROW = frozenset({"counter", "histogram"})


def _values(families: Iterable[Metric]) -> Iterator[Measured]:
    for family in families:
        for sample in family.samples:
            found = measured(sample.name, sample.labels, sample.value, grows=family.type in _GROW)
            if found is not None and not sample.name.endswith("_created"):
                yield found
