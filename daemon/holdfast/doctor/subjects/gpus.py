"""Rules about how Slurm hands out GPUs, follows processes and remembers jobs."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, SlurmFacts, names


def gres(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    if "gpu" not in slurm.options("GresTypes"):
        yield Advice(
            "slurm.gres_types",
            AdviceLevel.ERROR,
            "GresTypes has no gpu: Slurm does not know of GPUs",
            "It is not known which job holds a faulty GPU: its fault drains the node, and stops only a job that has the node for itself.",
            "slurm.conf: GresTypes=gpu   # and Gres=gpu:8 on the node lines, AutoDetect=nvml in gres.conf",
        )
    elif slurm.computing and not any(node.gpu_count for node in slurm.computing):
        yield Advice(
            "slurm.gres_types",
            AdviceLevel.ERROR,
            "no node has a Gres=gpu:N",
            "It is not known which job holds a faulty GPU: its fault drains the node, and stops only a job that has the node for itself.",
            "slurm.conf: Gres=gpu:8 on the node lines, and AutoDetect=nvml in gres.conf",
        )


def select_type(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    kind = slurm.value("SelectType")
    if kind and kind != "select/cons_tres":
        yield Advice(
            "slurm.select_type",
            AdviceLevel.WARNING,
            f"SelectType={kind}: Slurm does not hand out single GPUs",
            "A fault of one GPU takes the whole node, and every job on it, out of work.",
            "slurm.conf: SelectType=select/cons_tres",
        )


def process_tracking(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    kind = slurm.value("ProctrackType")
    if kind and kind != "proctrack/cgroup":
        yield Advice(
            "slurm.proctrack",
            AdviceLevel.WARNING,
            f"ProctrackType={kind}: a task can leave its job's process group and outlive it",
            "A stopped run may keep writing, and keep its GPU, while the job runs again elsewhere.",
            "slurm.conf: ProctrackType=proctrack/cgroup   # and TaskPlugin=task/affinity,task/cgroup",
        )


def job_memory(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    age_s, needed_s = slurm.number("MinJobAge"), facts.policy.job.attribution_after_s
    if age_s is not None and 0 < age_s < needed_s:
        yield Advice(
            "slurm.min_job_age",
            AdviceLevel.WARNING,
            f"MinJobAge={age_s} s: Slurm forgets ended jobs sooner than {needed_s} s",
            "A job that failed just before its fault was seen is gone before it can be recovered or counted.",
            f"slurm.conf: MinJobAge={needed_s}",
        )


def proved_indices(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    """By what each agent found on its node: gres.conf as slurmd read it, against NVML."""
    with_gpus = {node.name for node in slurm.computing if node.gpu_count}
    unproved: dict[str, list[str]] = {}
    for node, agents in (facts.agents or {}).items():
        if agents and node in with_gpus and agents[-1].gres_problem:
            unproved.setdefault(agents[-1].gres_problem, []).append(node)
    for problem, nodes in sorted(unproved.items()):
        yield Advice(
            "agents.gres",
            AdviceLevel.WARNING,
            f"nothing proves which GPU a GRES index is on {names(nodes)}: {problem}",
            "A fault of a GPU drains the node there, and stops no job but one that holds the whole node.",
            "gres.conf: Name=gpu File=/dev/nvidia[0-7], or AutoDetect=nvml; then restart slurmd and look again",
        )


RULES = (proved_indices, gres, select_type, process_tracking, job_memory)
