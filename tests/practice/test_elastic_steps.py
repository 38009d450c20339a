"""The groups' records of an elastic job are right, or the error is named."""

from __future__ import annotations

import pytest

from holdfast.practice.elastic.steps import StepAttempt, problems

ALL, HALF, REST = (0, 1, 2, 3), (0, 2), (1, 3)
END: tuple[int, ...] = ()
Said = tuple[int, int, int, tuple[int, ...], int, str]
"""Group, step, quorum, share, groups present, digest."""


def attempts(*said: Said) -> list[StepAttempt]:
    return [StepAttempt(float(n), group, "1.0", *rest) for n, (group, *rest) in enumerate(said)]  # type: ignore[arg-type]


GOOD: list[Said] = [(0, 0, 1, HALF, 2, "a"), (1, 0, 1, REST, 2, "a"), (0, 1, 1, HALF, 2, "b"), (1, 1, 1, REST, 2, "b")]


@pytest.mark.parametrize(
    "later",
    [
        [],
        [(0, 2, 0, END, 0, "c"), (1, 2, 0, END, 0, "c")],  # both are done
        [(0, 1, 2, ALL, 1, "b"), (0, 2, 2, ALL, 1, "c")],  # group 1 was lost in step 1, which comes again
        [(0, 1, 2, ALL, 1, "b"), (0, 2, 3, ALL, 2, "c"), (1, 2, 3, END, 2, "c")],  # and is healed in step 2
    ],
)
def test_each_step_was_done_once(later: list[Said]) -> None:
    assert problems(attempts(*GOOD, *later), 4) == []


@pytest.mark.parametrize(
    ("later", "wrong"),
    [
        (
            [(1, 2, 1, REST, 2, "c"), (0, 1, 2, ALL, 1, "b"), (0, 2, 2, ALL, 1, "c")],
            ["step 1 was committed in 2 quorums"],
        ),
        ([(0, 2, 1, HALF, 2, "c"), (1, 2, 1, REST, 2, "d")], ["step 2: 2 different models"]),
        ([(0, 2, 2, HALF, 1, "c"), (0, 3, 2, ALL, 1, "d")], ["step 2: micro-batches [0, 2]"]),
    ],
)
def test_it_is_said_what_is_wrong(later: list[Said], wrong: list[str]) -> None:
    assert problems(attempts(*GOOD, *later), 4) == wrong
