"""Groups of two ranks, sharded by FSDP2 and by hand, in a real rendezvous: killed, healed rank by rank, ordered to leave."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("torchft", reason="the extra 'train' is not installed")

from support import elastic_ranks_worker as worker  # noqa: E402
from support.elastic_groups import Groups  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]


def uninterrupted(until: int) -> dict[str, Any]:
    model, optimizer = worker.build()
    for step in range(until):
        optimizer.zero_grad()
        for number in range(worker.M):
            worker.work(model, worker.samples(step, number))
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(worker.M)
        optimizer.step()
    return {name: p.detach() for name, p in model.named_parameters()}


def put_together(kind: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The whole model, from what each rank of a group holds of it."""
    if kind == "fsdp":
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    whole = {name: p.detach().clone() for name, p in worker.build()[0].named_parameters()}
    for rank, part in enumerate(parts):
        for name, held in part.items():
            if name.startswith("first"):
                whole[name][rank :: len(parts)] = held
            elif name.startswith("second"):
                whole[name][:, rank :: len(parts)] = held
    return whole


def check_result(groups: Groups, kind: str, group: int, start: str) -> None:
    parts = [torch.load(groups.folder / f"{group}.{r}.{start}.pt", weights_only=True) for r in range(groups.ranks)]
    mine, theirs = put_together(kind, parts), uninterrupted(groups.until)
    assert sorted(mine) == sorted(theirs)
    for name, tensor in theirs.items():
        assert float((mine[name] - tensor).norm()) <= 1e-6 * max(1.0, float(tensor.norm())), name


def healed(groups: Groups, *, average: str = "") -> tuple[list[str], list[str]]:
    """The ranks of the group that stayed, and of the one that was killed at step 4 and came back."""
    (groups.folder / "hold").touch()
    first, second = groups.start(0, "9.0", AVERAGE=average), groups.start(1, "10.0", AVERAGE=average)
    groups.wait(lambda: groups.is_there(first[1]) and groups.is_there(second[1]))
    (groups.folder / "hold").unlink()
    groups.wait(groups.at(second[1], 4))
    (groups.folder / "hold").touch()
    for name in second:
        groups.running[name].kill()
    groups.rooms.ask(do="evict", room="job-7", member="1~10.0", reason="a test")
    third = groups.start(1, "10.1", AVERAGE=average)
    groups.wait(groups.asks("10.1"))
    (groups.folder / "hold").unlink()
    groups.ends([*first, *third], 0)
    assert groups.lines(third[0], "commit")[0]["step"] > 4
    groups.check(worker.M)
    return first, third


@pytest.mark.parametrize("kind", ["fsdp", pytest.param("split", marks=pytest.mark.soak)])
def test_a_group_of_two_ranks_is_killed_and_healed_rank_by_rank(
    kind: str, opened: Callable[[str, int, int], Groups]
) -> None:
    groups = opened(kind, 2, 16)
    healed(groups)
    check_result(groups, kind, 0, "9.0")


@pytest.mark.parametrize("kind", ["fsdp", pytest.param("split", marks=pytest.mark.soak)])
def test_average_and_schedule_of_two_ranks_are_the_same_bits_after_a_healing(
    kind: str, opened: Callable[[str, int, int], Groups]
) -> None:
    groups = opened(kind, 2, 16)
    first, third = healed(groups, average="1")
    for mine, theirs in zip(first, third, strict=True):
        for ending in ("pt", "average.pt"):
            one, other = (torch.load(groups.folder / f"{name}.{ending}", weights_only=True) for name in (mine, theirs))
            assert sorted(one) == sorted(other)
            assert all(torch.equal(tensor, other[name]) for name, tensor in one.items()), (mine, ending)
        ends = [groups.lines(name, "rates")[0] for name in (mine, theirs)]
        assert ends[0]["rates"] == ends[1]["rates"] != [1e-2]
        assert [end["differs"] for end in ends] == [[], []]


@pytest.mark.soak
def test_one_rank_is_told_to_leave_and_the_whole_group_does_between_steps(
    opened: Callable[[str, int, int], Groups],
) -> None:
    groups = opened("split", 2, 20)
    (groups.folder / "hold").touch()
    first, second = groups.start(0, "9.0"), groups.start(1, "10.0")
    groups.wait(lambda: groups.is_there(first[1]) and groups.is_there(second[1]))
    (groups.folder / "hold").unlink()
    groups.wait(groups.at(second[1], 3))
    groups.running[second[1]].send_signal(signal.SIGUSR1)
    groups.ends(second, 85)
    groups.ends(first, 0)
    groups.check(worker.M)
    assert [e for e in groups.rooms.ask(do="events", limit=1000)["events"] if e["kind"] == "left"]
