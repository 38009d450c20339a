"""``ib.flaps``: ports that lose their link again and again. Clears automatically after ``network.flap_quiet_min`` without one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_checks import link_history
from holdfast_checks.link_history import LinkHistory, LinkTrouble, observe, trouble
from holdfast_checks.probes.fabric import fabric_ports, losses
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, SampleChange, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "ib.flaps"


@dataclass(frozen=True, slots=True)
class IbFlapsFacts:
    """The history of each port, by its name."""

    histories: Mapping[str, LinkHistory]
    pci: Mapping[str, str | None]
    now_s: float
    quiet_s: float


def gather(context: Context) -> IbFlapsFacts:
    """Raises NotApplicable without such ports."""
    settings = context.settings
    ports = fabric_ports(context)
    if not ports:
        raise NotApplicable("no InfiniBand or RoCE device carries jobs' traffic here")
    before: Mapping[str, LinkHistory] = {} if context.before is None else context.before.facts.histories
    now_s = time.monotonic()
    histories = {
        seen.name: observe(
            before.get(seen.name, LinkHistory()),
            seen.port.up if seen.port.state else None,
            losses(settings.sysfs, seen),
            now_s,
        )
        for seen in ports
    }
    quiet_s = settings.network.flap_quiet_min * 60
    return IbFlapsFacts(histories, {seen.name: seen.device.pci for seen in ports}, now_s, quiet_s)


def judge(change: SampleChange) -> tuple[Result, ...]:
    """One result a port that was ever up; what is down now is judged by ``ib.port``."""
    facts: IbFlapsFacts = change.now.facts
    return tuple(
        _judge_one(name, facts.pci[name], trouble(history, facts.now_s, facts.quiet_s))
        if history.seen_up
        else Result.skipped(CHECK_ID, name, summary=f"{name}: not seen up", pci=facts.pci[name])
        for name, history in facts.histories.items()
    )


_TEXTS = {
    "flapping": "lost its link {downs} times for {long:g} s and more",
    "dropped": "lost its link for {longest:.0f} s",
    "unstable": "lost its link {losses} times",
}


def _judge_one(name: str, pci: str | None, found: LinkTrouble) -> Result:
    if not found.code:
        return Result.ok(CHECK_ID, name, pci=pci, sticky=True)
    flapping = found.code == "flapping"
    text = _TEXTS[found.code].format(
        downs=found.long_downs, long=link_history.LONG_DOWN_S, longest=found.longest_s, losses=found.losses
    )
    return Result.finding(
        CHECK_ID,
        Severity.DEGRADED if flapping else Severity.WARNING,
        Remedy.HUMAN if flapping else Remedy.NONE,
        name,
        code=found.code,
        summary=f"{name}: {text}",
        evidence={
            "long_downs": found.long_downs,
            "losses": found.losses,
            "longest_s": round(found.longest_s, 1),
        },
        pci=pci,
        sticky=True,
    )


CHECK = Check(
    id=CHECK_ID,
    title="InfiniBand and RoCE links are steady",
    needs=frozenset({Need.NETWORK}),
    interval_s=10,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.HUMAN,
    gather=gather,
    judge=judge,
    compares=True,
    thresholds=(
        Threshold("a down lasts", link_history.LONG_DOWN_S, "s", "gpud: down for 25 s and more"),
        Threshold(
            "flapping from", link_history.FLAPS, "losses", "gpud: 3 downs and back; NVSentinel: carrier_changes > 2"
        ),
        Threshold("dropped from", link_history.DROPPED_S, "s", "gpud: down for more than 4 min"),
        Threshold("looks back", link_history.WINDOW_S, "s", "AzNHC, OCI: 6 h"),
        Threshold("quiet again after", 60, "min", "gpud#1247: sticky for ever drained a node; network.flap_quiet_min"),
    ),
)
