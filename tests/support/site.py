"""A complete practice site for a test: training jobs, and what Slurm, the store and the EC2 emulator show. Leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from holdfast.model.actions.action import Intent
from holdfast.model.errors import NotFound, Rejected
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, Recovery
from holdfast.model.jobs.opt_in import CONSENT_WORD
from holdfast.model.slurm.cluster import Job, Node
from holdfast.practice import jobs
from holdfast.practice.cluster.site import SPARES, PracticeSite
from holdfast.practice.faults.inject import Injector
from holdfast.store import SqlStore, open_store
from holdfast_checks.result import Severity
from support.practice import eventually

TESTS = Path(__file__).parents[1]
_TRAIN = Path(jobs.__file__).with_name("train.sbatch")
PATIENCE_S = 180.0
"""For anything that must happen eventually on two busy cores; the benches measure speed."""


class Drill:
    """One site that is up."""

    def __init__(self, site: PracticeSite) -> None:
        self.site = site
        self.practice = site.practice
        self.inject = Injector(site.practice)
        self.scheduler = site.scheduler

    @cached_property
    def store(self) -> SqlStore:
        return open_store(tomllib.loads(self.site.controller_toml.read_text())["store"]["url"])

    def close(self) -> None:
        if "store" in self.__dict__:
            self.store.close()

    def train(
        self,
        *options: str,
        nodes: int = 3,
        gpus: int = 8,
        consent: bool = True,
        checkpoints: bool = True,
        steps: int = 10**6,
    ) -> int:
        """Submit the practice training job and wait until it trains (with ``checkpoints``: until one is complete).

        Without ``checkpoints`` it reports nothing to the agent; ``consent``: the job option ``--comment=holdfast``."""
        job_id = self.submit(*options, nodes=nodes, gpus=gpus, consent=consent, checkpoints=checkpoints, steps=steps)
        self.trains(job_id)
        return job_id

    def submit(
        self,
        *options: str,
        nodes: int = 3,
        gpus: int = 8,
        consent: bool = True,
        checkpoints: bool = True,
        steps: int = 10**6,
    ) -> int:
        """Submit it as a separate program: faults on four nodes under one program make that program the suspect, and a module's
        tests share a site."""
        folder = self.practice.folder / "jobs" / f"ckpt-{datetime.now(UTC).timestamp():.6f}"
        variables = [
            f"HOLDFAST_PYTHON={sys.executable}",
            f"HOLDFAST_TRAIN_DIR={folder}",
            f"HOLDFAST_TRAIN_STEPS={steps}",
        ]
        if not checkpoints:
            variables.append("HOLDFAST_TRAIN_CHECKPOINT_EVERY=100000000")
        words = [
            f"--job-name={folder.name}",
            f"--nodes={nodes}",
            f"--gres=gpu:{gpus}",
            f"--export=ALL,{','.join(variables)}",
            *options,
        ]
        if consent:
            words.append(f"--comment={CONSENT_WORD}")
        return self.practice.sbatch(_TRAIN.read_text(), *words)

    def trains(self, job_id: int, *, restarts: int = 0) -> Job:
        """Wait until this run of the job has reported progress (and, except for a first run without one, a checkpoint)."""

        def yes() -> bool:
            job = self.job(job_id)
            began = self.output(job_id).count("world_size=")
            lines = self.output(job_id).rpartition("world_size=")[2]
            return (
                job.state == "RUNNING"
                and job.restarts == restarts
                and began >= restarts + 1
                and "checkpoint step" in lines
            )

        eventually(yes, within_s=PATIENCE_S, why=lambda: self.account(job_id))
        return self.job(job_id)

    def account(self, job_id: int) -> str:
        """What Slurm and the store show of a job and its faults, and the end of its output: for a failed test."""
        view = self.scheduler.view()
        nodes = [f"{n.name} {n.base_state} {sorted(n.flags)} {n.reason}" for n in view.nodes.values()]
        events = [f"{e.at:%H:%M:%S.%f} {e.kind.value} {e.text}" for e in self.store.events()[-60:]]
        return "\n".join(
            [repr(self.job(job_id)), *nodes, *map(str, view.reservations), *events, self.output(job_id)[-1500:]]
        )

    def sleeper(self, *options: str, consent: bool = True) -> int:
        """A batch job that only sleeps, its tasks running when this returns: if a node is cut off before that, srun ends the job."""
        words = [*options, f"--comment={CONSENT_WORD}"] if consent else list(options)
        job_id = self.practice.sbatch("exec srun sh -c 'echo asleep; exec sleep 3600'", *words)

        def asleep() -> bool:
            job = self.job(job_id)
            return job.state == "RUNNING" and self.output(job_id).count("asleep") >= len(job.nodes)

        eventually(asleep, within_s=PATIENCE_S, why=lambda: self.account(job_id))
        return job_id

    def wait_for_witnesses(self) -> None:
        """Wait until each agent has reached its neighbours once: it cannot testify about a node that it never reached."""

        def all_reached() -> bool:
            logs = [path.read_text(errors="replace") for path in (self.practice.folder / "log").glob("agent.*.log")]
            rounds = [re.findall(r"event=neighbours reached=(\d+) of=(\d+)", log) for log in logs]
            return bool(rounds) and all(seen and seen[-1][0] == seen[-1][1] != "0" for seen in rounds)

        eventually(all_reached, within_s=PATIENCE_S, why=self.words)

    def output(self, job_id: int) -> str:
        path = self.practice.folder / "jobs" / f"{job_id}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def resumed_from(self, job_id: int) -> list[int]:
        """Steps from which the job's later runs reported to have resumed."""
        lines = self.output(job_id).splitlines()
        return [int(line.split()[3]) for line in lines if line.startswith("resumed from step ")]

    def job(self, job_id: int) -> Job:
        return self.scheduler.job(job_id)

    def run(self, job_id: int) -> tuple[str, int]:
        """State and Restarts of one reading: between two readings the job may be requeued."""
        job = self.job(job_id)
        return job.state, job.restarts

    def node(self, name: str) -> Node:
        return self.scheduler.node(name)

    def faults(self) -> tuple[Incident, ...]:
        """Incidents with a fatal fault, oldest first."""
        return tuple(i for i in reversed(self.store.incidents()) if i.severity is Severity.FATAL)

    def incident_on(self, node: str) -> Incident:
        """The newest fault of a node; waits for it."""
        eventually(lambda: any(i.node == node for i in self.faults()), within_s=PATIENCE_S)
        return next(i for i in reversed(self.faults()) if i.node == node)

    def intents(self, kind: str, *, target: str = "") -> tuple[Intent, ...]:
        return tuple(i for i in self.store.intents() if i.kind == kind and target in i.key)

    def events(self, *kinds: EventKind) -> tuple[Event, ...]:
        return self.store.events(kinds=kinds)

    def recoveries(self, job_id: int) -> tuple[Recovery, ...]:
        return self.store.recoveries(job_id=job_id)

    def closed(self, count: int = 1, *, within_s: float = PATIENCE_S) -> None:
        """Wait until this many faults were seen in all and every one of them is closed."""
        eventually(
            lambda: len(self.faults()) >= count and not any(i.open for i in self.faults()),
            within_s=within_s,
            every_s=0.1,
        )

    def launched(self) -> list[str]:
        """Instances that the emulator actually launched, except the cluster's first ones."""
        first = len(self.practice.nodes)
        return self.site.emulator.effects("RunInstances")[first:]

    def terminated(self) -> list[str]:
        return self.site.emulator.effects("TerminateInstances")

    def spares(self) -> tuple[str, ...]:
        try:
            return self.scheduler.reservation(SPARES).nodes
        except NotFound:
            return ()

    def nothing_left(self, job_ids: Iterable[int] = (), *, spares: int = 1, out: Iterable[str] = ()) -> None:
        """Check: no hold, no drain (but on ``out``), no job in a reservation or with our exclusions, the pool as large as before."""
        eventually(lambda: self._left(job_ids, spares, frozenset(out)) == [], within_s=30.0, every_s=0.2)

    def _left(self, job_ids: Iterable[int], spares: int, out: frozenset[str]) -> list[str]:
        view = self.scheduler.view()
        left = [f"reservation {name}" for name in view.reservations if name != SPARES]
        left += [f"node {n.name}: {n.reason}" for n in view.nodes.values() if n.out_of_service and n.name not in out]
        jobs = [view.jobs[j] for j in job_ids]
        left += [f"job {j.key} in {j.reservation}" for j in jobs if j.reservation]
        left += [f"job {j.key} has priority 0" for j in jobs if not j.priority]
        if len(self.spares()) != spares:
            left.append(f"{len(self.spares())} spares")
        return left

    def restart(self, name: str) -> None:
        """Start the controller or the actor again (as shipped)."""
        self.practice.processes.kill(name)
        {"controller": self.site.start_controller, "actor": self.site.start_actor}[name]()

    def as_the_release_before(self) -> None:
        """Replace the controller by one that leads as the previous release did."""
        self.practice.processes.kill("controller")
        argv = [sys.executable, "-m", "support.bare_leader", str(self.site.controller_toml)]
        self.practice.start_daemon("controller", argv, {"PYTHONPATH": self._path_with_tests()})

    def crashing(self, role: str, *only: str) -> Path:
        """Replace the controller or the actor by one that kills itself at each boundary that it crosses for the first time.

        It restarts automatically. ``only``: patterns of boundaries (``Requeue/* started``). Returns the list of those crossed."""
        crossed = self.practice.folder / f"crossed.{role}"
        self.practice.processes.kill(role)
        argv = [sys.executable, "-m", "support.crashing", role, str(self.site.controller_toml), str(crossed), *only]
        env = {**self._aws_env(), "PYTHONPATH": self._path_with_tests()}
        self.practice.start_daemon(role, argv, env)
        return crossed

    def _path_with_tests(self) -> str:
        return os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])

    def _aws_env(self) -> dict[str, str]:
        from holdfast.practice import aws  # noqa: PLC0415 - imports boto3

        return dict(aws.practice_env(self.site.endpoint))

    def scontrol(self, *words: str) -> str:
        return self.practice.command("scontrol", *words)

    def words(self) -> str:
        """Logs of the daemons, for a failed test."""
        parts = []
        for name in ("controller", "actor", "slurmctld"):
            log = self.practice.folder / "log" / f"{name}.log"
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            lines = [line[:400] for line in lines if "event=profile" not in line and "logger=alembic" not in line]
            parts += [f"--- {name}", *lines[-120:]]
        for path in sorted((self.practice.folder / "jobs").glob("*.out"))[-3:]:
            parts += [f"--- {path.name}", path.read_text(errors="replace")[-1500:]]
        return "\n".join(parts)

    def calm(self) -> None:
        """Clean the site between two tests: no job, no open fault, every node idle."""
        jobs = self.practice.command("squeue", "-h", "-a", "-o", "%A").split()
        if jobs:
            self.practice.command("scancel", *jobs)
        eventually(lambda: not self.practice.command("squeue", "-h", "-a").strip(), within_s=PATIENCE_S)
        eventually(lambda: not any(i.open for i in self.faults()), within_s=PATIENCE_S)
        self.nothing_left()


def raise_site(folder: Path, **options: object) -> Drill:
    """Create a site and bring it up; the caller takes it down. Without a quorum service unless asked for: most need none."""
    site = PracticeSite.create(folder, **{"quorum": False, **options})  # type: ignore[arg-type]
    try:
        site.up()
    except BaseException:
        sys.stdout.write(Drill(site).words())
        site.down()
        raise
    return Drill(site)


def raze(drill: Drill) -> None:
    """Print the logs (pytest shows them for a failed test), and leave nothing behind."""
    sys.stdout.write(drill.words() + "\n")
    drill.close()
    drill.site.down()
    kept = os.environ.get("HOLDFAST_KEEP_SITES")
    if not kept:
        shutil.rmtree(drill.practice.folder, ignore_errors=True)


MakeDrill = Callable[..., Drill]
__all__ = ["PATIENCE_S", "Drill", "MakeDrill", "Rejected", "raise_site", "raze"]
