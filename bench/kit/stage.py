"""The stage of the recovery benches: a site with one warm spare, a training job on all its other nodes, one fault after another."""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bench.kit.procs import end_cleanly
from bench.kit.slurmview import Trace, Watcher

from holdfast.config.controller import load, read
from holdfast.controller.timing import pace
from holdfast.logs import set_up
from holdfast.model.errors import NotFound, OutsideError, Unavailable
from holdfast.practice import jobs
from holdfast.practice.cluster.client import get
from holdfast.practice.cluster.site import SPARES, PracticeSite
from holdfast.practice.faults.inject import Injector

T = TypeVar("T")
WORKERS = 3
FIRST_LINE = "first line"
_READY_WITHIN_S = 60.0
_SAVED, _RESUMED = "checkpoint step", "resumed from step"
"""What the job's program says (``practice/jobs/train.py``)."""
GPU_MINORS = 8


@contextmanager
def site(
    *, heartbeat_s: float | None = None, settings: Mapping[str, Mapping[str, Any]] | None = None, base: str = "/tmp"
) -> Iterator[PracticeSite]:
    """A running site of three workers and a spare. ``heartbeat_s`` None: as shipped, the controller gives the interval."""
    with running(base, nodes=WORKERS + 1, spares=1, heartbeat_s=heartbeat_s, settings=settings) as made:
        yield made


@contextmanager
def running(base: str = "/tmp", **options: Any) -> Iterator[PracticeSite]:
    """A running site in a temporary folder below ``base``, laid out with these options of ``PracticeSite.create``; nothing of it is left
    afterwards."""
    set_up("text", "error")
    end_cleanly()
    folder = Path(tempfile.mkdtemp(prefix="hfbench-", dir=base))
    folder.chmod(0o755)
    made = PracticeSite.create(folder, **options, name="bench", nursery=False)
    try:
        made.up()
        yield made
    finally:
        made.down()
        shutil.rmtree(folder, ignore_errors=True)


def print_changes(made: PracticeSite) -> None:
    """Every value of the policy that is not the shipped default, by the profile or by the bench."""
    settings, shipped = load(made.controller_toml), read({}, made.controller_toml)
    print("policy values that differ from the shipped defaults:")
    for section in ("brake", "death", "job", "repair"):
        mine, default = getattr(settings.policy, section), getattr(shipped.policy, section)
        for name in mine.__dataclass_fields__:
            if (value := getattr(mine, name)) != (was := getattr(default, name)) and name != "provider":
                print(f"  {section}.{name} = {value!r} (shipped: {was!r})")
    print(f"  run.cold_start_s = {settings.run.cold_start_s!r} (shipped: {shipped.run.cold_start_s!r})")
    print(f"  repair.provider = {settings.provider!r} (the EC2 emulator on this machine)", flush=True)


def print_logs(made: PracticeSite, lines: int = 60) -> None:
    """The last lines of the controller's and the actor's log: the site's folder is gone when the bench ends."""
    for name in ("controller", "actor"):
        log = made.folder / "log" / f"{name}.log"
        print(f"--- the end of {name}.log")
        print("\n".join(log.read_text(errors="replace").splitlines()[-lines:]), flush=True)


@dataclass(frozen=True, slots=True)
class Injection:
    """One line of the injector's own log."""

    monotonic_s: float
    wall: str
    node: str


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that was thrown under a running job, and what Slurm showed from then on."""

    injection: Injection
    trace: Trace
    story: Mapping[str, Any]
    """The incident as the API returns it, with timeline and timings."""


class Stage:
    """Throws one fault at a time, each under a fresh job, and waits until all is well again."""

    def __init__(self, made: PracticeSite, watcher: Watcher, *, queue: int = 0) -> None:
        self._site = made
        self._watcher = watcher
        self._queue = queue
        self._injector = Injector(made.practice)
        self._seen: set[str] = set()

    def strike(
        self,
        fault: Callable[[Injector, str], None],
        *,
        heal_within_s: float,
        mend: Callable[[Injector, str], None] = lambda _injector, _node: None,
    ) -> Struck:
        """One fault on a random node of a job that trains; ``mend`` is called once the job trains again. Raises Unavailable when it is not
        healed in time."""
        wait("a spare", _READY_WITHIN_S, self._spare_ready)
        job_id = self._submit()
        trace = self._watcher.follow(self._site.practice.nodes[0], job_id)
        wait("training", _READY_WITHIN_S, lambda: _trains(trace))
        others = self._injector.fill_queue(self._queue) if self._queue else []
        victim = random.choice(self._site.scheduler.job(job_id).nodes)
        trace = self._watcher.follow(victim, job_id)
        fault(self._injector, victim)
        injection = self._injection()
        wait("the job", heal_within_s, lambda: came_back(trace, injection.monotonic_s))
        mend(self._injector, victim)
        incident = wait("the incident's end", heal_within_s, self._closed_incident)
        wait("the node", heal_within_s, lambda: trace.looks[-1] if not trace.looks[-1].out else None)
        story = get(self._site, f"/v1/incidents/{incident}")
        self._clear(job_id, others)
        return Struck(injection, trace, story)

    def _submit(self) -> int:
        script = Path(jobs.__file__).with_name("train.sbatch").read_text()
        stamp = f'set -eu\necho "{FIRST_LINE} $(date +%s.%N)"\n'
        script = script.replace("#SBATCH --output=train-%j.out\n", "").replace("set -eu\n", stamp)
        folder = self._site.folder / "jobs"
        export = f"--export=ALL,HOLDFAST_PYTHON={sys.executable},HOLDFAST_TRAIN_DIR={folder}/ckpt-{time.monotonic_ns()}"
        return self._site.practice.sbatch(script, export, "--exclusive", f"--nodes={WORKERS}")

    def _injection(self) -> Injection:
        lines = (self._site.folder / "injections.jsonl").read_text().splitlines()
        said = json.loads(lines[-1])
        return Injection(said["monotonic_s"], said["wall"], said["node"])

    def _spare_ready(self) -> str | None:
        try:
            pool = self._site.scheduler.reservation(SPARES).nodes
        except NotFound:
            return None
        ready = [name for name in pool if self._site.scheduler.node(name).base_state == "IDLE"]
        shown = {node["name"]: node for node in get(self._site, "/v1/nodes")["nodes"]}
        heard = all(any(heartbeat_heard(a) for a in node["agents"]) for node in shown.values())
        idle = all(not self._site.scheduler.node(name).out_of_service for name in self._site.practice.nodes)
        return ready[0] if ready and heard and idle else None

    def _closed_incident(self) -> str | None:
        shown = get(self._site, "/v1/incidents")["incidents"]
        fresh = [row for row in shown if row["id"] not in self._seen]
        if not fresh or any(row["state"] != "closed" for row in fresh):
            return None
        story = get(self._site, f"/v1/incidents/{fresh[0]['id']}")
        if any(r["phase"] not in ("resumed", "gone", "held", "left_alone") for r in story["recoveries"]):
            return None
        self._seen |= {row["id"] for row in fresh}
        return str(max(fresh, key=lambda row: row["opened_at"])["id"])

    def _clear(self, job_id: int, others: list[int]) -> None:
        """The others first: what waits would start on the nodes that become free."""
        self._watcher.rest()
        for ids in (others, [job_id]):
            if ids:
                self._site.practice.command("scancel", *map(str, ids))
        wait(
            "an empty cluster", _READY_WITHIN_S, lambda: self._site.practice.command("squeue", "-h", "-a") == "" or None
        )


def heartbeat_heard(agent: Mapping[str, Any]) -> bool:
    """Not only a report, and not only the first heartbeat: silence is judged by the interval that an agent says, and by the first it does
    not know yet what the controller gives."""
    told = bool(agent["heartbeat_interval_s"] <= pace.SHORTEST_S)
    return bool(agent["status"] == "heard" and agent["all_ok"] and told)


def came_back(trace: Trace, since_s: float) -> float | None:
    """When the job's program reported that it resumed; None: not yet."""
    return trace.line(_RESUMED, since_s)


def resumed_from(trace: Trace, since_s: float) -> tuple[int, int] | None:
    """The step from which the job's program resumed after a moment, and that of the newest checkpoint that it had
    reported; None: it has not yet."""
    lines = tuple(trace.lines)
    at = next((n for n, (at_s, line) in enumerate(lines) if at_s > since_s and line.startswith(_RESUMED)), None)
    if at is None:
        return None
    saved = [line for _, line in lines[:at] if line.startswith(_SAVED)]
    return _step(lines[at][1]), _step(saved[-1]) if saved else 0


def _step(line: str) -> int:
    return int(line.partition("step ")[2].split()[0])


def _trains(trace: Trace) -> bool | None:
    """It has saved a checkpoint, and steps beyond it are at stake."""
    lines = [line for _, line in tuple(trace.lines)]
    saved = [number for number, line in enumerate(lines) if line.startswith(_SAVED)]
    return True if saved and any(line.startswith("step") for line in lines[saved[-1] :]) else None


def wait(what: str, within_s: float, ready: Callable[[], T | None]) -> T:
    """What ``ready`` returns once it is not None. Raises Unavailable."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        try:
            found = ready()
        except OutsideError:
            found = None
        if found is not None:
            return found
        time.sleep(0.1)
    raise Unavailable(f"{what}: not within {within_s:.0f} s")
