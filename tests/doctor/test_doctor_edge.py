"""The doctor's edge: a failure outside is a fact, and rights are tested by an attempt that changes nothing."""

from __future__ import annotations

import grp
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from holdfast.config.controller import load
from holdfast.doctor import AdviceLevel, DoctorSite, gather, run, site_of
from holdfast.doctor.edge import NO_SUCH_RESERVATION, may_change, may_reserve
from holdfast.doctor.gather.provider_edge import NO_SUCH_NODE
from holdfast.model.errors import HoldfastError, NotFound, NotPermitted, Rejected, Unavailable
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import ClusterView, Partition
from holdfast.ports import Scheduler

NOW = datetime(2026, 3, 1, tzinfo=UTC)


class FewWords:
    """The five calls of the Scheduler port that the doctor makes, with a chosen answer to the drain."""

    def __init__(
        self,
        drain: HoldfastError | None = None,
        view: HoldfastError | None = None,
        delete: HoldfastError | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.answer, self.view_fails, self.delete_answer = drain, view, delete
        self.settings = {"JobRequeue": "0", **(config or {})}
        self.drained: list[str] = []
        self.deleted: list[str] = []

    def view(self) -> ClusterView:
        if self.view_fails is not None:
            raise self.view_fails
        return ClusterView("test", NOW, {}, {}, {})

    def version(self) -> str:
        return "22.05.8"

    def config(self) -> dict[str, str]:
        return self.settings

    def partitions(self) -> tuple[Partition, ...]:
        return ()

    def drain(self, node: str, reason: str) -> None:
        self.drained.append(node)
        if self.answer is not None:
            raise self.answer

    def delete_reservation(self, name: str) -> None:
        self.deleted.append(name)
        if self.delete_answer is not None:
            raise self.delete_answer


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


@pytest.mark.parametrize(
    ("answer", "may"),
    [(None, True), (NotPermitted("Access/permission denied"), False), (Unavailable("no answer"), None)],
)
def test_so_is_the_right_to_reservations(answer: HoldfastError | None, may: bool | None) -> None:
    fake = FewWords(delete=answer)
    assert may_reserve(scheduler(fake)) is may
    assert fake.deleted == [NO_SUCH_RESERVATION]


def test_slurm_away_is_a_fact() -> None:
    facts = gather(scheduler(FewWords(view=Unavailable("slurmctld timed out"))), DoctorSite(), None, NOW)
    assert facts.slurm is None
    assert facts.slurm_problem == "slurmctld timed out"


def test_run_says_what_it_found() -> None:
    advice = run(scheduler(FewWords(NotFound("x"))), DoctorSite())
    assert advice[0].id == "slurm.job_requeue"
    assert advice[0].level is AdviceLevel.ERROR


def test_site_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    file.write_text('[store]\nurl = "sqlite:////var/lib/holdfast/holdfast.db"\n[mode]\nmode = "act"\n')
    site = site_of(load(file))
    assert site.store_path == Path("/var/lib/holdfast/holdfast.db")
    assert site.policy.mode is Mode.ACT
    file.write_text('[store]\nurl = "postgresql://holdfast@db/holdfast"\n')
    assert site_of(load(file)).store_path is None


@pytest.mark.parametrize(
    ("mounts", "told"), [("head:/x / nfs4 rw", "site.store_on_network"), ("none / tmpfs rw", "site.store_in_memory")]
)
def test_where_the_store_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mounts: str, told: str) -> None:
    monkeypatch.setattr("holdfast.doctor.edge._mounts", lambda: mounts)
    advice = run(scheduler(FewWords(NotFound("x"))), DoctorSite(store_path=tmp_path / "holdfast.db"))
    assert told in {one.id for one in advice}
    assert "site.store_on_network" not in {one.id for one in run(scheduler(FewWords(NotFound("x"))), DoctorSite())}


SECRET_SETTINGS = """[store]
url = "postgresql://holdfast:SECRET@db/holdfast"
[notify]
urls_file = "urls"
"""


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """A folder of settings as the installation makes it."""
    folder = tmp_path / "holdfast"
    folder.mkdir(mode=0o755)
    (folder / "controller.toml").write_text(SECRET_SETTINGS)
    (folder / "urls").write_text("json://hooks.example/SECRET\n")
    for file in folder.iterdir():
        file.chmod(0o640)
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_uid == os.geteuid() and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o111)
    return folder


def exposed(etc: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    facts = gather(cast(Scheduler, FewWords()), site_of(load(etc / "controller.toml")), {}, NOW)
    return facts.changeable, facts.readable


def test_files_as_they_are_installed_are_nobody_elses(etc: Path) -> None:
    assert exposed(etc) == ((), ())


@pytest.mark.parametrize(
    ("opened", "mode", "said"),
    [
        ("controller.toml", 0o666, "controller.toml may be written by everybody"),
        ("controller.toml", 0o660, "controller.toml may be written by its group"),
        (".", 0o777, "holdfast may be written by everybody"),
        (".", 0o775, "holdfast may be written by its group"),
    ],
)
def test_settings_that_others_can_change_are_told(etc: Path, opened: str, mode: int, said: str) -> None:
    for place in (etc, etc / "controller.toml"):
        os.chown(place, -1, os.getgid() or next(g.gr_gid for g in grp.getgrall() if g.gr_gid))
    (etc / opened).chmod(mode)
    changed, _ = exposed(etc)
    assert len(changed) == 1
    assert said in changed[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_settings_that_are_the_controllers_own_are_told(etc: Path) -> None:
    os.chown(etc / "controller.toml", 65534, -1)
    assert "belongs to uid 65534, who could change it" in exposed(etc)[0][0]


def test_secrets_that_everybody_can_read_are_told(etc: Path) -> None:
    for name in ("controller.toml", "urls"):
        (etc / name).chmod(0o644)
    assert exposed(etc)[1] == (str(etc / "controller.toml"), str(etc / "urls"))
    (etc / "controller.toml").write_text('[notify]\nurls_file = "urls"\n')
    assert exposed(etc)[1] == (str(etc / "urls"),)
    etc.chmod(0o750)
    assert exposed(etc)[1] == ()
