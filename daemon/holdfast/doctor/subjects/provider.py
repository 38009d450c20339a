"""Rules about the provider and the rights that it grants; they need no Slurm."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts
from holdfast.model.policies.policy import Mode
from holdfast.providers.registry import KINDS


def reachable(facts: DoctorFacts) -> Iterator[Advice]:
    chosen = facts.policy.repair.provider
    if facts.provider_problem:
        yield Advice(
            "site.provider_unreachable",
            AdviceLevel.ERROR,
            f"the provider {chosen} does not answer: {facts.provider_problem}",
            "Bad nodes are drained and their jobs recovered, but no node is replaced.",
            "check the actor's credentials (/etc/holdfast/actor/environment), [provider] region, and the way to the endpoint",
        )
    elif chosen == "none":
        yield Advice(
            "site.no_provider",
            AdviceLevel.HINT,
            "no provider: Holdfast cannot replace a node",
            "A bad node is drained and waits for an operator; the spares are used up one after the other.",
            'controller.toml: [provider] kind = "ec2"   # or another: docs/providers.md',
        )


def rights(facts: DoctorFacts) -> Iterator[Advice]:
    chosen = facts.policy.repair.provider
    if facts.provider_denied:
        calls = ", ".join(sorted(facts.provider_denied))
        policy = f"docs/iam/{chosen}.json" if KINDS[chosen].iam else "docs/providers.md"
        yield Advice(
            "provider.permission",
            AdviceLevel.WARNING if facts.policy.mode is Mode.OBSERVE else AdviceLevel.ERROR,
            f"user {facts.user} may not, at the provider {chosen}: {calls}",
            f"{next(iter(facts.provider_denied.values()))}. Steps of the ladder that need it fail.",
            f"grant it to the actor: {policy}   # and run the doctor with the actor's credentials: docs/doctor.md",
        )
    for call, reason in sorted(facts.provider_refused.items()):
        yield Advice(
            "provider.refused",
            AdviceLevel.WARNING,
            f"the provider {chosen} would refuse {call}: {reason}",
            "A dry run met this error; the real call would meet it in the middle of a recovery.",
            "controller.toml: [provider]   # what the error names: template, subnet, offer, script",
        )


def repairs_itself(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.provider_repairs:
        chosen = facts.policy.repair.provider
        yield Advice(
            "provider.repairs_itself",
            AdviceLevel.HINT,
            f"repairs of machines are left to the provider {chosen} itself",
            "Two repairers would undo each other's work: Holdfast drains and recovers jobs, and only watches the machine's repair.",
            KINDS[chosen].leave_repairs,
        )


def metadata(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.metadata is None:
        return
    if not facts.metadata.tried:
        yield Advice(
            "site.metadata_untried",
            AdviceLevel.HINT,
            "whether users of this machine reach its role by EC2's instance metadata could not be tried: this user is not root",
            "With the head node's role any user could do what the actor may do at the provider.",
            "sudo holdfast doctor   # once, for this line",
        )
    elif facts.metadata.open_at:
        yield Advice(
            "site.metadata_open",
            AdviceLevel.HINT if facts.metadata.meant else AdviceLevel.ERROR,
            f"any user of this machine reads its role from EC2's instance metadata ({', '.join(facts.metadata.open_at)})"
            + (", as configured here" if facts.metadata.meant else ""),
            "What the role may do, every user may: on a head node what the actor may, on the others the tokens of agents.",
            "/opt/holdfast/share/holdfast/lifecycle-scripts/metadata.sh head   # docs/iam; on a node: metadata.sh close",
        )


def metadata_options(facts: DoctorFacts) -> Iterator[Advice]:
    options = facts.metadata_options
    if options is None:
        return
    set_line = f"aws ec2 modify-instance-metadata-options --instance-id {facts.own_id}"
    if not options.tokens_required:
        yield Advice(
            "site.metadata_without_token",
            AdviceLevel.WARNING,
            "this machine's instance metadata is served without a token, too (HttpTokens is optional)",
            "A program here that fetches URLs for others can be made to fetch the machine's role.",
            f"{set_line} --http-tokens required   # and in the launch template of the nodes: docs/how-to-ec2.md",
        )
    if options.hop_limit > 1:
        yield Advice(
            "site.metadata_hops",
            AdviceLevel.WARNING,
            f"containers with their own network reach this machine's instance metadata (hop limit {options.hop_limit})",
            "Anyone who starts a container here can read the machine's role, unless the firewall prevents it.",
            f"{set_line} --http-put-response-hop-limit 1   # and in the launch template of the nodes: docs/how-to-ec2.md",
        )


RULES = (reachable, rights, repairs_itself, metadata, metadata_options)
