"""One agent that reports without end: its node has few incidents, no other node has any, and other nodes are repaired as usual."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.incidents.incident import IncidentKind
from holdfast.model.policies.policy import Mode
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site
from support.simulated.site import POLICY

WARNING = {"check": "host.x", "code": "x", "severity": Severity.WARNING, "remedy": Remedy.NONE, "minor": None}


def incidents(site: Site, node: str) -> int:
    return len([i for i in site.book.incidents.values() if i.node == node and i.kind is IncidentKind.FAULT])


def heals(site: Site, node: str) -> None:
    site.fault(node)
    site.run(300, step_s=5)
    assert site.incident(node).state.value == "closed"


def test_a_thousand_warnings_of_all_ages_are_few_incidents() -> None:
    site = Site(12)
    now = site.clock.now()
    for n in range(1000):
        fault_at = now.fromtimestamp(now.timestamp() - n * 600, tz=now.tzinfo)
        site.fault("n2", component=f"c{n}", fault_at=fault_at, sticky=True, **WARNING)
    site.run(5)
    assert incidents(site, "n2") <= 8
    assert {i.node for i in site.store.incidents()} == {"n2"}
    heals(site, "n1")


def test_a_thousand_faults_are_one_incident() -> None:
    site = Site(12)
    for n in range(1000):
        site.fault("n2", component=f"c{n}", minor=None, check="host.x", code=f"{n}")
    site.run(5)
    assert incidents(site, "n2") == 1
    heals(site, "n1")


@pytest.mark.slow
@pytest.mark.parametrize(("severity", "mode"), [(Severity.WARNING, Mode.ACT), (Severity.FATAL, Mode.OBSERVE)])
def test_what_is_reported_and_cleared_again_and_again_opens_few_incidents(severity: Severity, mode: Mode) -> None:
    site = Site(2, policy=replace(POLICY, mode=mode))
    for n in range(200):
        changed = {
            **WARNING,
            "severity": severity,
            "remedy": Remedy.NONE if severity is Severity.WARNING else Remedy.REBOOT,
        }
        site.fault("n2", component=f"c{n}", sticky=True, **changed)
        site.run(1)
        site.agents.clear(site.machine("n2"), "host.x", f"c{n}")
        site.run(1)
    assert incidents(site, "n2") <= 30
    site.run(3700, step_s=20)
    site.fault("n2")
    site.run(5)
    assert site.incident("n2").check == "gpu.xid"
