"""An exception in one rank: the group continues in its processes, and the training's result is unaffected."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("torchft", reason="the extra 'train' is not installed")

from support import elastic_ranks_worker as worker  # noqa: E402
from support.elastic_groups import Groups  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]


def started_together(groups: Groups, fault: str, faulty: int) -> tuple[list[str], list[str]]:
    """Two groups in one quorum, of which the second has the fault."""
    (groups.folder / "hold").touch()
    first, second = groups.start(0, "9.0"), groups.start(1, "10.0", fault, faulty)
    groups.wait(lambda: groups.is_there(first[-1]) and groups.is_there(second[-1]))
    (groups.folder / "hold").unlink()
    return first, second


def took_s(groups: Groups, faulty: str, name: str) -> float:
    """From the exception to that rank's next committed step."""
    failed = groups.lines(faulty, "failed")[0]
    after = [line["at_s"] for line in groups.lines(name, "commit") if line["step"] > failed["step"]]
    return float(min(after) - failed["at_s"])


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "ranks", "where", "kept"),
    [
        ("plain", 1, "loop", "8"),
        ("fsdp", 2, "loop", "8"),
        ("fsdp", 2, "optimizer", "none"),  # torn in one of the ranks: a peer has it
    ],
)
def test_a_group_goes_on_after_an_exception_in_one_rank(
    kind: str, ranks: int, where: str, kept: str, opened: Callable[[str, int, int], Groups]
) -> None:
    groups = opened(kind, ranks, 60)
    first, second = started_together(groups, f"{where}@8 once", ranks - 1)
    groups.ends([*first, *second], 0)
    groups.check(worker.M)
    pids = {line["pid"] for name in second for line in groups.lines(name, "began")}
    assert len(pids) == ranks
    assert all(len(groups.lines(name, "began")) == 2 for name in second)
    names = [e["who"] for e in groups.rooms.ask(do="events")["events"] if e["kind"] == "joined"]
    assert any(who.startswith("1~10.0.1001:") for who in names), names
    assert all(f"start=10.0.1001 kept_step={kept} " in groups.errors()[name] for name in second)
    assert took_s(groups, second[-1], second[0]) < 15  # and not the 20 s of a collective's time-out


@pytest.mark.soak
def test_an_exception_that_comes_again_ends_the_group_and_not_its_peers(
    opened: Callable[[str, int, int], Groups],
) -> None:
    groups = opened("plain", 1, 30)
    first, second = started_together(groups, "loop@8 always", 0)
    groups.ends(second, 1)
    groups.ends(first, 0)
    groups.check(worker.M)
    assert len(groups.lines(second[0], "failed")) == 3
    assert "ArithmeticError: a fault of this rank" in groups.errors()[second[0]]
