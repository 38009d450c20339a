"""``efa.count``: the expected EFA devices are bound to the ``efa`` driver.

Never by port state (a constant in the driver) and never by the number of RDMA devices: Blackwell boards show mlx5 bridges for NVLink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from holdfast_checks.catalog.instance_types import lookup
from holdfast_checks.probes import known as memory
from holdfast_checks.probes.rdma import Device, efa_devices, efa_functions
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, Threshold
from holdfast_checks.result import Remedy, Result, Scalar, Severity

CHECK_ID = "efa.count"
_KNOWN = "efa_devices"
POLLS = 3


@dataclass(frozen=True, slots=True)
class EfaCountFacts:
    """What is there, and what should be."""

    bound: tuple[Device, ...]
    unbound: tuple[str, ...] = ()
    """PCI addresses of EFA functions without the driver."""
    known: Mapping[str, str] = field(default_factory=dict)
    """PCI address → name of the devices that this node had."""
    forgotten: frozenset[str] = frozenset()
    """PCI addresses of devices that it had once, before others took their place."""
    expected: int = 0
    """What the site says; 0: nothing."""
    instance_type: str = ""
    type_has: int = 0
    """As many can be attached to this type."""


def gather(context: Context) -> EfaCountFacts:
    """Scans the PCI bus only when something is missing. Raises NotApplicable where EFA neither is nor was nor should be."""
    settings = context.settings
    row = lookup(settings.instance_type)
    kept = memory.load(settings.state_dir, _KNOWN)
    known, forgotten = memory.split(kept)
    bound = efa_devices(settings.sysfs)
    expected = settings.network.expected_efa
    wanted = max(expected or (row.efa if row else 0), len(known))
    functions = efa_functions(settings.sysfs) if len(bound) < wanted or not wanted else {}
    seen = {device.pci for device in bound}
    facts = EfaCountFacts(
        bound,
        tuple(address for address in functions if address not in seen),
        known,
        forgotten,
        expected,
        settings.instance_type,
        row.efa if row else 0,
    )
    if not (bound or functions or known or expected):
        raise NotApplicable("no EFA device is attached to this node")
    learned = memory.joined(learn(facts), kept)
    if learned != kept:
        memory.save(settings.state_dir, _KNOWN, learned)
    return facts


def learn(facts: EfaCountFacts) -> dict[str, str]:
    """What to remember: as many as there should be, or another set, replace what was known; else new ones are added."""
    seen = {device.pci: device.name for device in facts.bound if device.pci is not None}
    enough = bool(facts.expected) and len(facts.bound) >= facts.expected
    if enough or len(seen) >= len(facts.known) or (seen and not seen.keys() & facts.known.keys()):
        return seen
    return {**facts.known, **seen}


def judge(facts: EfaCountFacts) -> tuple[Result, ...]:
    """One result a device, and one for their number. A device is named by its PCI address: it has that without a driver, too."""
    named = (*_unbound(facts), *_gone(facts))
    well = {device.pci: device.name for device in facts.bound if device.pci is not None}
    left = dict.fromkeys(facts.forgotten - well.keys() - set(facts.unbound), "not expected any more")
    fine = (
        Result.ok(CHECK_ID, address, summary=text, pci=address, sticky=True)
        for address, text in {**well, **left}.items()
    )
    return (*fine, *named, _number(facts, len(named)))


def _unbound(facts: EfaCountFacts) -> Iterator[Result]:
    for address in facts.unbound:
        used = address in facts.known
        name = facts.known.get(address, address)
        severity = Severity.FATAL if used else Severity.DEGRADED
        yield _device(address, "unbound", severity, f"{name}: on the PCI bus, but not bound to the efa driver")


def _gone(facts: EfaCountFacts) -> Iterator[Result]:
    """Where enough are left by what the site says, or others came, nothing is gone: devices may be renamed and moved."""
    present = {device.pci for device in facts.bound} | set(facts.unbound)
    if learn(facts).keys() >= facts.known.keys() and len(present) < len(facts.known):
        for address, name in facts.known.items():
            if address not in present:
                yield _device(address, "gone", Severity.FATAL, f"{name}: was there and is gone from the PCI bus")


def _device(address: str, code: str, severity: Severity, summary: str) -> Result:
    return Result.finding(
        CHECK_ID, severity, Remedy.REBOOT, address, code=code, summary=summary, pci=address, sticky=True
    )


def _number(facts: EfaCountFacts, named: int) -> Result:
    found = len(facts.bound)
    evidence: dict[str, Scalar] = {
        "bound": found,
        "expected": facts.expected or facts.type_has,
        "instance_type": facts.instance_type,
    }
    if facts.expected > found + named:
        summary = f"{found} EFA devices, expected are {facts.expected}"
        return Result.finding(
            CHECK_ID, Severity.DEGRADED, Remedy.REBOOT, code="missing", summary=summary, evidence=evidence, sticky=True
        )
    if not facts.expected and facts.type_has > found + named:
        summary = (
            f"{found} EFA devices; {facts.instance_type} can have {facts.type_has}: "
            f"if it was launched with fewer, say so in network.expected_efa"
        )
        return Result.finding(
            CHECK_ID, Severity.WARNING, code="fewer_than_type", summary=summary, evidence=evidence, sticky=True
        )
    return Result.ok(CHECK_ID, summary=f"{found} EFA devices", evidence=evidence, sticky=True)


CHECK = Check(
    id=CHECK_ID,
    title="All EFA devices are bound to their driver",
    needs=frozenset({Need.NETWORK}),
    interval_s=15,
    cost=Cost.PASSIVE,
    severity=Severity.FATAL,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    hysteresis=(POLLS, POLLS),
    thresholds=(
        Threshold(
            "runs in a row", POLLS, "runs", "NVSentinel PR #1750: gone for 3 polls; awslabs: p5en comes late, 3 tries"
        ),
    ),
)
