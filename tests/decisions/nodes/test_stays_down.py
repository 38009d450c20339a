"""Nodes that Slurm itself set DOWN, and that report again: where ReturnToService leaves them DOWN, an operator is notified once."""

from __future__ import annotations

import pytest

from holdfast.model.incidents.incident import IncidentState
from support.simulated import Site

_S = IncidentState


def _told(site: Site) -> list[str]:
    return [subject for subject in site.notices.sent if "stay" in subject and "DOWN" in subject]


def _reboots_unannounced(site: Site, *names: str) -> None:
    """They are power-cycled; their slurmds register, and slurmctld sets them DOWN."""
    for name in names:
        site.provider.boot_s = 5.0
        site.provider.power_cycle(name)
    site.run(10)
    for name in names:
        site.slurm.finds_rebooted(name)


@pytest.mark.parametrize("returns", [0, 1])
def test_an_unexpected_reboot_is_told_once_and_never_overruled(returns: int) -> None:
    site = Site(6)
    site.slurm.return_to_service = returns
    site.read_background()
    _reboots_unannounced(site, "n2", "n3")
    site.run(280)
    assert _told(site) == []
    site.run(3 * 3600, step_s=20)
    assert _told(site) == ["2 nodes stay DOWN"]
    body = next(b for s, b in site.notices.bodies if "stay DOWN" in s)
    assert "scontrol update nodename=n2,n3 state=resume" in body
    assert f"ReturnToService={returns}" in body
    assert "Node unexpectedly rebooted" in body
    assert site.slurm.calls == []
    assert site.incident("n2").state is _S.WATCHING
    for name in ("n2", "n3"):
        site.slurm.operator_resumes(name)
    site.run(30)
    assert (site.incident("n2").state, site.incident("n3").state) == (_S.CLOSED, _S.CLOSED)
    assert site.slurm.calls == []


def test_not_responding_stays_down_with_return_to_service_0() -> None:
    site = Site(6)
    site.slurm.return_to_service = 0
    site.read_background()
    node = site.slurm.nodes["n2"]
    node.down, node.reason, node.user, node.time = True, "Not responding", "slurm", site.clock.now()
    site.run(900, step_s=10)
    assert _told(site) == ["n2 stays DOWN"]
    assert site.slurm.calls == []


def test_what_a_person_set_down_is_theirs() -> None:
    site = Site(6)
    node = site.slurm.nodes["n2"]
    node.down, node.reason, node.user, node.time = True, "Not responding", "ops", site.clock.now()
    site.run(1200, step_s=10)
    assert (_told(site), site.slurm.calls) == ([], [])


def test_a_fault_of_a_node_that_stays_down_is_an_incident_of_its_own() -> None:
    site = Site(6)
    _reboots_unannounced(site, "n2")
    site.run(600, step_s=10)
    down = site.incident("n2")
    site.fault("n2")
    site.run(1800, step_s=5)
    fault = site.incident("n2")
    assert fault.id != down.id
    assert (fault.state, site.store.incidents(node="n2")[1].state) == (_S.CLOSED, _S.CLOSED)
    assert not site.slurm.nodes["n2"].down


def test_it_dies_while_it_stays_down() -> None:
    site = Site(6)
    _reboots_unannounced(site, "n2")
    site.run(600, step_s=10)
    site.machine("n2").powered = False
    site.run(300)
    assert site.incident("n2").dead


def test_slurmctld_forgets_that_it_was_down() -> None:
    """No operator's resume, and nothing to drain."""
    site = Site(6)
    _reboots_unannounced(site, "n2")
    site.run(600, step_s=10)
    site.slurm.start_cold()
    site.run(600, step_s=10)
    assert (site.incident("n2").state, site.slurm.calls) == (_S.CLOSED, [])


@pytest.mark.parametrize("boot_s", [300.0, 1e6], ids=["late", "never"])
def test_a_reboot_that_timed_out_is_told_and_its_machine_left_alone(boot_s: float) -> None:
    """ResumeTimeout is 60 s unless set: an operator's update of firmware takes longer."""
    site = Site(6)
    site.slurm.resume_timeout_s, site.provider.boot_s = 60.0, boot_s
    site.slurm.operator_orders_reboot("n2")
    site.run(3600, step_s=5)
    assert site.slurm.nodes["n2"].reason.endswith("reboot timed out")
    assert _told(site) == ["n2 stays DOWN"]
    assert (site.slurm.calls, site.provider.tokens, site.provider.cycled, site.provider.terminated) == ([], {}, {}, {})


def test_a_reboot_that_never_ends_is_told() -> None:
    """ResumeTimeout may be set to a day."""
    site = Site(6)
    site.slurm.resume_timeout_s, site.provider.boot_s = 1e9, 1e9
    site.slurm.operator_orders_reboot("n2")
    site.run(3 * 3600, step_s=20)
    assert len(site.notices.sent) == 1
    assert site.slurm.calls == []
