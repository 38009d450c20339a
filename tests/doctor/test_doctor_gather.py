"""The doctor's edge: an outside that fails is a fact, and rights are found by a trial that changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from holdfast.doctor import Level, Site, gather, run
from holdfast.doctor.gather import NO_SUCH_NODE, filesystem_of, may_change
from holdfast.model.cluster import ClusterView
from holdfast.model.errors import HoldfastError, NotFound, NotPermitted, Rejected, Unavailable
from holdfast.ports import Scheduler

NOW = datetime(2026, 3, 1, tzinfo=UTC)


class FewWords:
    """The four calls of the Scheduler port that the doctor makes, with a chosen answer to the drain."""

    def __init__(self, drain: HoldfastError | None = None, view: HoldfastError | None = None) -> None:
        self.answer, self.view_fails = drain, view
        self.drained: list[str] = []

    def view(self) -> ClusterView:
        if self.view_fails is not None:
            raise self.view_fails
        return ClusterView("test", NOW, {}, {}, {})

    def version(self) -> str:
        return "22.05.8"

    def config(self) -> dict[str, str]:
        return {"JobRequeue": "0"}

    def drain(self, node: str, reason: str) -> None:
        self.drained.append(node)
        if self.answer is not None:
            raise self.answer


def scheduler(fake: FewWords) -> Scheduler:
    return cast(Scheduler, fake)


@pytest.mark.parametrize(
    ("answer", "may"),
    [
        (NotFound("Invalid node name specified"), True),
        (NotPermitted("Invalid user id"), False),
        (Rejected("something else"), None),
        (Unavailable("no answer"), None),
        (None, None),
    ],
)
def test_rights_are_tried_on_a_node_that_is_not_there(answer: HoldfastError | None, may: bool | None) -> None:
    fake = FewWords(drain=answer)
    assert may_change(scheduler(fake)) is may
    assert fake.drained == [NO_SUCH_NODE]


def test_slurm_away_is_a_fact() -> None:
    facts = gather(scheduler(FewWords(view=Unavailable("slurmctld timed out"))), Site(), None, NOW)
    assert facts.slurm is None
    assert facts.slurm_problem == "slurmctld timed out"


@pytest.mark.parametrize(
    ("error", "problem"),
    [(None, ""), (NotPermitted("UnauthorizedOperation"), "UnauthorizedOperation"), (NotFound("no such machine"), "")],
)
def test_provider_is_asked(error: HoldfastError | None, problem: str) -> None:
    def ask() -> None:
        if error is not None:
            raise error

    facts = gather(scheduler(FewWords(NotFound("x"))), Site(ask_provider=ask), None, NOW)
    assert facts.provider_problem == problem


def test_run_says_what_it_found() -> None:
    advice = run(scheduler(FewWords(NotFound("x"))), Site())
    assert advice[0].id == "slurm.job_requeue"
    assert advice[0].level is Level.ERROR


MOUNTS = """\
/dev/vda1 / ext4 rw 0 0
head:/export /home nfs4 rw 0 0
tmpfs /home/local tmpfs rw 0 0
/dev/vdb /data\\040two xfs rw 0 0
short line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/holdfast/holdfast.db", "ext4"),
        ("/home/ops/holdfast.db", "nfs4"),
        ("/home/local/holdfast.db", "tmpfs"),
        ("/home/localhost/holdfast.db", "nfs4"),
        ("/data two/holdfast.db", "xfs"),
    ],
)
def test_filesystem_of_a_path(tmp_path: Path, path: str, kind: str) -> None:
    (tmp_path / "mounts").write_text(MOUNTS)
    assert filesystem_of(Path(path), tmp_path / "mounts") == kind


def test_later_mount_on_the_same_point_wins(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text("/dev/a / ext4 rw 0 0\n/dev/b /data ext4 rw 0 0\nnas:/x /data nfs rw 0 0\n")
    assert filesystem_of(Path("/data/x.db"), tmp_path / "mounts") == "nfs"


def test_no_mount_table_is_no_news(tmp_path: Path) -> None:
    assert filesystem_of(Path("/x"), tmp_path / "missing") == ""
