"""Stacks of a hung job's ranks: grouped by frame, the outliers named. Frames as py-spy prints them (torch 2.13, gloo)."""

from __future__ import annotations

import pytest

from holdfast.decisions.hangs.stacks import Rank, group, ranks_of, shape_of

REDUCE = (
    "all_reduce (torch/distributed/distributed_c10d.py:3252)",
    "_exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)",
    "step (spy.py:9)",
    "train (spy.py:12)",
    "<module> (spy.py:13)",
)
"""Taken from a real process, as the next one."""
AT_WORK = ("odd_one_out (spy.py:6)", "step (spy.py:8)", "train (spy.py:12)", "<module> (spy.py:13)")
LOADING = (
    "wait (threading.py:331)",
    "get (queue.py:180)",
    "_try_get_data (torch/utils/data/dataloader.py:1275)",
    "__next__ (torch/utils/data/dataloader.py:733)",
    "train (spy.py:11)",
)
BROADCAST = ("broadcast (torch/distributed/distributed_c10d.py:2800)", "save (spy.py:30)", "train (spy.py:12)")
COMMIT = (
    "should_commit (torchft/manager.py:800)",
    "commit (holdfast_train/membership.py:90)",
    "steps (holdfast_train/session.py:140)",
    "<module> (elastic.py:30)",
)


def ranks(*frames: tuple[str, ...], a_node: int = 1) -> list[Rank]:
    return [Rank(f"n{1 + n // a_node}", n, 100 + n, each, "" if each else "gone") for n, each in enumerate(frames)]


def odd(*frames: tuple[str, ...], a_node: int = 1) -> list[int]:
    return sorted(r.rank or 0 for r in group(ranks(*frames, a_node=a_node)).odd)


def test_a_shape_is_the_jobs_own_frame_and_what_it_called() -> None:
    assert shape_of(REDUCE).text == "all_reduce from step (spy.py:9)"
    assert shape_of(AT_WORK).text == "odd_one_out (spy.py:6)"
    assert shape_of(COMMIT).text == "should_commit from <module> (elastic.py:30)"
    assert [shape_of(f).waits for f in (REDUCE, AT_WORK, LOADING, BROADCAST, COMMIT)] == [
        True,
        False,
        False,
        True,
        True,
    ]


def test_the_same_place_by_short_and_by_whole_paths() -> None:
    whole = ("all_reduce (/opt/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:3252)", *REDUCE[2:])
    assert shape_of(whole) == shape_of(REDUCE)


@pytest.mark.parametrize("stack", [("no frame at all",), ("f (torch/x.py:1)",), ("((",), ("f ()",), (" (:1)",)])
def test_any_text_has_a_shape(stack: tuple[str, ...]) -> None:
    assert not shape_of(stack).waits


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ((REDUCE, AT_WORK, REDUCE), [1]),
        ((REDUCE, REDUCE, REDUCE), []),
        ((REDUCE, AT_WORK), [1]),
        ((REDUCE, LOADING), [1]),
        ((LOADING, LOADING, REDUCE), []),
        ((AT_WORK, AT_WORK, LOADING), [2]),
        ((AT_WORK, LOADING), []),
        ((REDUCE, REDUCE, BROADCAST), [2]),
        ((REDUCE, BROADCAST), []),
        ((REDUCE, REDUCE, AT_WORK, LOADING), [2, 3]),
        ((REDUCE, (), REDUCE), []),
        ((REDUCE, (), AT_WORK, REDUCE), [2]),
        ((), []),
    ],
)
def test_who_is_odd(frames: tuple[tuple[str, ...], ...], expected: list[int]) -> None:
    assert odd(*frames) == expected


def test_a_node_stands_out_only_if_the_others_do_not() -> None:
    one = group(ranks(REDUCE, REDUCE, AT_WORK, REDUCE, REDUCE, REDUCE, a_node=2))
    assert one.odd_nodes == ("n2",)
    each = group(ranks(REDUCE, REDUCE, AT_WORK, REDUCE, REDUCE, AT_WORK, a_node=3))
    assert [r.rank for r in each.odd] == [2, 5]
    assert each.odd_nodes == ()
    assert group(ranks(REDUCE, AT_WORK, a_node=2)).odd_nodes == ()


def test_the_line_for_people() -> None:
    found = group(ranks(REDUCE, AT_WORK, REDUCE, ()))
    assert found.text == (
        "rank 0 on n1, rank 2 on n3: all_reduce from step (spy.py:9); rank 1 on n2: odd_one_out (spy.py:6); "
        "rank 3 on n4: not read (gone)"
    )
    assert group(ranks(())).text == "no stack could be read (gone)"
    assert group([]).text == "no stack could be read"
    assert group(ranks(*[REDUCE] * 20, a_node=4)).text.startswith("20 ranks on 5 nodes: all_reduce")


def test_who_is_no_rank_is_left_out_unless_nobody_is_one() -> None:
    told = [{"pid": 1, "rank": None, "frames": ["main (run.py:1)"]}, {"pid": 2, "rank": 0, "frames": list(REDUCE)}]
    assert [r.pid for r in ranks_of("n1", {"ranks": told})] == [2]
    assert [r.name for r in ranks_of("n1", {"ranks": told[:1]})] == ["pid 1 on n1"]


@pytest.mark.parametrize("detail", [{}, {"ranks": "x"}, {"ranks": [3, None, {"rank": 1}, {"pid": "x"}]}])
def test_an_outcome_of_another_form_says_nothing(detail: dict[str, object]) -> None:
    assert ranks_of("n1", detail) == ()


def test_who_could_not_be_read_has_a_reason() -> None:
    (rank,) = ranks_of("n1", {"ranks": [{"pid": 5, "rank": 3, "error": "it hangs in the kernel"}]})
    assert (rank.frames, rank.error) == ((), "it hangs in the kernel")
