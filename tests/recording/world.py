"""The world around a simulated site's store: Slurm, machines, provider, time; saved as JSON, and built again around another store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_type_hints

from holdfast.model.machine import Instance, Notice, ProviderCan
from holdfast.model.slurm.cluster import Reservation
from holdfast.ports import Store
from recording.values import build, plain, restore
from support.simulated.arrays import ArraySlurm, ElasticSite
from support.simulated.machines import Machine
from support.simulated.site import POLICY, Site
from support.simulated.slurm import SimJob, SimNode

_PLAIN_OF_PROVIDER = (
    "tokens",
    "replaced",
    "cycled",
    "reported",
    "away",
    "itself",
    "reboots_help",
    "capacity",
    "boot_s",
)


def save(site: Site) -> dict[str, Any]:
    """What :func:`around` builds it from."""
    slurm, provider = site.slurm, site.provider
    return {
        "elastic": isinstance(slurm, ArraySlurm),
        "elapsed_s": site.clock.elapsed_s,
        "entropy": site._entropy,
        "policy": _differences(POLICY, site.policy),
        "machines": plain(site.machines),
        "slurm": {
            "nodes": plain(slurm.nodes),
            "jobs": plain(slurm.jobs),
            "reservations": plain(slurm.reservations),
            "requeued": [[*run, count] for run, count in slurm.requeued.items()],
            "reboot_program": slurm.reboot_program,
            "throttles": plain(slurm.throttles) if isinstance(slurm, ArraySlurm) else {},
            "started": sorted(slurm._started) if isinstance(slurm, ArraySlurm) else [],
        },
        "provider": {
            "can": plain(provider._can),
            "shown": plain(provider._shown),
            "serving": dict(provider._serving),
            "terminated": dict(provider.terminated),
            "announced": plain(provider.announced),
            **{name: plain(getattr(provider, name)) for name in _PLAIN_OF_PROVIDER},
        },
    }


def around(store: Store, saved: Mapping[str, Any]) -> Site:
    """A site in the saved world with this store; its controller and actor have just started."""
    machines = {number: build(Machine, m) for number, m in saved["machines"].items()}
    can = build(ProviderCan, saved["provider"]["can"])
    policy = _changed(POLICY, saved["policy"])
    kind = ElasticSite if saved["elastic"] else Site
    names = {name: saved["provider"]["serving"][name] for name in saved["slurm"]["nodes"]}
    site = kind(made=names, policy=policy, can=can, store=store, warm=False)
    site.clock.elapsed_s = saved["elapsed_s"]
    site._entropy = saved["entropy"]
    site.machines.clear()
    site.machines.update(machines)
    _fill_slurm(site, saved["slurm"])
    _fill_provider(site, saved["provider"])
    for node in site.slurm.nodes.values():
        site._slurmd_of[node.name] = site.provider.serving(node.name).boot_id, node.slurmd_started
    site.start_controller()
    site.start_actor()
    return site


def _fill_slurm(site: Site, saved: Mapping[str, Any]) -> None:
    slurm = site.slurm
    slurm.nodes = {name: build(SimNode, node) for name, node in saved["nodes"].items()}
    slurm.jobs = {int(number): build(SimJob, job) for number, job in saved["jobs"].items()}
    slurm.reservations = {name: build(Reservation, held) for name, held in saved["reservations"].items()}
    slurm.requeued = Counter({(job, run): count for job, run, count in saved["requeued"]})
    slurm.reboot_program = saved["reboot_program"]
    if isinstance(slurm, ArraySlurm):
        slurm.throttles = {int(array): most for array, most in saved["throttles"].items()}
        slurm._started = set(saved["started"])


def _fill_provider(site: Site, saved: Mapping[str, Any]) -> None:
    provider = site.provider
    provider._shown = {number: build(Instance, shown) for number, shown in saved["shown"].items()}
    provider._serving = dict(saved["serving"])
    provider.terminated = Counter(saved["terminated"])
    provider.announced = [build(Notice, notice) for notice in saved["announced"]]
    for name in _PLAIN_OF_PROVIDER:
        setattr(provider, name, saved[name])


def _differences(shipped: Any, chosen: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields(shipped):
        before, after = getattr(shipped, field.name), getattr(chosen, field.name)
        if before != after:
            found[field.name] = _differences(before, after) if is_dataclass(before) else plain(after)
    return found


def _changed(shipped: Any, differences: Mapping[str, Any]) -> Any:
    changed = {}
    for name, value in differences.items():
        before = getattr(shipped, name)
        changed[name] = _changed(before, value) if is_dataclass(before) else restore(_hint(shipped, name), value)
    return replace(shipped, **changed)


def _hint(noun: Any, name: str) -> Any:
    return get_type_hints(type(noun))[name]
