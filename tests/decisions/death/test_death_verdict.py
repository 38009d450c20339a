"""The verdict about a silent node, and what each verdict allows: two pure functions and a table."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.decisions.death import domains
from holdfast.decisions.death.verdict import (
    ALLOWS,
    AgentSpoke,
    Circumstances,
    Consequence,
    DeathEvidence,
    DeathVerdict,
    LivingPeer,
    PowerOff,
    SeenRunning,
    SlurmHeard,
    StepsAdvance,
    TcpAnswered,
    allowed,
    judge,
)
from holdfast.model.policies.policy import DeathPolicy
from holdfast.model.slurm.cluster import Node

AT = datetime(2026, 3, 1, tzinfo=UTC)
LATER = AT + timedelta(seconds=5)
VETOES: tuple[DeathEvidence, ...] = (
    TcpAnswered(LATER, "x"),
    SlurmHeard(LATER),
    StepsAdvance(LATER, 7),
    AgentSpoke(LATER),
)
GRACE_S = 900.0


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        ((), DeathVerdict.SILENT),
        ((SeenRunning(AT),), DeathVerdict.SILENT),
        ((TcpAnswered(AT, "x"),), DeathVerdict.SILENT),
        ((LivingPeer(AT, "n2"),), DeathVerdict.TWO_WITNESSES),
        ((LivingPeer(AT, "n2"), LivingPeer(LATER, "n2")), DeathVerdict.TWO_WITNESSES),
        ((LivingPeer(AT, "n2"), LivingPeer(AT, "n3")), DeathVerdict.DEAD),
        ((PowerOff(AT, "stopped"),), DeathVerdict.DEAD),
        ((PowerOff(LATER, "stopped"), TcpAnswered(AT, "x")), DeathVerdict.DEAD),
    ],
)
def test_verdicts(evidence: tuple[DeathEvidence, ...], verdict: DeathVerdict) -> None:
    assert judge(evidence) is verdict


@pytest.mark.parametrize("veto", VETOES)
def test_any_sign_of_life_is_a_veto(veto: DeathEvidence) -> None:
    for found in ((LivingPeer(AT, "n2"), LivingPeer(AT, "n3")), (PowerOff(AT, "stopped"),), (LivingPeer(AT, "n2"),)):
        assert judge((*found, veto)) is DeathVerdict.SUSPECT


def test_what_each_verdict_allows() -> None:
    both = (False, True)
    for verdict, what in itertools.product(DeathVerdict, Consequence):
        for off, braked, late, running, alone in itertools.product(both, both, both, both, both):
            _check(verdict, what, Circumstances(off, braked, GRACE_S if late else 1.0, running, alone))


def _check(verdict: DeathVerdict, what: Consequence, now: Circumstances) -> None:
    may = allowed(verdict, what, now, GRACE_S)
    if what is Consequence.AVOID:
        assert may
    if verdict in (DeathVerdict.SILENT, DeathVerdict.SUSPECT):
        assert may is (what is Consequence.AVOID)
    if now.braked and not now.power_off and what is not Consequence.AVOID:
        assert not may, "above the brake only power that is off counts"
    if what in (Consequence.REBOOT, Consequence.END_MACHINE) and may:
        assert now.power_off or (now.alone and now.lifeless_s >= GRACE_S)
    if what is Consequence.END_MACHINE and now.running:
        assert not may
    if what in (Consequence.SET_DOWN, Consequence.SET_DOWN_LATE) and may:
        assert verdict is DeathVerdict.DEAD


def test_the_table_of_the_docs_is_the_one_of_the_code() -> None:
    page = Path(__file__).parents[3].joinpath("docs/safety.md").read_text(encoding="utf-8")
    for verdict, consequences in ALLOWS.items():
        for what, when in consequences.items():
            assert f"| `{verdict.value}` | `{what.value}` | {when.value} |" in page


def _node(name: str, address: str) -> Node:
    return Node(name, "IDLE", frozenset(), address=address)


@pytest.mark.parametrize(
    ("address", "policy", "domain"),
    [
        ("10.2.3.4", DeathPolicy(), "10.2.3.0/24"),
        ("10.2.3.4", DeathPolicy(domain_prefix=20), "10.2.0.0/20"),
        ("fd00::12", DeathPolicy(), "fd00::/64"),
        ("host4", DeathPolicy(), None),
        ("host4", DeathPolicy(domains={"n[1-8]": "rack 1"}), "rack 1"),
        ("10.2.3.4", DeathPolicy(domains={"m[1-8]": "rack 1"}), "10.2.3.0/24"),
    ],
)
def test_a_nodes_failure_domain(address: str, policy: DeathPolicy, domain: str | None) -> None:
    assert domains.domain_of(_node("n4", address), policy, {}) == domain


def test_a_name_that_resolves_has_a_domain() -> None:
    assert domains.domain_of(_node("n4", "n4"), DeathPolicy(), {"n4": "10.2.3.4"}) == "10.2.3.0/24"


@pytest.mark.parametrize("size", range(1, 40))
def test_who_watches_whom_is_the_same_from_both_ends(size: int) -> None:
    members = tuple(f"n{n}" for n in range(size))
    for node in members:
        mine = domains.watchers(members, node)
        assert node not in mine
        assert len(mine) >= min(size - 1, 2)
        assert {w for w in members if node in domains.watched_by(members, w)} == set(mine)
