"""The wall clock is set twice during one silence: a provider that shows the power is polled at its pace, not in every turn."""

from __future__ import annotations

import pytest

from holdfast.model.actions.action import CheckInstance
from support.simulated import Site


@pytest.mark.parametrize("steps_s", [(-40.0, -40.0), (-3600.0, -40.0), (-40.0, 40.0)])
def test_two_steps_of_the_clock_during_one_silence_ask_the_provider_at_its_pace(steps_s: tuple[float, float]) -> None:
    site = Site(4)
    for name in ("n3", "n4"):
        site.machine(name).cut_off = True
        site.machine(name).unreachable_by = {"n1", "n2"}
    site.run(25)
    site.clock.step(steps_s[0])
    site.run(60)
    site.clock.step(steps_s[1])
    site.run(60)
    asked = [i for i in site.store.intents() if isinstance(i.action, CheckInstance)]
    assert len(asked) <= 2 * 150 / site.policy.death.reprobe_s
