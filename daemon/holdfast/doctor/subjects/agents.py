"""Rules about the agents that report to the controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, SlurmFacts, names
from holdfast.model.agents.report import AgentView

CLOCK_SKEW_S = 2.0
"""Slurm's logs and ours can no longer be laid side by side beyond this."""
MUNGE_SKEW_S = 300.0
"""munged(8): a credential lives 300 s; a node whose clock is further off is shut out of Slurm."""

_Agents = Mapping[str, tuple[AgentView, ...]]


def heard(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    if facts.agents is None:
        yield _not_asked(facts.not_asked) if facts.not_asked else _no_answer(facts.no_answer)
        return
    missing = [node.name for node in slurm.computing if not node.out_of_service and not facts.agents.get(node.name)]
    if missing:
        yield Advice(
            "agents.missing",
            AdviceLevel.ERROR,
            f"no agent reports from {len(missing)} of {len(slurm.computing)} nodes: {names(missing)}",
            "Faults on these nodes are not detected.",
            "systemctl enable --now holdfast-agent   # on each of them (docs/install.md)",
        )
    unknown = [name for name, agents in facts.agents.items() if agents and name not in slurm.nodes]
    if unknown:
        yield Advice(
            "agents.unknown_node",
            AdviceLevel.WARNING,
            f"agents report for nodes that Slurm does not have: {names(unknown)}",
            "Their findings reach no job. Mostly the host's name differs from Slurm's NodeName.",
            'agent.toml: node = "NODENAME"   # as scontrol show nodes spells it',
        )


def policies(_: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    found = {node: each[-1] for node, each in (facts.agents or {}).items() if each and each[-1].checks_refused}
    if found:
        name, agent = next(iter(found.items()))
        yield Advice(
            "agents.checks_refused",
            AdviceLevel.WARNING,
            f"{len(found)} agents refused the policy of checks: {names(found)}",
            f"The policy that each had before holds there. {name} says: {agent.checks_refused}",
            "holdfast checks   # which of them; upgrade those agents, or take the setting back (docs/how-to-check-policy.md)",
        )


_UNCHECKED = "Not checked: whether every node has an agent and a correct clock, and the parts of the controller."


def _not_asked(why: str) -> Advice:
    """Nothing is known of the controller: the doctor had no address or token for it."""
    return Advice(
        "agents.not_asked",
        AdviceLevel.WARNING,
        f"the controller could not be asked: {why}",
        _UNCHECKED,
        "export HOLDFAST_URL=https://HEAD:8460 HOLDFAST_TOKEN=TOKEN; sudo --preserve-env=HOLDFAST_URL,HOLDFAST_TOKEN …   # docs/doctor.md",
    )


def _no_answer(why: str) -> Advice:
    return Advice(
        "agents.no_answer",
        AdviceLevel.WARNING,
        f"the controller did not answer which agents report{f': {why}' if why else ''}",
        _UNCHECKED,
        "systemctl status holdfast-controller   # on the head node; then run the doctor again",
    )


def silent(_: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    limit = facts.policy.death.silent_after_heartbeats
    quiet = [
        name
        for name, agents in (facts.agents or {}).items()
        if agents and all((facts.now - a.last_heard).total_seconds() > limit * a.heartbeat_interval_s for a in agents)
    ]
    if quiet:
        yield Advice(
            "agents.silent",
            AdviceLevel.ERROR,
            f"agents that have fallen silent: {names(quiet)}",
            "Such a node is unknown to Holdfast: neither healthy nor failed, and its faults are not seen.",
            "systemctl restart holdfast-agent   # on each of them; journalctl -u holdfast-agent says why",
        )


def clocks(_: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    offsets = {
        name: max((a.clock_offset_s for a in agents), key=abs)
        for name, agents in (facts.agents or {}).items()
        if agents
    }
    wrong = [name for name, offset in offsets.items() if abs(offset) > CLOCK_SKEW_S]
    if wrong:
        worst = max(wrong, key=lambda name: abs(offsets[name]))
        yield Advice(
            "agents.clock_skew",
            AdviceLevel.ERROR if abs(offsets[worst]) > MUNGE_SKEW_S else AdviceLevel.WARNING,
            f"clocks off by more than {CLOCK_SKEW_S:.0f} s: {names(wrong)} (worst: {worst}, {offsets[worst]:+.1f} s)",
            f"Logs cannot be compared, and beyond {MUNGE_SKEW_S:.0f} s munge shuts the node out of Slurm. Timings stay right.",
            "systemctl enable --now chrony   # on each of them",
        )


def versions(_: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    running = {a.agent_version for agents in (facts.agents or {}).values() for a in agents if a.agent_version}
    if len(running) > 1:
        yield Advice(
            "agents.versions",
            AdviceLevel.HINT,
            f"agents of {len(running)} versions: {names(running)}",
            "The controller speaks with this version and the one before; finish the roll-out before the next one.",
            "lifecycle-scripts/install.sh agent && systemctl restart holdfast-agent   # on the older ones",
        )


RULES = (heard, silent, clocks, versions, policies)
