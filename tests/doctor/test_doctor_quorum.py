"""The doctor's findings on the quorum service."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from doctor.test_doctor import NODES, good
from doctor.test_doctor_edge import NOW, FewWords, scheduler
from holdfast.config.controller import load
from holdfast.doctor import AdviceLevel, DoctorFacts, DoctorSite, diagnose, gather, site_of
from holdfast.doctor.facts import QuorumFacts
from holdfast.model.elastic_jobs.rooms import RoomView
from holdfast.model.errors import OutsideError, Rejected, Unavailable
from support.rooms import MemoryRooms

WELL = QuorumFacts("10.0.0.5")


def told(quorum: QuorumFacts | None, *, elastic_jobs: int = 0, address: str = "n1") -> list[tuple[str, AdviceLevel]]:
    facts: DoctorFacts = good()
    assert facts.slurm is not None
    nodes = {name: replace(node, address=address) for name, node in NODES.items()}
    slurm = replace(facts.slurm, nodes=nodes, elastic_jobs=elastic_jobs)
    return [(one.id, one.level) for one in diagnose(replace(facts, slurm=slurm, quorum=quorum))]


def test_of_one_that_is_well_and_of_none_nothing() -> None:
    assert told(WELL) == told(None) == []


@pytest.mark.parametrize(
    ("quorum", "told_id", "alone", "with_jobs"),
    [
        (replace(WELL, problem="no answer"), "quorum.away", AdviceLevel.WARNING, AdviceLevel.ERROR),
        (replace(WELL, bind="127.0.0.1"), "quorum.loopback", AdviceLevel.HINT, AdviceLevel.ERROR),
        (replace(WELL, unwritten={"job-7": "disk full"}), "quorum.unwritten", AdviceLevel.ERROR, AdviceLevel.ERROR),
    ],
)
def test_what_hurts_elastic_jobs(quorum: QuorumFacts, told_id: str, alone: AdviceLevel, with_jobs: AdviceLevel) -> None:
    assert told(quorum) == [(told_id, alone)]
    assert told(quorum, elastic_jobs=2) == [(told_id, with_jobs)]


def test_nodes_that_are_the_head_node_reach_loopback() -> None:
    assert told(replace(WELL, bind="127.0.0.1"), address="127.0.0.1") == []


class Refusing(MemoryRooms):
    """Stub that gives one answer."""

    def __init__(self, answer: OutsideError | tuple[RoomView, ...]) -> None:
        super().__init__()
        self.answer = answer

    def rooms(self) -> tuple[RoomView, ...]:
        if isinstance(self.answer, OutsideError):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        (Unavailable("no such file"), replace(WELL, problem="no such file")),
        (Rejected("user 7 may not speak to the quorum service"), WELL),
        ((RoomView("a", ()), RoomView("b", (), unwritten="disk full")), replace(WELL, unwritten={"b": "disk full"})),
    ],
)
def test_one_that_refuses_this_user_is_there(answer: OutsideError | tuple[RoomView, ...], facts: QuorumFacts) -> None:
    site = DoctorSite(rooms=Refusing(answer), rooms_bind=WELL.bind)
    assert gather(scheduler(FewWords()), site, None, NOW).quorum == facts


def test_site_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    file.write_text(f'[quorum]\nsocket = "{tmp_path}/none.sock"\n')
    quorum = gather(scheduler(FewWords()), site_of(load(file)), None, NOW).quorum
    assert quorum is not None
    assert "does not answer" in quorum.problem
    file.write_text("[quorum]\nenabled = false\n")
    assert gather(scheduler(FewWords()), site_of(load(file)), None, NOW).quorum is None
