"""Pair probes: choice of pairs, and verdict on each node from the answers. Pure.

Round one pairs the suspects among themselves, round two pairs the members of pairs that failed with others. A failed probe means that one
of two nodes, or the path between them, is bad, and one side alone can make it fail: by its agent's report, or by sending nothing. So a node
is called bad only if it failed with two partners that each passed with another node; and never once one of its probes was good, which both
sides must report. An unanswered probe does not count. One lying agent can make only its own node look bad; two could accuse another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

MOST_TRIES = 4
"""Probes of one suspect, unanswered ones among them; after that nothing more is to be learned from it now."""
_MOST_UNANSWERED = 2
"""Unanswered probes of the same pair."""
_WITNESSES = 2
"""Partners that passed with another node, with which a node must fail to be called bad: one of them may lie."""


class ProbeOutcome(StrEnum):
    """Outcome of one probe."""

    RUNNING = "running"
    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
    """Not carried out, not answered, or a job came in between."""


class SuspectVerdict(StrEnum):
    """Verdict on one suspect."""

    CLEARED = "cleared"
    BAD = "bad"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe between two nodes, and its outcome."""

    listener: str
    connector: str
    outcome: ProbeOutcome

    @property
    def nodes(self) -> tuple[str, str]:
        return (self.listener, self.connector)

    def partner(self, node: str) -> str:
        return self.connector if node == self.listener else self.listener


def judge(suspects: Collection[str], trusted: Collection[str], probes: Sequence[Probe]) -> dict[str, SuspectVerdict]:
    """Verdict of the probes on each suspect. ``trusted``: nodes in service with nothing against them."""
    proven = _passed(probes)
    vouched = proven & {*suspects, *trusted}
    return {node: _judge(node, proven, vouched, probes) for node in suspects}


def _passed(probes: Iterable[Probe]) -> set[str]:
    return {node for probe in probes if probe.outcome is ProbeOutcome.GOOD for node in probe.nodes}


def _judge(node: str, proven: set[str], vouched: set[str], probes: Sequence[Probe]) -> SuspectVerdict:
    if node in proven:
        return SuspectVerdict.CLEARED
    if any(node in probe.nodes and probe.outcome is ProbeOutcome.RUNNING for probe in probes):
        return SuspectVerdict.UNDECIDED  # the answer in flight may clear it
    if len(_partners(node, probes, ProbeOutcome.BAD) & vouched) >= _WITNESSES:
        return SuspectVerdict.BAD
    return SuspectVerdict.UNDECIDED


def _partners(node: str, probes: Sequence[Probe], *outcomes: ProbeOutcome) -> set[str]:
    return {p.partner(node) for p in probes if node in p.nodes and any(p.outcome is wanted for wanted in outcomes)}


def next_pairs(
    suspects: Collection[str],
    trusted: Sequence[str],
    probes: Sequence[Probe],
    *,
    free: Collection[str],
    most: int,
    connect_only: Collection[str] = (),
) -> list[tuple[str, str]]:
    """Pairs (listener, connector) to be probed now.

    ``trusted``: partners from outside, the best first; ``free``: nodes that can be probed at this moment; ``most``: pairs that may be under
    way; ``connect_only``: machines whose address is not known (they cannot listen)."""
    plan = _Plan(suspects, trusted, probes)
    room = most - sum(probe.outcome is ProbeOutcome.RUNNING for probe in probes)
    left = {node for node in free if node not in plan.running}
    pairs = plan.vouching(left)[: max(room, 0)]
    left -= {node for pair in pairs for node in pair}
    for node in plan.order():
        if len(pairs) >= room:
            break
        if node not in left:
            continue
        partner = plan.partner(node, left - {node}, frozenset(connect_only))
        if partner is not None:
            left -= {node, partner}
            pairs.append((partner, node) if node in connect_only else (node, partner))
    return pairs


def exhausted(
    suspects: Collection[str],
    trusted: Sequence[str],
    probes: Sequence[Probe],
    *,
    connect_only: Collection[str] = (),
) -> bool:
    """Whether no probe is under way and no further one would help, even if every node were free."""
    if any(probe.outcome is ProbeOutcome.RUNNING for probe in probes):
        return False
    everybody = {*suspects, *trusted}
    return not next_pairs(suspects, trusted, probes, free=everybody, most=1, connect_only=connect_only)


class _Plan:
    """Results so far, and the nodes to probe next."""

    def __init__(self, suspects: Collection[str], trusted: Sequence[str], probes: Sequence[Probe]) -> None:
        self._standing = judge(suspects, trusted, probes)
        self._trusted: Mapping[str, int] = {n: rank for rank, n in enumerate(trusted) if n not in self._standing}
        self._proven = _passed(probes)
        self._failed = {node for probe in probes if probe.outcome is ProbeOutcome.BAD for node in probe.nodes}
        self._probes = probes
        self.running = {node for probe in probes if probe.outcome is ProbeOutcome.RUNNING for node in probe.nodes}

    def order(self) -> list[str]:
        """Suspects that are undecided; round one goes before round two, so that it shows early whether many fail."""
        open_ = [n for n, s in self._standing.items() if s is SuspectVerdict.UNDECIDED and self._tries(n) < MOST_TRIES]
        return sorted(open_, key=lambda n: (n in self._failed, n))

    def _tries(self, node: str) -> int:
        return sum(node in probe.nodes for probe in self._probes)

    def vouching(self, left: Collection[str]) -> list[tuple[str, str]]:
        """Pairs of partners from outside: what a suspect failed with counts once it has passed with another node."""
        left, pairs = set(left), list[tuple[str, str]]()
        for node in (n for n, standing in self._standing.items() if standing is SuspectVerdict.UNDECIDED):
            failed_with = _partners(node, self._probes, ProbeOutcome.BAD) & (self._proven | set(self._trusted))
            if len(failed_with) < _WITNESSES or node in self.running:
                continue
            for witness in sorted(failed_with - self._proven, key=lambda n: self._trusted[n]):
                other = self._voucher(witness, left) if witness in left and self._tries(witness) < MOST_TRIES else None
                if other is not None:
                    left -= {witness, other}
                    pairs.append((witness, other))
        return pairs

    def _voucher(self, witness: str, left: set[str]) -> str | None:
        """The best node for an unproven one to pass with."""
        candidates = [
            (other not in self._proven, unanswered, self._trusted.get(other, -1), other)
            for other, unanswered in self._unknown(witness, left)
            if other in self._proven or other in self._trusted
        ]
        return min(candidates)[3] if candidates else None

    def _unknown(self, node: str, left: Iterable[str]) -> list[tuple[str, int]]:
        """Nodes of ``left`` with which a probe of this node is useful, and the number of their unanswered probes."""
        known = {node, *_partners(node, self._probes, ProbeOutcome.GOOD, ProbeOutcome.BAD)}
        unanswered = [p.partner(node) for p in self._probes if node in p.nodes and p.outcome is ProbeOutcome.UNKNOWN]
        asked = ((other, unanswered.count(other)) for other in left if other not in known)
        return [(other, count) for other, count in asked if count < _MOST_UNANSWERED]

    def partner(self, node: str, left: set[str], connect_only: frozenset[str]) -> str | None:
        """The most useful partner; None: there is none now."""
        candidates = [
            (rank, unanswered, self._trusted.get(other, -1), other)
            for other, unanswered in self._unknown(node, left)
            if not {node, other} <= connect_only and (rank := self._rank(node, other)) is not None
        ]
        return min(candidates)[3] if candidates else None

    def _rank(self, node: str, other: str) -> int | None:
        """Lower is better; None: not now, or never."""
        cleared = self._standing.get(other) is SuspectVerdict.CLEARED
        bad = self._standing.get(other) is SuspectVerdict.BAD
        if bad or (other not in self._standing and other not in self._trusted):
            return None
        if other in self._standing and not cleared and self._tries(other) >= MOST_TRIES:
            return None
        proven = other in self._proven
        fellow = other in self._standing and not cleared
        if fellow and (node in self._failed or other in self._failed):
            return None if self.running else 3  # the last resort: two suspects, once no other node is left to wait for
        if node in self._failed:
            return 0 if proven else 1
        return 0 if fellow else 1
