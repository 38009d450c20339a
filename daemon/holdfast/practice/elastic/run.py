"""One elastic job on a practice site: submitted as its owner would, observed by the records of its groups."""

from __future__ import annotations

import json
import random
import sys
import time
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.controller.quorum.quorum_link import QuorumLink
from holdfast.model.elastic_jobs.rooms import RoomView
from holdfast.model.errors import ConfigError, NotFound, Unavailable
from holdfast.model.slurm.cluster import Job
from holdfast.practice import jobs
from holdfast.practice.cluster.site import PracticeSite
from holdfast.practice.cluster.slurmconf import FLEXIBLE
from holdfast.practice.elastic.steps import StepAttempt, StepReader, first_s

MICRO_BATCHES = 12
"""Batch of the shipped example in each step: 24 samples, 2 at a time."""
_EXAMPLE = Path(__file__).parents[4] / "training" / "examples" / "watched.py"
_POLL_S = 0.05


class ElasticRun:
    """The example ``training/examples/watched.py`` as an elastic job."""

    def __init__(
        self, site: PracticeSite, sizes: str, *, spares: int = 0, micro_s: float = 0.02, steps: int = 10**6
    ) -> None:
        """``micro_s``: how long a micro-batch takes. Raises ConfigError outside a checkout, which has the example."""
        if not _EXAMPLE.exists():
            raise ConfigError(f"{_EXAMPLE} is missing: this runs from a checkout of the repository")
        self.site = site
        self.folder = site.folder / "jobs" / "elastic"
        self._reader = StepReader(self.folder)
        self._sizes, self._spares, self._micro_s, self._steps = sizes, spares, micro_s, steps
        self.link = QuorumLink(site.quorum_socket)
        self.arrays: tuple[int, ...] = ()
        """Array job ids: the base array's, and the flexible one's where there is one."""

    def submit(self) -> tuple[int, ...]:
        """Run ``holdfast submit``. Returns the ids of its arrays."""
        self.folder.mkdir(exist_ok=True)
        tokens = self.folder / "tokens"
        chance = random.Random(5)  # noqa: S311 - any tokens do, the same ones in every run
        tokens.write_bytes(array("H", (chance.randrange(64) for _ in range(20_000))).tobytes())
        program = f"{_EXAMPLE} {tokens} {self.folder} --micro-s {self._micro_s} --steps {self._steps}"
        script = self.site.folder / "jobs" / "elastic.sbatch"
        script.write_text(Path(jobs.__file__).with_name("elastic.sbatch").read_text())
        said = self.site.practice.command(
            "env", f"HOLDFAST_PYTHON={sys.executable}", f"HOLDFAST_ELASTIC_PROGRAM={program}",
            "holdfast", "submit", "--json", "--elastic", self._sizes, "--spares", str(self._spares), "--base-partition", "train",
            "--flex-partition", FLEXIBLE, f"--output={self.site.folder}/jobs/elastic-%a.out", str(script),
        )  # fmt: skip
        told = json.loads(said)
        self.arrays = tuple(told[which] for which in ("base", "flexible") if told[which] is not None)
        return self.arrays

    def other_job(self, nodes: int, seconds: float) -> int:
        """Submit a higher-priority job, which takes whole nodes."""
        return self.site.practice.sbatch(
            f"exec srun sleep {seconds}", f"--nodes={nodes}", "--exclusive", "--partition=train", "--job-name=important"
        )

    def inside(self) -> frozenset[int]:
        """Groups in the rendezvous's last quorum, as reported by the quorum service."""
        return self._groups(self._room().members)

    def outside(self) -> frozenset[int]:
        """Groups in the rendezvous that do not take part: warm spares that are ready."""
        room = self._room()
        return self._groups(room.known) - self._groups(room.members)

    def _room(self) -> RoomView:
        """Rendezvous of the newest job; empty before any group has joined."""
        mine = [
            room
            for room in self.link.rooms()
            if (name := room.name_of_job) is not None and name.base_array_id == self.arrays[0]
        ]
        return max(mine, key=lambda room: room.name, default=RoomView("", ()))

    @staticmethod
    def _groups(members: Iterable[str]) -> frozenset[int]:
        return frozenset(int(member.partition("~")[0]) for member in members)

    def attempts(self) -> list[StepAttempt]:
        return self._reader.all()

    def job_of(self, group: int) -> Job | None:
        """The array element of a group that Slurm started last, in its present state."""
        found = [
            job
            for job in self.site.scheduler.view().jobs.values()
            if job.array_task_id == group and job.array_job_id in self.arrays
        ]
        return max(found, key=lambda job: job.key.submit_time, default=None)

    def state(self, job_id: int) -> str:
        """Slurm's state of a job; empty once it is forgotten."""
        try:
            return self.site.scheduler.job(job_id).state
        except NotFound:
            return ""

    def trains_with(self, present: int, since_s: float, *, steps_done: int = 3, within_s: float = 90.0) -> StepAttempt:
        """Wait until this many groups have taken part in several consecutive steps. Returns the first of these. Raises Unavailable."""
        found: list[StepAttempt] = []

        def yes() -> bool:
            later = [a for a in self.attempts() if a.at_s >= since_s and a.share]
            found[:] = [a for a in later if a.present == present]
            return len({a.step for a in found}) >= steps_done and bool(later) and later[-1].present == present

        self.wait(f"{present} groups training", yes, within_s)
        return found[0]

    def first_step_s(self, group: int, since_s: float, within_s: float = 90.0) -> float:
        """Wait until a group has started a step after that time. Returns when it did. Raises Unavailable."""
        self.wait(f"a step of group {group}", lambda: first_s(self.attempts(), group, since_s) is not None, within_s)
        return first_s(self.attempts(), group, since_s) or since_s

    def wait(self, what: str, ready: Callable[[], bool], within_s: float = 90.0) -> None:
        """Raises Unavailable."""
        until = time.monotonic() + within_s
        while not ready():
            if time.monotonic() > until:
                raise Unavailable(f"{what}: not within {within_s:.0f} s; see {self.site.folder}/jobs and log")
            time.sleep(_POLL_S)
