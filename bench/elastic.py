"""Loss of a replica group's node under an elastic job on a practice cluster: stall of the other groups, time until full strength.

``bench/elastic.py [--runs 3] [--cases NAME,…]``. The whole way: kernel log, agent, controller, rendezvous, launcher, torchft over
gloo, a real Slurm. Three groups of one CPU rank, a small transformer, steps of some 0.2 s, and a warm spare. The verdict is the moment at
which the rendezvous received it; a stall is the longest time between two steps of a survivor. In the same run, for comparison: torchft's
lighthouse, torchrun's elastic mode (with the setting without which torch 2.13 does not come back at all), and a checkpoint with a
requeue by Holdfast."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.kit import figures
from bench.kit.slurmview import Watcher
from bench.kit.stage import Stage, running
from bench.kit.stage import site as rigid_site
from bench.kit.torchrun import kill_an_agent
from bench.quorum import kill_only
from bench.quorum import run as among_managers
from bench.recovery import RESUMED, truth, xid_79

from holdfast.model.errors import Unavailable
from holdfast.practice.elastic import steps
from holdfast.practice.elastic.run import MICRO_BATCHES, ElasticRun
from holdfast.practice.faults.inject import Injector

GROUPS, SPARES = 3, 1
FAULTS_OF_A_JOB = 2
"""One for each of its two flexible groups: after the same fault on a second node under one element the job is the suspect, and is held."""
STALL_GOAL_S, FULL_GOAL_S = 1.0, 10.0
_RECOVER_WITHIN_S = 120.0
_SETTLED_S = 4.0

Rows = dict[str, list[float]]
Fault = Callable[[ElasticRun, int, str], None]


@contextmanager
def elastic_run() -> Iterator[ElasticRun]:
    """An elastic job at full strength with its warm spare in place, on a separate cluster; all of it is removed afterwards."""
    with running(nodes=GROUPS + SPARES + 2, spares=0, heartbeat_s=2.0, elastic=True) as made:
        run = ElasticRun(made, f"2:{GROUPS}", spares=SPARES)
        since_s = time.time()
        run.submit()
        run.trains_with(GROUPS, since_s)
        yield run


def xid(run: ElasticRun, group: int, node: str) -> None:
    Injector(run.site.practice).xid(node, 79, 3)


def power_loss(run: ElasticRun, group: int, node: str) -> None:
    Injector(run.site.practice).power_loss(node)


def hang(run: ElasticRun, group: int, node: str) -> None:
    """The rank's loop stops; its heartbeats continue, and its node reports nothing."""
    (run.folder / f"hang-{group}").touch()


CASES: dict[str, tuple[str, Fault]] = {
    "xid": ("Xid 79", xid),
    "hang": ("a rank hangs", hang),
    "power": ("power loss", power_loss),
}


def strike(run: ElasticRun, title: str, fault: Fault, rows: Rows) -> None:
    """One fault under the job; adds its figures. Raises Unavailable when the job does not come back."""
    run.wait("the warm spare", lambda: bool(run.outside()) and len(run.inside()) == GROUPS, _RECOVER_WITHIN_S)
    time.sleep(_SETTLED_S)
    group, spare = max(run.inside()), min(run.outside())
    survivors = set(run.inside()) - {group}
    element = run.job_of(group)
    if element is None or not element.nodes:
        raise Unavailable(f"group {group} has no node")
    began_s = time.time()
    fault(run, group, element.nodes[0])
    full_s = run.first_step_s(spare, began_s, _RECOVER_WITHIN_S)
    (run.folder / f"hang-{group}").unlink(missing_ok=True)
    verdict_s = _verdict_s(run, group, began_s)
    run.wait("some steps", lambda: run.attempts()[-1].at_s > full_s + 1.0, _RECOVER_WITHIN_S)
    attempts = run.attempts()
    rows[f"{title}: fault -> verdict"].append(verdict_s - began_s)
    rows[f"{title}: verdict -> survivors' next step"].append(_next_step_s(attempts, survivors, verdict_s))
    rows[f"{title}: longest stall of a survivor"].append(
        steps.stall_s(attempts, began_s, survivors, full_s - began_s + 1)
    )
    rows[f"{title}: verdict -> full strength"].append(full_s - verdict_s)
    wrong = steps.problems(attempts, MICRO_BATCHES)
    print(f"  {title}: {' '.join(f'{values[-1]:.2f}' for key, values in rows.items() if key.startswith(title))} s"
          f" ({'every micro-batch once, models equal' if not wrong else wrong[0]}, load {figures.load()})", flush=True)  # fmt: skip
    if wrong:
        raise SystemExit(1)


def _verdict_s(run: ElasticRun, group: int, since_s: float) -> float:
    """When the rendezvous received the verdict or timed the group out, by its own record."""
    records = run.link.records(0, 10_000)
    told = [r.at.timestamp() for r in records if r.kind in ("evicted", "lost") and r.who.startswith(f"{group}~")]
    found = [at_s for at_s in told if at_s >= since_s]
    if not found:
        raise Unavailable(f"the loss of group {group} was not detected")
    return min(found)


def _next_step_s(attempts: Sequence[steps.StepAttempt], survivors: set[int], verdict_s: float) -> float:
    return max(min(a.at_s for a in attempts if a.group == g and a.at_s > verdict_s) - verdict_s for g in survivors)


def rigid(rows: Rows, runs: int) -> None:
    """The same fault under a job of three nodes that is not elastic: Holdfast requeues it onto a spare, it resumes from its checkpoint."""
    with rigid_site(heartbeat_s=2.0) as made, Watcher(made.practice) as watcher:
        stage = Stage(made, watcher, queue=0)
        for number in range(runs):
            struck = stage.strike(partial(xid_79, number), heal_within_s=_RECOVER_WITHIN_S)
            rows["checkpoint + requeue by Holdfast, Xid 79: -> training resumes"].append(truth(struck)[RESUMED])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cases", default=",".join((*CASES, "rigid", "lighthouse", "torchrun")))
    options = parser.parse_args()
    wanted = options.cases.split(",")
    figures.heading(f"Elastic job, {GROUPS} groups and a warm spare: a group is lost")
    rows: Rows = defaultdict(list)
    for name in (name for name in wanted if name in CASES):
        for done in range(0, options.runs, FAULTS_OF_A_JOB):
            with elastic_run() as run:
                for _ in range(min(FAULTS_OF_A_JOB, options.runs - done)):
                    strike(run, *CASES[name], rows)
    if "rigid" in wanted:
        rigid(rows, options.runs)
    os.environ["RUST_LOG"] = "error"
    if "lighthouse" in wanted:
        stalls = [max(among_managers(kill_only, stock=True)) for _ in range(options.runs)]
        rows["torchft's own lighthouse, a group killed: longest stall"] += stalls
    if "torchrun" in wanted:
        rows["torchrun elastic, a worker's node killed: -> next step"].append(kill_an_agent())
    goals = {row: STALL_GOAL_S for row in rows if "survivors' next step" in row}
    figures.durations("s", rows, goals | {row: FULL_GOAL_S for row in rows if "full strength" in row})
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.SubprocessError as error:
        sys.exit(str(error))
