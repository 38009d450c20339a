"""Sizes, batches, learning rates, the order of samples and seeds: tables and laws."""

from __future__ import annotations

import math
from importlib.metadata import PackageNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_train import GlobalBatch, Order, Rule, Scaling, Sizes, Unusable, WarmupCosine, parse_sizes, seed_of
from holdfast_train.samples.order import permuted
from holdfast_train.versions import check


@pytest.mark.parametrize(
    ("text", "legal"),
    [
        ("2:4", (2, 3, 4)),
        ("3:3", (3,)),
        ("2:8:2", (2, 4, 6, 8)),
        ("2:8:6", (2, 8)),
        ("2:8:4,", (2, 4, 8)),
        (" 1:8:2,4 ", (1, 2, 4, 8)),
        ("1:8:8,2,2", (1, 2, 8)),
    ],
)
def test_sizes(text: str, legal: tuple[int, ...]) -> None:
    assert tuple(parse_sizes(text).legal) == legal


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no range"),
        ("4", "is no range"),
        ("2:4:", "is no range"),
        ("a:b", "is no range"),
        ("-1:4", "is no range"),
        ("2:4:2:2", "is no range"),
        ("0:4", "ascend from at least 1"),
        ("4:2", "ascend"),
        ("1:100001", "ascend"),
        ("2:8:4", "do not meet 8"),
        ("2:8:0", "do not meet 8"),
        ("2:8:1,4", "size 1 is not between"),
        ("2:8:4,9", "size 9 is not between"),
    ],
)
def test_sizes_that_make_no_sense_are_one_line(text: str, why: str) -> None:
    with pytest.raises(Unusable, match=why) as caught:
        parse_sizes(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("present", "usable"), [(0, 0), (1, 0), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (30, 8)])
def test_the_largest_legal_size_that_can_be_filled(present: int, usable: int) -> None:
    assert Sizes((2, 4, 8)).usable(present) == usable


@pytest.mark.parametrize(
    ("samples", "micro", "why"),
    [
        (10, 4, "cannot be divided"),
        (3, 4, "cannot be divided"),
        (0, 1, "1 or more"),
        (4, 0, "1 or more"),
        (4, -2, "1 or more"),
    ],
)
def test_a_batch_that_does_not_divide_is_one_line(samples: int, micro: int, why: str) -> None:
    with pytest.raises(Unusable, match=why):
        GlobalBatch(samples, micro)


def test_more_groups_than_micro_batches_are_refused_at_the_start() -> None:
    GlobalBatch(8, 2).check(Sizes((1, 4)))
    with pytest.raises(Unusable, match="5 groups cannot share 4 micro-batches"):
        GlobalBatch(8, 2).check(Sizes((1, 5)))


@given(st.integers(1, 200), st.integers(1, 40), st.sets(st.integers(1, 40), min_size=1))
def test_every_micro_batch_is_done_once_by_whoever_is_there(m: int, present: int, legal: set[int]) -> None:
    sizes = Sizes(tuple(sorted(legal)))
    shares = [GlobalBatch(m, 1).share(rank, present, sizes) for rank in range(present)]
    done = sorted(i for share in shares for i in share)
    assert done == (list(range(m)) if sizes.usable(present) else [])
    working = [len(share) for share in shares[: sizes.usable(present)]]
    assert not working or max(working) - min(working) <= 1


@pytest.mark.parametrize(
    ("rule", "table", "samples", "factor"),
    [
        (Rule.LINEAR, {}, 64, 2.0),
        (Rule.LINEAR, {}, 32, 1.0),
        (Rule.SQRT, {}, 128, 2.0),
        (Rule.SQRT, {}, 8, 0.5),
        (Rule.TABLE, {32: 1.0, 48: 1.3}, 48, 1.3),
    ],
)
def test_learning_rate_for_a_batch_that_moved(rule: Rule, table: dict[int, float], samples: int, factor: float) -> None:
    assert Scaling(rule, 32, table).factor(samples) == factor


def test_learning_rates_that_cannot_be_are_one_line() -> None:
    with pytest.raises(Unusable, match="has no batch of 64"):
        Scaling(Rule.TABLE, 32, {32: 1.0}).factor(64)
    with pytest.raises(Unusable, match="only with it"):
        Scaling(Rule.LINEAR, 32, {32: 1.0})
    with pytest.raises(Unusable, match="only with it"):
        Scaling(Rule.TABLE, 32)
    with pytest.raises(Unusable, match="holds nan"):
        Scaling(Rule.TABLE, 32, {32: math.nan})
    with pytest.raises(Unusable, match="not a valid schedule"):
        WarmupCosine(10, 10)


def test_schedule_by_samples() -> None:
    schedule = WarmupCosine(100, 1100, floor=0.1)
    assert [schedule.factor(at) for at in (0, 50, 100)] == [0.0, 0.5, 1.0]
    assert schedule.factor(600) == pytest.approx(0.55)
    assert schedule.factor(1100) == schedule.factor(5000) == pytest.approx(0.1)


@given(st.integers(1, 300), st.integers(), st.integers(0, 3))
def test_a_shuffle_loses_and_doubles_nothing(count: int, seed: int, epoch: int) -> None:
    assert sorted(permuted(i, count, seed, epoch) for i in range(count)) == list(range(count))


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 40))
def test_each_sample_is_read_once_in_an_epoch(micro_batches: int, micro: int, count: int) -> None:
    order = Order(count, GlobalBatch(micro_batches * micro, micro), seed=3)
    steps = -(-2 * count // order.batch.samples)
    read = [s for step in range(steps) for i in range(micro_batches) for s in order.ids(step, i)]
    assert sorted(read[:count]) == list(range(count)) == sorted(read[count : 2 * count])


def test_order_and_seeds_never_change_between_releases() -> None:
    order = Order(1000, GlobalBatch(8, 4), seed=7)
    assert order.ids(0, 0) == [169, 624, 737, 678]
    assert order.ids(124, 1) != order.ids(249, 1)  # another epoch, another order
    assert seed_of(7, 3, 1) == 7102455686676930891
    assert len({seed_of(s, t, i, x) for s in (0, 1) for t in (0, 1) for i in (0, 1) for x in ("", "a")}) == 16
    with pytest.raises(ValueError, match="micro-batch 2 of 2"):
        order.ids(0, 2)
    with pytest.raises(Unusable, match="no samples"):
        Order(0, GlobalBatch(8, 4))


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        ({}, "torch is not installed"),
        ({"torch": "2.13.0"}, "torchft is not installed"),
        ({"torch": "2.13.0", "torchft": "0.3.0"}, "torchft 0.3.0 is installed, and only 0.2.0"),
    ],
)
def test_a_library_that_is_missing_or_of_another_version_is_one_line(versions: dict[str, str], why: str) -> None:
    def installed(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    with pytest.raises(Unusable, match=why):
        check(installed)
    check({"torch": "2.13.0+cpu", "torchft": "0.2.0"}.__getitem__)
