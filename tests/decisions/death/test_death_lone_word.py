"""A single peer that claims to reach a dead node delays the actions on it, and cannot prevent them for ever."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from holdfast.decisions.death.lone_word import OtherEvidence, without_a_lone_word
from holdfast.decisions.death.verdict import (
    AgentSpoke,
    DeathEvidence,
    LivingPeer,
    PowerOff,
    SlurmHeard,
    StepsAdvance,
    TcpAnswered,
)
from holdfast.model.incidents.incident import IncidentState
from support.simulated import Site
from support.simulated.provider import FULL

_S = IncidentState
BLIND = replace(FULL, status=False, power_off_confirmed=False)
AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LONE = TcpAnswered(AT, "peer n2")
TWO = (LivingPeer(AT, "n3"), LivingPeer(AT, "n4"))
ALL = OtherEvidence(
    head_failed=True, slurm_lost_it=True, reached_by=frozenset({"peer n2"}), silent_s=900.0, patience_s=900.0
)


@pytest.mark.parametrize(
    ("found", "around", "counts"),
    [
        ((LONE, *TWO), ALL, False),
        ((LONE, TWO[0]), ALL, True),
        ((LONE,), ALL, True),
        ((LONE, *TWO, TcpAnswered(AT, "peer n5")), ALL, True),
        ((LONE, *TWO, TcpAnswered(AT, "the head node")), ALL, True),
        ((LONE, *TWO, SlurmHeard(AT)), ALL, True),
        ((LONE, *TWO, StepsAdvance(AT, 7)), ALL, True),
        ((LONE, *TWO, AgentSpoke(AT)), ALL, True),
        ((LONE, *TWO, PowerOff(AT, "stopped")), ALL, False),
        ((LONE, *TWO), replace(ALL, head_failed=False), True),
        ((LONE, *TWO), replace(ALL, slurm_lost_it=False), True),
        ((LONE, *TWO), replace(ALL, silent_s=899.0), True),
        ((LONE, *TWO), replace(ALL, reached_by=frozenset({"peer n2", "peer n7"})), True),
    ],
)
def test_when_the_word_of_one_peer_counts(
    found: tuple[DeathEvidence, ...], around: OtherEvidence, counts: bool
) -> None:
    left = without_a_lone_word(found, around)
    assert (LONE in left) is counts
    assert [e for e in found if e != LONE] == [e for e in left if e != LONE]


@pytest.mark.slow
@pytest.mark.parametrize("liar", ["n5", "n6", "n7", "n1"])
def test_a_witness_that_says_it_reaches_a_dead_node_cannot_keep_it_for_ever(liar: str) -> None:
    site = Site(8, can=BLIND)
    site.machine(liar).says_it_reaches = {"n4"}
    site.machine("n4").powered = False
    site.run(890, step_s=2)
    assert "Launch" not in site.kinds()
    site.run(400, step_s=2)
    assert "Launch" in site.kinds(), site.story()
    site.run(300, step_s=5)
    assert site.incident("n4").state is _S.CLOSED


@pytest.mark.slow
def test_an_operator_is_told_meanwhile_who_says_so() -> None:
    site = Site(8, can=BLIND)
    site.machine("n5").says_it_reaches = {"n4"}
    site.machine("n4").powered = False
    site.run(400, step_s=2)
    (body,) = [body for subject, body in site.notices.bodies if subject == "n4 does not report"]
    assert "reached from its peers n5" in body


@pytest.mark.slow
def test_two_peers_that_reach_it_keep_it() -> None:
    """A node cut off from the head node and from some of its peers lives: nothing is done to it."""
    site = Site(8, can=BLIND)
    machine = site.machine("n4")
    machine.cut_off, machine.unreachable_by = True, {"n3", "n6", "n8"}
    site.run(2400, step_s=5)
    assert not {"Launch", "Reboot", "Terminate", "Drain"} & set(site.kinds())
