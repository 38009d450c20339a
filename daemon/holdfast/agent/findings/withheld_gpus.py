"""GPUs of this node that Slurm gives to no job. Pure.

A site that waits for a new board takes the broken GPU out of gres.conf and lets the node serve with the others. Later findings on that GPU
affect no job and are known to the site, so they are warnings. Only slurmd's proved list (:mod:`holdfast.agent.sources.gres`) shows this,
and it is remembered: a GPU that does not come back at a boot has no minor number to search for."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.result import Result

log = logging.getLogger(__name__)

NOTE = "Slurm gives this GPU to no job (it is not in gres.conf)"


@dataclass(slots=True)
class WithheldGpus:
    """The GPUs, by the names that results use. Filled from the stored state and by :meth:`learn`."""

    _names: frozenset[str] = field(default_factory=frozenset)

    def learn(self, given: Collection[int], gpus: Iterable[GpuRef]) -> bool:
        """Process slurmd's proved list; whether anything is new. ``given``: minors of the GPUs that Slurm gives to jobs. Nothing is learned
        about a GPU whose minor is not known."""
        names = set(self._names)
        for gpu in gpus:
            if gpu.minor is not None:
                mine = {name for name in (gpu.uuid, gpu.pci) if name is not None}
                names = names - mine if gpu.minor in given else names | mine
        if names == self._names:
            return False
        log.info("event=gpus_not_given_out gpus=%s", ",".join(sorted(names)) or "none")
        self._names = frozenset(names)
        return True

    def holds(self, result: Result) -> bool:
        """Whether the result is about such a GPU."""
        return bool(self._names & {result.component, result.gpu_uuid, result.pci})

    def dump(self) -> str:
        """Serialize for :meth:`load`, after a restart."""
        return json.dumps(sorted(self._names))

    def load(self, text: str | None) -> None:
        """Load an earlier :meth:`dump`. If it cannot be read, every GPU counts."""
        try:
            self._names = frozenset(str(name) for name in json.loads(text or "[]"))
        except (ValueError, TypeError, RecursionError) as error:
            log.warning(
                "event=gpus_not_given_out_unreadable reason=%r effect='every GPU counts until slurmd is read again'",
                str(error)[:200],
            )
