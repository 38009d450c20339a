"""Anything may happen at any time, in any order: the invariants must hold.

The real loop, turn and actor over a simulated site. A fast profile runs always; ``-m soak`` runs a longer one with the seed of
``./dev soak SEED``, or one that it prints."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from support.simulated.anything import Anything
from support.soak import CHUNK, SoakCount

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.slow
def test_whatever_happens() -> None:
    fast = settings(
        max_examples=20,
        stateful_step_count=25,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=_QUIET,
        phases=[Phase.generate],
    )
    run_state_machine_as_test(Anything, settings=fast)


class Counted(Anything):
    """Counts what was tried."""

    examples = 0
    steps = 0

    @invariant()
    def promises(self) -> None:
        type(self).steps += 1
        super().promises()

    def teardown(self) -> None:
        type(self).examples += 1
        super().teardown()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_whatever_happens_for_long(capsys: pytest.CaptureFixture[str]) -> None:
    """Continues where the last run of the seed stopped (``HOLDFAST_SOAK_COUNT``, a file that ``./dev soak`` names)."""
    number = int(os.environ.get("HOLDFAST_SOAK_SEED") or random.randrange(2**32))
    file = os.environ.get("HOLDFAST_SOAK_COUNT")
    count = SoakCount(Path(file) if file else None)
    try:
        count.run(number, EXAMPLES // CHUNK, _chunk)
    finally:
        done = count.by_seed[number]
        with capsys.disabled():  # needed to read a failure
            print(  # noqa: T201
                f"\nseed {number}: {done.examples} examples, {done.steps} steps have passed; {count.examples} with all seeds"
            )


EXAMPLES = 3000
"""Of one run."""


def _chunk(number: int) -> tuple[int, int]:
    long = settings(
        max_examples=CHUNK,
        stateful_step_count=60,
        deadline=None,
        database=None,
        suppress_health_check=_QUIET,
        print_blob=True,
    )
    before = Counted.examples, Counted.steps
    run_state_machine_as_test(seed(number)(Counted), settings=long)
    return Counted.examples - before[0], Counted.steps - before[1]
