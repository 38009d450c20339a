"""Rules about the site's own choices; they need no Slurm."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, names
from holdfast.model.parts import PartName
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.hostlist import expand

MEMORY_FILESYSTEMS = frozenset({"tmpfs", "ramfs"})


def slurm_answers(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.slurm is None:
        yield Advice(
            "slurm.unreachable",
            AdviceLevel.ERROR,
            f"Slurm does not answer: {facts.slurm_problem or 'no reason was given'}",
            "Holdfast records faults meanwhile and decides nothing that depends on Slurm.",
            "systemctl status slurmctld munge   # on the head node; scontrol ping",
        )


def store_place(facts: DoctorFacts) -> Iterator[Advice]:
    kind = facts.store_filesystem
    if facts.store_on_network:
        yield Advice(
            "site.store_on_network",
            AdviceLevel.ERROR,
            f"the SQLite store {facts.store_path} lies on a network file system ({kind})",
            "Its locks do not hold there: the database breaks, or two controllers act at once. Holdfast refuses it.",
            "controller.toml: a path on a local disk such as /var/lib/holdfast, or the URL of a PostgreSQL database",
        )
    elif kind in MEMORY_FILESYSTEMS:
        yield Advice(
            "site.store_in_memory",
            AdviceLevel.WARNING,
            f"the SQLite store {facts.store_path} lies in memory ({kind})",
            "After a reboot of the head node every incident, mark and timing is gone.",
            "controller.toml: a path on a local disk such as /var/lib/holdfast",
        )


def others_files(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.changeable:
        yield Advice(
            "site.changeable",
            AdviceLevel.ERROR,
            f"others can change what the actor goes by: {'; '.join(facts.changeable)}",
            "Who writes the settings, the store or the provider's script has the actor's rights in Slurm and at the provider.",
            "chown root FILE && chmod go-w FILE, and the same for its folder   # the store: chmod o-rwx",
        )
    if facts.readable:
        yield Advice(
            "site.readable",
            AdviceLevel.WARNING,
            f"every user of this machine can read {', '.join(facts.readable)}",
            "It holds a password, a key, or addresses with one.",
            "chgrp holdfast FILE && chmod 0640 FILE   # and change what is in it, if others are on this machine",
        )


def mode(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.policy.mode is Mode.OBSERVE:
        yield Advice(
            "site.observe",
            AdviceLevel.HINT,
            "Holdfast observes: it records what it would do, and does nothing",
            "No node is drained and no job is recovered. Meant for the first days of a site.",
            'controller.toml: [mode] mode = "act"   # once its decisions look right',
        )


def node_sets(facts: DoctorFacts) -> Iterator[Advice]:
    """Tables that match no node that Slurm shows, or name a partition or a node that it does not have."""
    if facts.slurm is None:
        return
    partitions = {p.name for p in facts.slurm.partitions} or {
        p for n in facts.slurm.nodes.values() for p in n.partitions
    }
    for each in facts.policy.nodes:
        unknown = [name for name in each.partitions if name not in partitions]
        empty = not any(each.has(name, node) for name, node in facts.slurm.nodes.items())
        strange = [name for name in (expand(each.nodes) if each.nodes else ()) if name not in facts.slurm.nodes]
        if unknown or empty or strange:
            named = f"names no node of Slurm's: {names(strange)}" if strange and not empty else "matches no node"
            what = f"names no partition of Slurm's: {', '.join(unknown)}" if unknown else named
            yield Advice(
                "site.node_set",
                AdviceLevel.WARNING,
                f"the node set {each.name!r} {what}",
                "Nodes that it is meant for are treated as every other one, which may be more than you want.",
                "controller.toml: correct partitions, features or nodes of that [[nodes]] table   # sinfo -N -o '%N %P %f'",
            )


def consent(facts: DoctorFacts) -> Iterator[Advice]:
    job = facts.policy.job
    if not job.consent_partitions and not job.consent_qos:
        yield Advice(
            "site.consent",
            AdviceLevel.HINT,
            "no partition or QOS allows Holdfast to stop a running job before it fails",
            "Only jobs that opted in, or registered a checkpoint, are stopped at once; others run into NCCL's watchdog first.",
            'controller.toml: [jobs] consent_partitions = ["PARTITION"], or consent_qos',
        )


def untaken(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.untaken is not None:
        yield Advice(
            "site.steps_untaken",
            AdviceLevel.ERROR,
            facts.untaken,
            "Faults are recorded, and no node is drained and no job is recovered.",
            _of_actor(facts)
            or "systemctl restart holdfast-actor   # on the head node, of this release; journalctl -u holdfast-actor",
        )


def _of_actor(facts: DoctorFacts) -> str:
    """Next step as the controller names it for the same cause; empty: it names none."""
    parts = (p for p in facts.controller.parts if p.name is PartName.ACTOR and p.text == facts.untaken)
    return next((p.next_step for p in parts), "")


RULES = (slurm_answers, untaken, store_place, others_files, mode, node_sets, consent)
