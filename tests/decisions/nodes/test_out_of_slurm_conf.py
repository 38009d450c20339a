"""A node leaves slurm.conf at any step of its repair, and comes back: nothing is stuck, and the machine that serves it stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.actor.carry_out import carry_out
from holdfast.model.actions.action import Intent, IntentState, Terminate
from holdfast.model.errors import NotFound, Unavailable
from holdfast.model.incidents.incident import IncidentState
from support.simulated import Site
from support.simulated.slurm import SimNode

_S = IncidentState


def away_at(kind: str) -> tuple[Site, list[SimNode]]:
    """n1 leaves slurm.conf as this step of its repair begins."""
    site = Site(4)
    taken: list[SimNode] = []
    assign = site.provider.assign

    def asks_slurm(instance_id: str, node: str) -> None:
        if node not in site.slurm.nodes:
            raise NotFound(f"no node {node}")
        assign(instance_id, node)

    def leave(intent: Intent, moment: str) -> None:
        if intent.kind == kind and moment == "started" and not taken:
            taken.append(site.slurm.take_out("n1"))

    site.provider.assign = asks_slurm  # type: ignore[method-assign] # as EC2's does
    site.at_boundary = leave
    site.fault("n1")
    site.run(150)
    assert taken, site.story()
    return site, taken


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["Launch", "Terminate", "Assign", "Undrain"])
@pytest.mark.parametrize("away_s", [5, 120])
def test_a_short_absence_delays_the_repair_alone(kind: str, away_s: float) -> None:
    site, taken = away_at(kind)
    site.run(away_s)
    site.slurm.put_in(taken[0])
    site.run(900, step_s=2)
    assert site.incident("n1").state is _S.CLOSED, site.story()
    assert not site.slurm.nodes["n1"].drain
    assert site.provider.serving("n1").instance_id in site.provider.live()
    assert site.provider.candidates() == set()
    site.fault("n1", minor=5)
    site.run(5)
    assert site.slurm.nodes["n1"].drain, "a later fault is acted upon"


@pytest.mark.parametrize("kind", ["Assign", "Undrain"])
def test_a_long_absence_at_the_end_of_a_repair_is_told_of_and_the_repair_ends_once_it_is_back(kind: str) -> None:
    site, taken = away_at(kind)
    site.run(4 * 3600, step_s=20)
    assert len([text for text in site.notices.sent if "Slurm has not shown it for an hour" in text]) == 1
    site.slurm.put_in(taken[0])
    site.run(900, step_s=2)
    assert (site.incident("n1").state, site.slurm.nodes["n1"].drain) == (_S.CLOSED, False), site.story()
    assert site.provider.serving("n1").instance_id in site.provider.live()


@pytest.mark.parametrize("kind", ["Assign", "Undrain"])
def test_closing_the_incident_ends_no_machine_that_alone_serves_the_node(kind: str) -> None:
    site, taken = away_at(kind)
    new = site.provider.live() - {f"i-000{n}" for n in range(1, 5)}
    site.slurm.put_in(taken[0])
    site.operate("close", site.incident("n1").id)
    site.run(3600, step_s=5)
    assert new <= site.provider.live(), site.story()


@pytest.mark.parametrize("how", ["resume", "close"])
def test_an_operator_who_is_faster_than_a_slow_hand_over_keeps_the_machine(how: str) -> None:
    site = Site(4)

    def throttled(*_: object) -> None:
        raise Unavailable("RequestLimitExceeded")

    site.provider.assign = throttled  # type: ignore[method-assign,assignment]
    site.fault("n1")
    site.run(150)
    new = site.provider.live() - {f"i-000{n}" for n in range(1, 5)}
    assert "i-0001" not in site.provider.live(), site.story()
    if how == "resume":
        site.slurm.operator_resumes("n1")
    else:
        site.operate("close", site.incident("n1").id)
    site.run(7200, step_s=10)
    assert new <= site.provider.live(), site.story()


def test_a_machine_is_ended_under_no_job_though_the_provider_names_it_for_no_node() -> None:
    """Whatever decided it: Slurm is read last before the step."""
    site, taken = away_at("Assign")
    new = next(iter(site.provider.live() - {f"i-000{n}" for n in range(1, 5)}))
    site.slurm.put_in(taken[0])
    incident = site.incident("n1").id
    site.slurm.nodes["n1"].drain = False
    action = Terminate(new, "n1")
    intent = replace(
        next(i for i in site.store.intents() if i.kind == "Launch"), action=action, state=IntentState.PLANNED
    )
    outcome = carry_out(replace(intent, incident_id=incident), site.actor.outside)
    assert (outcome.state, outcome.text) == (IntentState.REFUSED, "n1 is in service in Slurm")
