"""``./dev demo elastic``: a training job gives nodes back to a more important one, grows again, loses a node, is healed by its peers.

Exit status 0 only if all claims are true: checked at Slurm and in the records of the job's groups."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from holdfast.model.errors import ConfigError
from holdfast.practice.cluster.client import get
from holdfast.practice.cluster.site import PracticeSite
from holdfast.practice.demo.narrator import Fact, Narrator, perform
from holdfast.practice.elastic import steps
from holdfast.practice.elastic.run import MICRO_BATCHES, ElasticRun
from holdfast.practice.faults.inject import Injector

GPU = 3
LEAST, MOST, SPARES = 2, 4, 1
NODES = MOST + SPARES + 1
_IMPORTANT_S = 6.0


class ElasticDemo:
    """One run: train, shrink, grow, lose a node, recover; then check."""

    def __init__(self, site: PracticeSite, narrator: Narrator) -> None:
        self._site = site
        self._narrator, self._console, self._say = narrator, narrator.console, narrator.say
        self._run = ElasticRun(site, f"{LEAST}:{MOST}", spares=SPARES)
        self._facts: list[Fact] = []
        self._figures: list[tuple[str, str]] = []

    def run(self) -> bool:
        """Run it. True: all claims of the demo were verified."""
        self._stage()
        self._give_way()
        self._grow()
        self._lose_a_node()
        self._facts += self._ending()
        figures = Table(box=None, show_header=False, padding=(0, 2))
        figures.add_column(style="bold", justify="right")
        figures.add_column()
        for figure, meaning in self._figures:
            figures.add_row(figure, meaning)
        self._console.print()
        self._console.print(figures, highlight=False)
        self._console.print()
        return self._narrator.check_off(self._facts)

    def _stage(self) -> None:
        self._say(
            f"starting Slurm, {NODES} nodes with 8 emulated GPUs each, the controller, the quorum service and one agent per node …"
        )
        self._site.up()
        since_s = time.time()
        base, flexible = self._run.submit()
        self._say(
            f"holdfast submit --elastic {LEAST}:{MOST} --spares {SPARES}: array {base} is the {LEAST} groups that nothing preempts, "
            f"array {flexible} the others and a warm spare"
        )
        first = self._run.trains_with(MOST, since_s)
        self._run.wait("the warm spare", lambda: bool(self._run.outside()))
        self._say(
            f"{MOST} groups train one model; each step is {MICRO_BATCHES} micro-batches, {MICRO_BATCHES // MOST} to a group"
        )
        self._status(first.at_s)

    def _give_way(self) -> None:
        """Submit a higher-priority job, which takes the nodes not guaranteed to the elastic one."""
        wanted = NODES - LEAST
        since_s = time.time()
        self._important = self._run.other_job(wanted, _IMPORTANT_S)
        self._say(f"[bold]job {self._important}, more important, asks for {wanted} nodes[/]; one is idle")
        fewer = self._run.trains_with(LEAST, since_s)
        self._run.wait("the important job", lambda: self._run.state(self._important) == "RUNNING")
        started = self._site.scheduler.job(self._important).start_time
        waited_s = started.timestamp() - since_s if started is not None else time.time() - since_s
        stall_s = steps.stall_s(self._run.attempts(), since_s, range(LEAST), within_s=fewer.at_s - since_s)
        self._say(
            f"Slurm preempted the flexible groups: they finished their step, left, and exited with 85; {LEAST} groups train on"
        )
        self._status(fewer.at_s)
        self._figure(waited_s, "from sbatch to RUNNING of the more important job, by Slurm's clock")
        self._figure(stall_s, "shrinking: longest time between two steps of the groups that stayed")

    def _grow(self) -> None:
        self._run.wait(
            "the important job's end", lambda: self._run.state(self._important) not in ("RUNNING", "COMPLETING")
        )
        since_s = time.time()
        self._say(f"job {self._important} is over: its nodes are idle")
        full = self._run.trains_with(MOST, since_s, within_s=150)
        self._say(f"{MOST} groups again, the newcomers healed by their peers; no checkpoint was read, there is none")
        self._status(full.at_s)
        stall_s = steps.stall_s(self._run.attempts(), since_s, range(LEAST), within_s=full.at_s - since_s)
        self._figure(
            full.at_s - since_s, "growing: from that job's end to full strength, the start of three processes included"
        )
        self._figure(stall_s, "growing: longest time between two steps of the groups that were there")
        self._run.wait("the warm spare", lambda: bool(self._run.outside()))

    def _lose_a_node(self) -> None:
        group = max(self._run.inside())
        element = self._run.job_of(group)
        if element is None or not element.nodes:
            raise ConfigError(f"group {group} has no node")
        node, spare = element.nodes[0], min(self._run.outside())
        since_s = time.time()
        Injector(self._site.practice).xid(node, 79, GPU)
        self._say(
            f"[bold red]GPU {GPU} of {node} falls off the bus (Xid 79)[/]: group {group} trains there; group {spare} is the warm spare"
        )
        full = self._run.trains_with(MOST, self._run.first_step_s(spare, since_s))
        stall_s = steps.stall_s(self._run.attempts(), since_s, set(range(LEAST)) - {group}, within_s=10)
        self._say(f"evicted on the node's verdict; group {spare} was ready and took its place")
        self._status(full.at_s)
        self._figure(stall_s, "fault: longest time between two steps of the survivors")
        self._figure(full.at_s - since_s, "fault: from the line in the kernel log to full strength")
        self._run.wait("the group's new start", lambda: self._elsewhere(group, node))
        again = self._run.job_of(group)
        self._say(
            f"group {group} was started again on {again.nodes[0] if again else '?'}: the new warm spare; {node} is being replaced"
        )
        where, restarts = (again.nodes[0], again.restarts) if again else ("?", 0)
        moved = f"Slurm: group {group} left {node} and runs on {where}, Restarts={restarts}"
        self._facts.append((moved, again is not None and node not in again.nodes))
        self._facts.append((f"Slurm: {node} takes no job before it is repaired", self._was_drained(node)))

    def _ending(self) -> Iterator[Fact]:
        attempts = self._run.attempts()
        done = {a.step for a in steps.committed(attempts)}
        wrong = steps.problems(attempts, MICRO_BATCHES)
        yield (
            f"The job's own record: {len(done)} steps, each with all {MICRO_BATCHES} micro-batches exactly once"
            + (f": NOT SO, {wrong[0]}" if wrong else ", and the same parameters in every group to the last bit"),
            not wrong and len(done) == max(done) + 1,
        )
        starts = {(a.group, a.start) for a in attempts if a.group < LEAST}
        yield f"The {LEAST} guaranteed groups were never stopped", len(starts) == LEAST
        saved = [path.name for path in self._run.folder.iterdir() if path.suffix != ".jsonl" and path.name != "tokens"]
        yield "No checkpoint was written or read", not saved

    def _was_drained(self, node: str) -> bool:
        events = get(self._site, "/v1/events")["events"]
        return any(e["kind"] == "node.out_of_service" and e["node"] == node for e in events)

    def _figure(self, seconds: float, meaning: str) -> None:
        self._figures.append((f"{max(seconds, 0.0):.2f} s", meaning))

    def _elsewhere(self, group: int, node: str) -> bool:
        job = self._run.job_of(group)
        return job is not None and job.state == "RUNNING" and node not in job.nodes

    def _status(self, at_s: float) -> None:
        attempts = self._run.attempts()
        now = max(attempts, key=lambda a: a.at_s)
        usual = steps.usual_step_s(attempts, time.time())
        self._say(f"[dim]step {now.step}, {now.present} groups, {usual:.2f} s a step[/]")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev demo elastic", description=__doc__.splitlines()[0].partition(": ")[2])
    parser.add_argument("--keep", action="store_true", help="leave the cluster running, and say how to use it")
    options = parser.parse_args()
    if importlib.util.find_spec("torchft") is None:
        sys.stderr.write("the demo of elastic training needs torch and torchft: run it as ./dev demo elastic\n")
        return 2
    return perform(
        _site,
        lambda site, narrator: ElasticDemo(site, narrator).run(),
        good="Bent, not broken.",
        keep=_how_to_go_on if options.keep else None,
    )


def _site(folder: Path) -> PracticeSite:
    return PracticeSite.create(folder, nodes=NODES, spares=0, heartbeat_s=2.0, name="demo", elastic=True)


def _how_to_go_on(site: PracticeSite) -> str:
    holdfast, folder = Path(sys.executable).with_name("holdfast"), site.folder
    return (
        f'The cluster runs on. In this shell:\n  eval "$({holdfast} practice env --dir {folder})"\n'
        f"  holdfast jobs; squeue; tail -f {folder}/jobs/elastic/*.jsonl\nand to end it:\n"
        f"  {holdfast} practice down --dir {folder}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
