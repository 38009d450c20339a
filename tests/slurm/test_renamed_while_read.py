"""A user renames a job between the two readings that one job is put together from. It is neither forged nor lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.model.errors import Unavailable
from holdfast.slurm.commands import SlurmCommands

RECORD = (Path(__file__).parent / "data" / "job_22.05.txt").read_text().strip()
FORGED = (
    f"x{RECORD.partition('JobName=train')[2].partition(' Command=')[0].replace('alice(1001)', 'root(0)')} Command=/y"
)


@dataclass
class Renaming:
    """Slurm with one job, 11, which is called the next of ``names`` at each reading, and the last one from then on."""

    names: Sequence[str]
    asked: list[str] = field(default_factory=list)

    def run(self, *argv: str) -> str:
        if "config" in argv:
            return "ClusterName = c\n"
        if "node" in argv or "reservation" in argv:
            return ""
        name = self.names[min(len(self.asked), len(self.names) - 1)]
        self.asked.append(argv[0])
        if argv[0] == "scontrol":
            return RECORD.replace("JobName=train", f"JobName={name}") + "\n"
        mark = argv[-1].partition("%A")[0].removeprefix("%T")
        return f"RUNNING{mark}11{mark}1001{mark}{name}{mark}lab{mark}\n"


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
        assert (job.name, job.uid) == (then, 1001)


def test_a_job_that_is_renamed_at_every_reading_is_no_job_of_another_user() -> None:
    assert _slurm(*([FORGED, "x"] * 9)).view().jobs == {}
    job = _slurm("x", "y").job(11)
    assert (job.name, job.uid) == ("y", 1001)
    assert [job.uid for job in _slurm("x", "y").jobs_on("n1")] == [1001]
    with pytest.raises(Unavailable, match="job 11"):
        _slurm(*(["x", FORGED] * 9)).jobs_on("n1")
