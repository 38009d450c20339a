"""Pairs of nodes: which are probed together, and what the result says of each."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.probing.pairs import (
    MOST_TRIES,
    Probe,
    ProbeOutcome,
    SuspectVerdict,
    exhausted,
    judge,
    next_pairs,
)

G, B, U, R = ProbeOutcome.GOOD, ProbeOutcome.BAD, ProbeOutcome.UNKNOWN, ProbeOutcome.RUNNING
CLEARED, BAD, UNDECIDED = SuspectVerdict.CLEARED, SuspectVerdict.BAD, SuspectVerdict.UNDECIDED


def play(
    suspects: list[str],
    trusted: list[str],
    bad: Collection[str],
    *,
    silent: Collection[str] = (),
    spoilt: Collection[frozenset[str]] = (),
    most: int = 100,
) -> tuple[dict[str, SuspectVerdict], list[Probe], int]:
    """Probe until nothing more can be learned; returns verdicts, probes, rounds."""
    probes: list[Probe] = []
    rounds = 0
    while pairs := next_pairs(suspects, trusted, probes, free={*suspects, *trusted}, most=most):
        rounds += 1
        assert len(pairs) <= most
        assert len({n for pair in pairs for n in pair}) == 2 * len(pairs), "a node is in one probe at a time"
        for one, other in pairs:
            hurt = {one, other} & set(bad)
            failed = hurt or frozenset((one, other)) in spoilt
            probes.append(Probe(one, other, U if {one, other} & set(silent) else B if failed else G))
    assert exhausted(suspects, trusted, probes)
    return judge(suspects, trusted, probes), probes, rounds


@pytest.mark.parametrize(
    ("suspects", "trusted", "bad", "verdict"),
    [
        ("ab", "", "", {"a": CLEARED, "b": CLEARED}),
        ("ab", "", "a", {"a": UNDECIDED, "b": UNDECIDED}),
        ("ab", "x", "a", {"a": BAD, "b": CLEARED}),
        ("ab", "xy", "a", {"a": BAD, "b": CLEARED}),
        ("ab", "x", "ab", {"a": UNDECIDED, "b": UNDECIDED}),
        ("ab", "xy", "ab", {"a": BAD, "b": BAD}),
        ("abc", "", "b", {"a": CLEARED, "b": BAD, "c": CLEARED}),
        ("abc", "", "bc", {"a": UNDECIDED, "b": UNDECIDED, "c": UNDECIDED}),
        ("abcd", "", "c", {"a": CLEARED, "b": CLEARED, "c": BAD, "d": CLEARED}),
        ("abcd", "", "ac", {"a": BAD, "b": CLEARED, "c": BAD, "d": CLEARED}),
        ("a", "x", "", {"a": CLEARED}),
        ("a", "x", "a", {"a": UNDECIDED}),
        ("a", "xy", "a", {"a": BAD}),
        ("a", "", "a", {"a": UNDECIDED}),
        ("abcde", "", "e", {"a": CLEARED, "b": CLEARED, "c": CLEARED, "d": CLEARED, "e": BAD}),
    ],
)
def test_who_is_bad_who_is_cleared_and_who_is_not_known(
    suspects: str, trusted: str, bad: str, verdict: dict[str, SuspectVerdict]
) -> None:
    assert play(list(suspects), list(trusted), bad)[0] == verdict


@pytest.mark.parametrize("size", [4, 7, 16])
def test_one_bad_node_of_many_is_found_in_three_rounds(size: int) -> None:
    names = [f"n{i:02d}" for i in range(size)]
    for bad in names:
        standings, probes, rounds = play(names, ["x", "y"], {bad})
        assert {n for n, s in standings.items() if s is BAD} == {bad}
        assert rounds <= 3
        assert len(probes) <= size // 2 + 4


@pytest.mark.parametrize(
    ("probes", "of_a"),
    [
        ([], UNDECIDED),
        ([Probe("a", "b", U)], UNDECIDED),
        ([Probe("a", "b", R)], UNDECIDED),
        ([Probe("a", "b", B)], UNDECIDED),
        ([Probe("a", "b", B), Probe("a", "c", B)], UNDECIDED),
        ([Probe("a", "b", B), Probe("c", "b", G)], UNDECIDED),
        ([Probe("a", "b", B), Probe("a", "c", B), Probe("c", "b", G)], BAD),
        ([Probe("a", "b", B), Probe("a", "c", B), Probe("c", "x", G)], UNDECIDED),
        ([Probe("a", "b", B), Probe("a", "c", B), Probe("c", "x", G), Probe("b", "x", G)], BAD),
        ([Probe("a", "b", B), Probe("a", "c", B), Probe("c", "z", G), Probe("b", "z", G)], BAD),
        ([Probe("a", "b", B), Probe("a", "z", B), Probe("b", "z", G)], UNDECIDED),
        ([Probe("a", "b", B), Probe("c", "b", G), Probe("a", "c", G)], CLEARED),
        ([Probe("a", "b", B), Probe("c", "b", G), Probe("a", "x", R)], UNDECIDED),
        ([Probe("x", "a", B)], UNDECIDED),
        ([Probe("x", "a", B), Probe("y", "a", B)], UNDECIDED),
        ([Probe("x", "a", B), Probe("y", "a", B), Probe("x", "y", G)], BAD),
        ([Probe("x", "a", B), Probe("y", "a", B), Probe("x", "y", R)], UNDECIDED),
        ([Probe("x", "a", B), Probe("y", "a", B), Probe("x", "y", B)], UNDECIDED),
        ([Probe("x", "a", U), Probe("y", "a", B)], UNDECIDED),
    ],
)
def test_evidence(probes: list[Probe], of_a: SuspectVerdict) -> None:
    assert judge(["a", "b", "c"], ["x", "y"], probes)["a"] is of_a


def test_what_is_under_way_is_waited_for() -> None:
    probes = [Probe("a", "b", B), Probe("c", "d", R)]
    assert next_pairs("abcd", [], probes, free="abcd", most=9) == []
    assert not exhausted("abcd", [], probes)
    assert next_pairs("abcd", ["x"], probes, free="abcdx", most=2) == [("a", "x")]
    assert next_pairs("abcd", ["x"], probes, free="abcdx", most=1) == []


def test_only_free_nodes_are_asked() -> None:
    assert next_pairs("abc", ["x"], [], free="ab", most=9) == [("a", "b")]
    assert next_pairs("abc", ["x"], [], free="a", most=9) == []
    assert not exhausted("abc", ["x"], [])


def test_a_machine_without_an_address_of_its_own_connects() -> None:
    assert next_pairs("ab", ["x", "y"], [], free="abxy", most=9, connect_only="ab") == [("x", "a"), ("y", "b")]
    assert next_pairs("ab", ["x"], [], free="abx", most=9, connect_only="a") == [("b", "a")]


nodes = st.integers(1, 9).map(lambda n: [f"n{i}" for i in range(n)])


@pytest.mark.slow
@given(nodes, st.integers(0, 4), st.data(), st.integers(1, 3))
def test_nobody_good_is_ever_blamed_and_it_always_ends(
    suspects: list[str], outside: int, data: st.DataObject, most: int
) -> None:
    trusted = [f"x{i}" for i in range(outside)]
    bad = data.draw(st.sets(st.sampled_from(suspects)))
    silent = data.draw(st.sets(st.sampled_from([*suspects, *trusted])))
    standings, probes, _rounds = play(suspects, trusted, bad, silent=silent, most=most)
    for node, standing in standings.items():
        assert standing is not BAD or node in bad, (node, probes)
        assert standing is not CLEARED or node not in bad
        assert sum(node in probe.nodes for probe in probes) <= MOST_TRIES + len(suspects), probes
    if not silent and len(bad) == 1 and len(suspects) + outside >= 3:
        assert all(standing is not UNDECIDED for standing in standings.values()), (standings, probes)


@pytest.mark.slow
@given(nodes, st.integers(0, 4), st.data(), st.integers(1, 3))
def test_one_liar_gets_no_healthy_node_convicted(
    suspects: list[str], outside: int, data: st.DataObject, most: int
) -> None:
    """It spoils probes with any partners that it chooses; others may be bad or silent at the same time."""
    trusted = [f"x{i}" for i in range(outside)]
    everybody = [*suspects, *trusted]
    liar = data.draw(st.sampled_from(everybody))
    victims = data.draw(st.sets(st.sampled_from(everybody)))
    bad = data.draw(st.sets(st.sampled_from(everybody)))
    silent = data.draw(st.sets(st.sampled_from(everybody), max_size=2))
    spoilt = {frozenset((liar, each)) for each in victims}
    standings, probes, _rounds = play(suspects, trusted, bad, silent=silent, spoilt=spoilt, most=most)
    for node, standing in standings.items():
        assert standing is not BAD or node in bad or node == liar, (node, probes)
    if not bad and not silent and len(everybody) >= 4:
        honest = set(suspects) - {liar}
        assert all(standings[node] is CLEARED for node in honest), (liar, standings, probes)


@pytest.mark.parametrize(
    ("everybody", "suspects", "liar", "of_the_victim"),
    [
        ("ab", "ab", "b", UNDECIDED),
        ("abx", "ab", "b", CLEARED),
        ("abx", "ab", "x", CLEARED),
        ("ax", "a", "x", UNDECIDED),
        ("axy", "a", "x", CLEARED),
        ("abcd", "abcd", "b", CLEARED),
    ],
)
def test_a_healthy_node_and_one_liar(everybody: str, suspects: str, liar: str, of_the_victim: SuspectVerdict) -> None:
    trusted = [n for n in everybody if n not in suspects]
    standings, _, _ = play(list(suspects), trusted, "", spoilt={frozenset(("a", liar))})
    assert standings["a"] is of_the_victim


def test_two_liars_that_vouch_for_each_other_are_believed() -> None:
    """Out of scope: this many look like two good nodes and a bad one."""
    spoilt = {frozenset("ab"), frozenset("ac")}
    assert play(list("abc"), [], "", spoilt=spoilt)[0]["a"] is BAD


@given(nodes, st.data())
def test_unanswered_probes_blame_nobody(suspects: list[str], data: st.DataObject) -> None:
    probes = data.draw(
        st.lists(
            st.tuples(st.sampled_from(suspects), st.sampled_from(["x", "y"]), st.sampled_from([U, R])).map(
                lambda t: Probe(*t)
            )
        )
    )
    assert set(judge(suspects, ["x", "y"], probes).values()) == {UNDECIDED}
