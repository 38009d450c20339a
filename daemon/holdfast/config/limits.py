"""Values of ``controller.toml`` with which healthy nodes would look dead, or nothing could be decided. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.errors import Rejected
from holdfast.model.hostlist import expand
from holdfast.model.policy import DeathPolicy, Policy

_NAMED = 5
_GRACE_S = 300.0


def refused(policy: Policy) -> str:
    """Why this policy is not taken, in one line that names the setting; empty: it may be."""
    death = policy.death
    least = (
        ("death.silent_after_heartbeats", death.silent_after_heartbeats, 1.0, "an agent that reports on time would count as silent"),
        ("death.peers", death.peers, 2, "two peers must agree that a node is dead"),
        ("death.probe_timeout_s", death.probe_timeout_s, 0.2, "no peer could reach a living node in time"),
        ("death.reprobe_s", death.reprobe_s, 1.0, "peers would be asked without a pause"),
        ("death.reboot_grace_s", death.reboot_grace_s, 10.0, "a machine would be ended at its first missing heartbeat"),
        ("control.view_max_age_s", policy.view_max_age_s, 3.0, "what was read of Slurm would be too old before it was used"),
    )  # fmt: skip
    low = (f"{name}: {value:g} is less than {bound:g}: {why}" for name, value, bound, why in least if value < bound)
    return next(low, "") or _domains(death)


def doubts(policy: Policy) -> list[str]:
    """What is taken, and rarely meant."""
    grace_s = policy.death.reboot_grace_s
    if grace_s >= _GRACE_S:
        return []
    return [
        f"death.reboot_grace_s = {grace_s:g}: a silent machine is rebooted or replaced after {grace_s:g} s, which an ordinary reboot may "
        "take (default: 900)"
    ]


def _domains(death: DeathPolicy) -> str:
    """A hostlist that is none, a domain without a name, a node in two of them, a prefix that is no length of one."""
    if not 1 <= death.domain_prefix <= 32:
        return f"death.domain_prefix: {death.domain_prefix} is not between 1 and 32"
    seen: dict[str, str] = {}
    for hostlist, domain in death.domains.items():
        if not domain:
            return f"death.domains: {hostlist!r} has an empty domain"
        try:
            names = expand(hostlist)
        except Rejected as error:
            return f"death.domains: {error}"
        if twice := _twice(seen, names, domain):
            named = f"{', '.join(twice[:_NAMED])} {'is' if len(twice) == 1 else 'are'}"
            return f"death.domains: {named} in {seen[twice[0]]!r} and in {domain!r}"
        seen |= dict.fromkeys(names, domain)
    return ""


def _twice(seen: Mapping[str, str], names: tuple[str, ...], domain: str) -> list[str]:
    return [n for n in names if seen.get(n, domain) != domain]
