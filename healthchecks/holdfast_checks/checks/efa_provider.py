"""``efa.provider``: libfabric offers every EFA device to jobs.

One bad verbs device disables the provider for a whole process (libfabric#12708), and NCCL then silently falls back to TCP."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.probes.child import CHILDREN, Hung
from holdfast_checks.probes.rdma import efa_devices
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, NotGathered, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "efa.provider"
DEADLINE_S = 20.0
_AWS = "/opt/amazon/efa/bin/fi_info"
_DOMAIN = re.compile(r"^\s*domain:\s*(\S+)", re.MULTILINE)
_KIND = re.compile(r"-(?:rdm|dgrm|direct)$")
_MOST_BYTES = 1 << 20
_NO_DATA = ("-61", "No data available")
"""fi_getinfo's answer where no provider fits (FI_ENODATA)."""


@dataclass(frozen=True, slots=True)
class EfaProviderFacts:
    """The devices and what ``fi_info -p efa`` said."""

    devices: tuple[str, ...]
    status: int
    output: str
    complaint: str = ""


def gather(context: Context) -> EfaProviderFacts:
    """Runs the command. Raises NotApplicable without EFA devices or libfabric, NotGathered when it does not answer."""
    settings = context.settings
    devices = tuple(device.name for device in efa_devices(settings.sysfs))
    if not devices:
        raise NotApplicable("this node has no EFA device")
    command = _command(settings.network.fi_info)
    try:
        ended = CHILDREN.run(CHECK_ID, [command, "-p", "efa"], DEADLINE_S, max_bytes=_MOST_BYTES, gentle=True)
    except FileNotFoundError:
        raise NotApplicable(f"libfabric is not installed: no {command}") from None
    if isinstance(ended, Hung):
        raise NotGathered(f"{command} did not answer within {ended.seconds:.0f} s")
    return EfaProviderFacts(devices, ended.status, ended.text, "" if ended.status == 0 else ended.complaint)


def _command(configured: str) -> str:
    if configured:
        return configured
    return _AWS if Path(_AWS).exists() else shutil.which("fi_info") or "fi_info"


def judge(facts: EfaProviderFacts) -> tuple[Result, ...]:
    """One result for the provider as a whole, and one for each device that it leaves out."""
    offered = {_KIND.sub("", domain) for domain in _DOMAIN.findall(facts.output)}
    if facts.status != 0 and not any(sign in facts.complaint for sign in _NO_DATA):
        return (Result.unknown(CHECK_ID, summary=f"fi_info: {facts.complaint}"),)
    evidence = {"offered": len(offered), "devices": len(facts.devices)}
    if not offered:
        summary = f"libfabric offers no EFA device of {len(facts.devices)}: jobs fall back to TCP or fail"
        return (_finding("node", "none", summary, evidence),)
    missing = [name for name in facts.devices if name not in offered]
    if len(offered) >= len(facts.devices):  # it may name them in its own way: as many are enough
        missing = []
    return (
        Result.ok(CHECK_ID, summary=f"{len(offered)} devices offered", evidence=evidence, sticky=True),
        *(Result.ok(CHECK_ID, name, sticky=True) for name in facts.devices if name not in missing),
        *(_finding(name, "left_out", f"libfabric does not offer {name}", evidence) for name in missing),
    )


def _finding(component: str, code: str, summary: str, evidence: dict[str, int]) -> Result:
    return Result.finding(
        CHECK_ID,
        Severity.DEGRADED,
        Remedy.REBOOT,
        component,
        code=code,
        summary=summary,
        evidence=evidence,
        sticky=True,
    )


CHECK = Check(
    id=CHECK_ID,
    title="libfabric offers the EFA devices to jobs",
    needs=frozenset({Need.NETWORK, Need.COMMAND}),
    interval_s=900,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    deadline_s=DEADLINE_S + 2,
    thresholds=(Threshold("no answer", DEADLINE_S, "s", "our own choice; awslabs runs fi_info -p efa without one"),),
)
