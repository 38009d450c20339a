"""A user renames a job between the two readings that one job is put together from. It is neither forged nor lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.slurm.commands import SlurmCommands
from support.squeue import ROW, printed

RECORD = (Path(__file__).parent / "data" / "job_22.05.txt").read_text().strip()
FORGED = (
    f"x{RECORD.partition('JobName=train')[2].partition(' Command=')[0].replace('alice(1001)', 'root(0)')} Command=/y"
)


@dataclass
class Renaming:
    """Slurm with one job, 11, which is called the next of ``names`` at each reading, and the last one from then on."""

    names: Sequence[str]
    asked: list[str] = field(default_factory=list)

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> str:
        if "config" in argv:
            return "ClusterName = c\n"
        if "node" in argv or "reservation" in argv:
            return ""
        name = self.names[min(len(self.asked), len(self.names) - 1)]
        self.asked.append(argv[0])
        if argv[0] == "scontrol":
            return RECORD.replace("JobName=train", f"JobName={name}") + "\n"
        return printed(env, ROW._replace(name=name))


def _slurm(*names: str) -> SlurmCommands:
    twin = SlurmCommands()
    twin._commands = Renaming(names)  # type: ignore[assignment]
    return twin


@pytest.mark.parametrize("then", ["y", "x"])
@pytest.mark.parametrize("first", ["train", FORGED])
def test_a_job_that_is_renamed_is_in_the_view_by_its_own_user(first: str, then: str) -> None:
    twin = _slurm(first, then)
    for _ in range(2):
        job = twin.view().jobs[11]
        assert (job.name, job.uid, job.gpus_known) == (then, 1001, True)


def test_a_job_that_is_renamed_at_every_reading_is_there_all_the_same() -> None:
    for twin in (_slurm(*([FORGED, "x"] * 9)), _slurm(*(["x", FORGED] * 9))):
        for job in (twin.view().jobs[11], twin.job(11), *twin.jobs_on("n1")):
            assert (job.uid, job.state, job.nodes, job.restarts) == (1001, "RUNNING", ("n1", "n2", "n3"), 2)
