"""A replacement in place that never came up: the provider's report about it ends the wait, and the next order is for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.actions.action import Replace
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.machine import Notice, NoticeKind
from holdfast_checks.result import Remedy
from support.simulated import Site
from support.simulated.provider import IN_PLACE
from support.simulated.site import POLICY

NEVER_S = 10**6


def _ordered(site: Site) -> list[str]:
    """Machines that were ordered to be replaced, in order."""
    intents = sorted(site.book.intents.values(), key=lambda i: i.planned_at)
    return [i.action.instance_id for i in intents if isinstance(i.action, Replace)]


def _stillborn(site: Site, node: str = "n1") -> tuple[str, str]:
    """A fault, and its replacement that never boots: the old machine and the new one."""
    old = site.machine(node).instance_id
    site.provider.boot_s = NEVER_S
    site.fault(node, remedy=Remedy.REPLACE)
    site.run(60)
    new = site.provider.replaced[old]
    site.provider.boot_s = 40.0
    return old, new


@pytest.fixture
def site() -> Site:
    return Site(2, can=IN_PLACE)


def test_what_the_provider_calls_failed_is_exchanged_at_once(site: Site) -> None:
    old, new = _stillborn(site)
    site.provider.announced.append(Notice(new, "n1", NoticeKind.IMPAIRED, "Failure", "EFA health check failed"))
    site.run(60)
    assert _ordered(site) == [old, new]
    assert f"the new machine {new} did not come up: Failure: EFA health check failed" in site.story()
    site.provider.announced.clear()
    site.run(240, step_s=5)
    assert site.incident("n1").state is IncidentState.CLOSED
    assert site.provider.terminated[new] == 1
    assert site.machine("n1").instance_id == site.provider.replaced[new]


def test_a_young_machines_status_check_is_not_believed_at_first(site: Site) -> None:
    old, new = _stillborn(site)
    since = site.clock.now()
    site.provider.announced.append(Notice(new, "n1", NoticeKind.IMPAIRED, "instance-status", "impaired", since))
    site.run(120, step_s=5)
    assert _ordered(site) == [old]
    site.run(120, step_s=5)
    assert _ordered(site) == [old, new]


@pytest.mark.parametrize("about", ["the old machine", "another node", "a reboot"])
def test_other_words_of_the_provider_end_nothing(site: Site, about: str) -> None:
    old, new = _stillborn(site)
    words = {
        "the old machine": Notice(old, "n1", NoticeKind.IMPAIRED, "Failure", "x"),
        "another node": Notice(new, "n2", NoticeKind.IMPAIRED, "Failure", "x"),
        "a reboot": Notice(new, "n1", NoticeKind.REBOOT, "system-reboot", "x", site.clock.now() + timedelta(days=9)),
    }
    site.provider.announced.append(words[about])
    site.run(120, step_s=5)
    assert _ordered(site) == [old]


def test_a_machine_that_is_heard_is_judged_by_what_it_shows(site: Site) -> None:
    """Its own checks decide, not the provider's earlier report."""
    old = site.machine("n1").instance_id
    site.fault("n1", remedy=Remedy.REPLACE)
    site.run(30)
    new = site.provider.replaced[old]
    site.run(30)
    site.provider.announced.append(Notice(new, "n1", NoticeKind.IMPAIRED, "Failure", "late"))
    site.run(30)
    assert _ordered(site) == [old]


def test_without_a_word_the_name_that_the_provider_gave_is_used_after_the_wait(site: Site) -> None:
    old, new = _stillborn(site)
    site.provider.boot_s = NEVER_S
    site.run(POLICY.repair.launch_timeout_s + 120, step_s=10)
    assert _ordered(site)[:2] == [old, new]


def test_the_gpus_of_the_fault_are_remembered_over_a_machine_that_never_came_up(site: Site) -> None:
    site.run(30)
    old, new = _stillborn(site)
    site.provider.same_hardware = True
    site.machine("n1").gpu_prefix = old  # what never booted was the old hardware, and so is what comes after it
    site.provider.announced.append(Notice(new, "n1", NoticeKind.IMPAIRED, "Failure", "no lifecycle script"))
    site.run(120, step_s=5)
    assert "the same hardware came back" in site.story()
