"""Slurm refuses to drain a node, or to resume it (INVALID_REG), for now: Holdfast retries; an operator's resume ends the incident."""

from __future__ import annotations

import pytest

from holdfast.model.errors import Rejected
from holdfast.model.incidents.incident import IncidentState
from support.simulated import Site

_S = IncidentState


class Refusing:
    """Slurm's undrain, which is refused while ``bad``."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bad, self._real = True, site.slurm.undrain
        monkeypatch.setattr(site.slurm, "undrain", self)

    def __call__(self, node: str) -> None:
        if self.bad:
            raise Rejected("slurm_update error: Invalid node state specified")
        self._real(node)


@pytest.fixture
def site() -> Site:
    return Site(8)


@pytest.fixture
def refusing(site: Site, monkeypatch: pytest.MonkeyPatch) -> Refusing:
    return Refusing(site, monkeypatch)


def test_it_is_returned_once_slurm_takes_it(site: Site, refusing: Refusing) -> None:
    site.fault("n1")
    site.run(900, step_s=5)
    assert (site.incident("n1").state, site.slurm.node("n1").out_of_service) == (_S.VALIDATING, True)
    assert site.notices.sent, "an operator is notified that the step fails"
    refusing.bad = False
    site.run(900, step_s=5)
    assert (site.incident("n1").state, site.slurm.node("n1").out_of_service) == (_S.CLOSED, False)


def test_a_drain_that_is_refused_for_now_is_asked_for_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    real = site.slurm.drain
    refused: list[str] = []

    def drain(node: str, reason: str) -> None:
        if len(refused) < 3:
            refused.append(node)
            raise Rejected("slurm_update error: Invalid node state specified")
        real(node, reason)

    monkeypatch.setattr(site.slurm, "drain", drain)
    site.fault("n1")
    site.run(5)
    assert not site.slurm.node("n1").out_of_service
    site.run(120)
    assert len(refused) == 3
    assert ("drain", "n1") in site.slurm.calls
    assert site.incident("n1").state is _S.CLOSED, "repaired by now"


def test_an_operator_resumes_it_and_the_next_fault_is_seen(site: Site, refusing: Refusing) -> None:
    site.fault("n1")
    site.run(900, step_s=5)
    first = site.incident("n1").id
    site.slurm.operator_resumes("n1")
    site.run(30)
    assert site.incident("n1").state is _S.CLOSED
    site.fault("n1", minor=5)
    site.run(5)
    assert site.incident("n1").id != first
    assert site.slurm.node("n1").out_of_service
    assert refusing.bad
