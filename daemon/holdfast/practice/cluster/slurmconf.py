"""slurm.conf, gres.conf and the few scripts of a practice cluster, as text from a Spec."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.practice.cluster.spec import Spec

NODE_VARIABLE = "HOLDFAST_PRACTICE_NODE"
"""Environment variable in which a node's processes find the node's name."""


def slurm_conf(spec: Spec, folder: Path, *, user: str, host: str) -> str:
    """slurm.conf. ``user``: runs all daemons; ``host``: this machine's short name, where slurmctld may run.

    Schedules at once (no batching delays) and keeps Slurm's defaults in everything that affects recovery: the two-minute
    hold of a requeued job (AuthInfo's cred_expire), SlurmdTimeout 300 s, KillWait 30 s, MaxBatchRequeue 5."""
    gres = f"gpu:{spec.gpu_type}:{spec.gpus}" if spec.gpu_type else f"gpu:{spec.gpus}"
    nodes = "\n".join(
        f"NodeName={node} NodeAddr={spec.address(node)} Port={spec.slurmd_port(node)}"
        f" CPUs={spec.cpus} RealMemory=1024 Gres={gres} State=UNKNOWN"
        for node in spec.nodes
    )
    return f"""\
ClusterName={spec.name}
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={spec.slurmctld_port}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/munge.socket
MpiDefault=none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
JobRequeue=1
ReturnToService=1
MinJobAge=300
Epilog={folder}/bin/epilog
RebootProgram={folder}/bin/reboot
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,sched_interval=5,bf_interval=1,bf_continue
PriorityType=priority/basic
{spec.extra_slurm_conf.rstrip()}
{nodes}
PartitionName=train Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
{elastic(spec.nodes) if spec.elastic else ""}"""


FLEXIBLE = "flex"
"""Partition of a practice cluster for elastic jobs: its jobs are preempted by those of partition ``train``."""


def elastic(nodes: Sequence[str]) -> str:
    """slurm.conf settings for elastic jobs (docs/how-to-elastic-slurm.md), over these nodes. Everything else stays Slurm's default."""
    return f"""\
RequeueExit=85
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName={FLEXIBLE} Nodes={",".join(nodes)} PriorityTier=1 PreemptMode=REQUEUE GraceTime=20 MaxTime=INFINITE State=UP
"""


def gres_conf(spec: Spec, folder: Path) -> str:
    """gres.conf. Ordinary files serve as GPUs' device files; Slurm needs ``File=`` for indices."""
    files = f"nvidia[0-{spec.gpus - 1}]" if spec.gpus > 1 else "nvidia0"
    kind = f" Type={spec.gpu_type}" if spec.gpu_type else ""
    return f"AutoDetect=off\nName=gpu{kind} File={folder}/gres/{files}\n"


def epilog(folder: Path) -> str:
    """Epilog that waits while the node's ``epilog_stuck`` file exists (fault ``stuck_epilog``)."""
    return f'#!/bin/sh\nwhile [ -e "{folder}/nodes/$SLURMD_NODENAME/epilog_stuck" ]; do sleep 0.2; done\nexit 0\n'


def reboot(folder: Path, python: str, env: Mapping[str, str]) -> str:
    """RebootProgram: stops the node that runs it and boots it again under a new boot id.

    ``env``: variables written into the script: since 26.05 Slurm sets only SLURM_NODE_NAME (tested with 26.05.5); earlier releases
    pass slurmd's whole environment, but not that name."""
    variables = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(env.items()))
    node = f"${{SLURM_NODE_NAME:-${NODE_VARIABLE}}}"
    return f'#!/bin/sh\n{variables}exec "{python}" -m holdfast.practice.cluster.reboot "{folder}" "{node}"\n'
