"""What is wrong with ``[death]`` beyond the limits of each setting, and what is rarely meant. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.errors import Rejected
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.policies.policy import DeathPolicy, Mode, Policy
from holdfast.model.slurm.hostlist import expand

_NAMED = 5
_GRACE_S = 300.0


def doubts(policy: Policy) -> list[str]:
    """What is taken, and rarely meant."""
    grace_s = policy.death.reboot_grace_s
    sets = [
        _less(each, policy) for each in policy.nodes if each.mode and Mode(each.mode).least(policy.mode) != each.mode
    ]
    if grace_s >= _GRACE_S:
        return sets
    return [
        *sets,
        f"death.reboot_grace_s = {grace_s:g}: a silent machine is rebooted or replaced after {grace_s:g} s, which an ordinary reboot may "
        "take (default: 900)",
    ]


def _less(each: NodeSet, policy: Policy) -> str:
    return (
        f"node set {each.name!r}: mode = {each.mode!r} has no effect, as [mode] mode = {policy.mode.value!r} is the "
        "most that is done to any node; set that to the most, and [mode] other_nodes to what holds for the rest"
    )


def wrong_domains(death: DeathPolicy) -> str:
    """A hostlist that is none, a domain without a name, a node in two of them, in one line; empty: there is none of these."""
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
