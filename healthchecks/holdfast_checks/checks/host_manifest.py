"""``host.manifest``: versions and hardware against the manifest of a good node.

Warnings: a fleet is upgraded node by node, and a newer driver is no fault. But one node with another NCCL is hours of search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_checks.manifest import manifest_of, versions
from holdfast_checks.per_host import good, skipped, warning
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "host.manifest"


@dataclass(frozen=True, slots=True)
class HostManifestFacts:
    """Versions by name: ``kernel``, ``module NAME``, ``package NAME``."""

    wanted: Mapping[str, str]
    found: Mapping[str, str]


def gather(context: Context) -> HostManifestFacts:
    """Raises NotApplicable where nothing was learned, NotGathered for a broken manifest."""
    manifest = manifest_of(context)
    if manifest is None:
        raise NotApplicable('no manifest was learned ("holdfast-checks learn" on a good node)')
    if not manifest.versions:
        raise NotApplicable("the manifest names no versions")
    return HostManifestFacts(manifest.versions, versions(context))


def judge(facts: HostManifestFacts) -> tuple[Result, ...]:
    """One result a name. What is not here is for another check (a module), or not installed."""
    return tuple(_judge_one(name, wanted, facts.found.get(name)) for name, wanted in sorted(facts.wanted.items()))


def _judge_one(name: str, wanted: str, found: str | None) -> Result:
    if found is None:
        return skipped(CHECK_ID, f"no version of {name} can be read here; a good node has {wanted}", name)
    if found == wanted:
        return good(CHECK_ID, found, name)
    return warning(CHECK_ID, "drift", f"{name} is {found}, a good node has {wanted}", name, found=found, wanted=wanted)


CHECK = Check(
    id=CHECK_ID,
    title="Versions are those of a good node",
    needs=frozenset({Need.HOST, Need.COMMAND}),
    interval_s=3600,
    cost=Cost.PASSIVE,
    severity=Severity.WARNING,
    remedy=Remedy.NONE,
    gather=gather,
    judge=judge,
    deadline_s=20.0,
)
