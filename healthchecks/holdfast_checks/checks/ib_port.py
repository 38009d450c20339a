"""``ib.port``: the InfiniBand and RoCE ports are up, and as fast as before.

A port that never was up is taken for one without a cable. What was up once is remembered over reboots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from holdfast_checks.probes import known as memory
from holdfast_checks.probes.fabric import FabricPort, fabric_ports
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "ib.port"
_KNOWN = "ib_ports"
POLLS = 3
TOLERANCE = 0.99
"""Rates are read as decimal numbers."""
_WAITING = frozenset({"INIT", "ARMED"})


@dataclass(frozen=True, slots=True)
class IbPortFacts:
    """The ports, and what is known of them."""

    ports: tuple[FabricPort, ...]
    known: Mapping[str, float] = field(default_factory=dict)
    """Ports that were up → the best rate they had, in Gb/s."""
    forgotten: frozenset[str] = frozenset()
    """Ports that were up once, before others took their place."""
    expected_ports: int = 0
    expected_rate_gbps: float = 0.0


def gather(context: Context) -> IbPortFacts:
    """Raises NotApplicable where such ports neither are nor were nor should be."""
    settings = context.settings
    ports = fabric_ports(context)
    kept = memory.load(settings.state_dir, _KNOWN)
    raw, forgotten = memory.split(kept)
    known = _rates(raw)
    expected = settings.network.expected_ib_ports
    if not (ports or known or expected):
        raise NotApplicable("no InfiniBand or RoCE device carries jobs' traffic here")
    learned = {name: f"{rate:g}" for name, rate in learn(known, ports, expected).items()}
    if (keep := memory.joined(learned, kept)) != kept:
        memory.save(settings.state_dir, _KNOWN, keep)
    return IbPortFacts(ports, known, forgotten, expected, settings.network.expected_rate_gbps)


def _rates(raw: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, rate in raw.items():
        try:
            found[name] = float(rate)
        except ValueError:
            continue
    return found


def learn(known: Mapping[str, float], ports: tuple[FabricPort, ...], expected: int) -> dict[str, float]:
    """What to remember. As many ports up as there should be, or as there were under other names, replace what was known."""
    up = {seen.name: max(seen.port.rate_gbps or 0.0, known.get(seen.name, 0.0)) for seen in ports if seen.port.up}
    if (expected and len(up) >= expected) or (
        len(up) >= len(known) and not known.keys() <= {one.name for one in ports}
    ):
        return up
    return {**known, **up}


def judge(facts: IbPortFacts) -> tuple[Result, ...]:
    """One result a port, and one for their number."""
    results = [_judge_one(seen, facts) for seen in facts.ports]
    results += _gone(facts)
    results += [
        Result.ok(CHECK_ID, name, summary="not expected any more", sticky=True)
        for name in sorted(facts.forgotten - {seen.name for seen in facts.ports})
    ]
    bad = sum(result.bad and result.code != "slow" for result in results)
    return (*results, *_number(facts, bad))


def _judge_one(seen: FabricPort, facts: IbPortFacts) -> Result:
    port, name = seen.port, seen.name
    if not port.state:
        return Result.unknown(CHECK_ID, name, summary=f"{name}: its state could not be read", pci=seen.device.pci)
    if port.up:
        wanted = facts.expected_rate_gbps or facts.known.get(name, 0.0)
        rate = port.rate_gbps
        if rate is not None and rate < wanted * TOLERANCE:
            text = f"runs at {rate:g} Gb/s, not at {wanted:g}"
            return _finding(seen, "slow", Severity.DEGRADED, text)
        return Result.ok(CHECK_ID, name, summary=f"{rate or 0:g} Gb/s", pci=seen.device.pci, sticky=True)
    if name not in facts.known:
        why = f"{name}: never was up ({port.state}, {port.phys_state}): taken for a port without a cable"
        return Result.skipped(CHECK_ID, name, summary=why, pci=seen.device.pci)
    if port.state in _WAITING:
        text = f"the cable is there, the subnet manager has not made it active ({port.state})"
        return _finding(seen, "not_active", Severity.DEGRADED, text)
    return _finding(seen, "down", Severity.FATAL, f"is down ({port.state}, {port.phys_state})")


def _finding(seen: FabricPort, code: str, severity: Severity, text: str) -> Result:
    port = seen.port
    return Result.finding(
        CHECK_ID,
        severity,
        Remedy.HUMAN,
        seen.name,
        code=code,
        summary=f"{seen.name}: {text}",
        evidence={
            "state": port.state,
            "phys_state": port.phys_state,
            "rate_gbps": port.rate_gbps or 0.0,
            "link_layer": port.link_layer,
        },
        pci=seen.device.pci,
        sticky=True,
    )


def _gone(facts: IbPortFacts) -> Iterator[Result]:
    """Known ports whose device is not there any more, unless others have taken their place."""
    present = {seen.name for seen in facts.ports}
    if not learn(facts.known, facts.ports, facts.expected_ports).keys() >= facts.known.keys():
        return
    for name in facts.known.keys() - present:
        yield Result.finding(
            CHECK_ID,
            Severity.FATAL,
            Remedy.REBOOT,
            name,
            code="gone",
            summary=f"{name}: the device is gone",
            sticky=True,
        )


def _number(facts: IbPortFacts, bad: int) -> Iterator[Result]:
    if not facts.expected_ports:
        return
    up = sum(seen.port.up for seen in facts.ports)
    evidence = {"up": up, "expected": facts.expected_ports}
    if up + bad >= facts.expected_ports:
        yield Result.ok(CHECK_ID, summary=f"{up} ports up", evidence=evidence, sticky=True)
        return
    yield Result.finding(
        CHECK_ID,
        Severity.DEGRADED,
        Remedy.HUMAN,
        code="missing",
        summary=f"{up} ports up, expected are {facts.expected_ports}",
        evidence=evidence,
        sticky=True,
    )


CHECK = Check(
    id=CHECK_ID,
    title="InfiniBand and RoCE ports are up and at speed",
    needs=frozenset({Need.NETWORK}),
    interval_s=10,
    cost=Cost.PASSIVE,
    severity=Severity.FATAL,
    remedy=Remedy.HUMAN,
    gather=gather,
    judge=judge,
    hysteresis=(POLLS, POLLS),
    thresholds=(
        Threshold("runs in a row", POLLS, "runs", "gpud counts downs from 25 s on; NVSentinel: gone for 3 polls"),
        Threshold("rate", TOLERANCE, "of the best", "gpud: expected ports x rate; AzNHC: 400 Gb/s"),
    ),
)
