"""``net.ethernet``: the network device of the default route keeps its carrier. A loss meanwhile is reported later."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_checks import link_history
from holdfast_checks.link_history import LinkHistory, observe, trouble
from holdfast_checks.probes.fabric import management_devices
from holdfast_checks.probes.netdev import NetworkDevice, link
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, SampleChange, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "net.ethernet"


@dataclass(frozen=True, slots=True)
class NetEthernetFacts:
    """The devices with their histories, by name."""

    links: Mapping[str, NetworkDevice]
    histories: Mapping[str, LinkHistory]
    now_s: float
    quiet_s: float


def gather(context: Context) -> NetEthernetFacts:
    """Raises NotApplicable without a default route through a device of this machine."""
    settings = context.settings
    found = (link(settings.sysfs, name) for name in sorted(management_devices(settings)))
    links = {one.name: one for one in found if one is not None}
    if not links:
        raise NotApplicable("no network device of this node has the default route")
    before: Mapping[str, LinkHistory] = {} if context.before is None else context.before.facts.histories
    now_s = time.monotonic()
    histories = {
        name: observe(before.get(name, LinkHistory()), one.carrier if one.wanted else None, one.losses, now_s)
        for name, one in links.items()
    }
    return NetEthernetFacts(links, histories, now_s, settings.network.flap_quiet_min * 60)


def judge(change: SampleChange) -> tuple[Result, ...]:
    """One result a device: a bond works with one member, so this is a warning."""
    facts: NetEthernetFacts = change.now.facts
    return tuple(_judge_one(one, facts.histories[name], facts) for name, one in facts.links.items())


def _judge_one(one: NetworkDevice, history: LinkHistory, facts: NetEthernetFacts) -> Result:
    found = trouble(history, facts.now_s, facts.quiet_s)
    if one.wanted and one.carrier is False and history.seen_up:
        return _finding(one.name, "no_carrier", "has lost its carrier", found.losses)
    if found.code:
        return _finding(one.name, "flapping", f"has lost its carrier {found.losses} times", found.losses)
    if one.carrier is None and one.wanted:
        return Result.unknown(CHECK_ID, one.name, summary=f"{one.name}: carrier not read")
    return Result.ok(CHECK_ID, one.name, sticky=True)


def _finding(name: str, code: str, text: str, losses: int) -> Result:
    return Result.finding(
        CHECK_ID,
        Severity.WARNING,
        component=name,
        code=code,
        summary=f"{name}: {text}",
        evidence={"losses": losses},
        sticky=True,
    )


CHECK = Check(
    id=CHECK_ID,
    title="The default route's network device keeps its carrier",
    needs=frozenset({Need.NETWORK}),
    interval_s=30,
    cost=Cost.PASSIVE,
    severity=Severity.WARNING,
    remedy=Remedy.NONE,
    gather=gather,
    judge=judge,
    compares=True,
    thresholds=(
        Threshold(
            "flapping from",
            link_history.FLAPS,
            "losses",
            "GCM: lost carrier on Ethernet is a warning; NVSentinel: carrier_changes > 2",
        ),
        Threshold("quiet again after", 60, "min", "our own choice; network.flap_quiet_min"),
    ),
)
