"""Anything may happen at any time, in any order: what must hold all the same.

The real loop, turn and actor over a simulated site. A fast profile runs always; ``-m soak`` runs a longer one with the seed of
``./dev soak SEED``, or one that it prints."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from support.simulated.anything import Anything

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
@pytest.mark.timeout(3600)
def test_whatever_happens_for_long(capsys: pytest.CaptureFixture[str]) -> None:
    number = int(os.environ.get("HOLDFAST_SOAK_SEED") or random.randrange(2**32))
    long = settings(
        max_examples=3000,
        stateful_step_count=60,
        deadline=None,
        database=None,
        suppress_health_check=_QUIET,
        print_blob=True,
    )
    try:
        run_state_machine_as_test(seed(number)(Counted), settings=long)
    finally:
        with capsys.disabled():  # whoever reads a failure needs it
            print(f"\nseed {number}: {Counted.examples} examples, {Counted.steps} steps")  # noqa: T201
