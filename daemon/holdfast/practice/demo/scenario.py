"""``./dev demo``: a GPU falls off the bus under a training job on a real Slurm, and the cluster heals itself.

Exit status 0 only if all claims are true: checked at Slurm, at the machines' provider and in the job's own output, not in
Holdfast's messages."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.model.errors import NotFound, Unavailable
from holdfast.practice import jobs
from holdfast.practice.cluster.backing import KINDS, HyperpodBacking, backing_class
from holdfast.practice.cluster.client import get
from holdfast.practice.cluster.deliveries import arrange
from holdfast.practice.cluster.site import PracticeSite
from holdfast.practice.demo import timeline
from holdfast.practice.demo.narrator import Narrator, perform
from holdfast.practice.demo.show import ATTEMPTS, DemoResult, MachineIdentity, Show, calls
from holdfast.practice.faults.inject import Injector

GPU = 3
_HEAL_WITHIN_S = 90.0
"""Time limit after the fault; ``_RETRY_S`` is added for each machine that fails."""
_RETRY_S = 30.0
_TRAIN_WITHIN_S = 60.0


class FaultDemo:
    """One run: start everything, inject the fault, watch, check."""

    def __init__(self, show: Show, site: PracticeSite, narrator: Narrator) -> None:
        self._show = show
        self._site = site
        self._narrator, self._console, self._say = narrator, narrator.console, narrator.say
        self._last_event = 0
        self._repaired = False
        self._fault_at = datetime.now(UTC)

    def run(self) -> bool:
        """Run it. True: all claims of the demo were verified."""
        self._stage()
        job = self._submit()
        first_nodes = self._wait("training", _TRAIN_WITHIN_S, lambda: self._training(job))
        bad = first_nodes[1]
        before = self._before = MachineIdentity.of(self._site, bad)
        arrange(self._site.folder, self._show.deliveries)
        self._fault_at = datetime.now(UTC)
        Injector(self._site.practice).xid(bad, 79, GPU)
        self._say(f"[bold red]GPU {GPU} of {bad} falls off the bus (Xid 79)[/]: one line in the kernel log of {bad}")
        told = self._watch()
        ending = DemoResult(self._show, self._site, job, bad, first_nodes, before, told["timeline"], self._output(job))
        facts = ending.facts()
        self._sum_up(told)
        return self._narrator.check_off(facts)

    def _stage(self) -> None:
        nodes, spares = self._site.practice.nodes, self._site.spare_names
        reserve = f"{', '.join(spares)} as warm spare" if spares else "no spare"
        machines = backing_class(self._show.provider).stands_behind
        self._say(
            f"starting Slurm, {len(nodes)} nodes with 8 emulated GPUs each ({reserve}), {machines}, "
            "the controller, the actor and one agent per node …"
        )
        self._site.up()
        if self._show.watched:
            HyperpodBacking(self._site.practice).control.settings(node_recovery="Automatic")
        self._say(f"all agents report; {len(nodes) - len(spares)} nodes work, {len(spares) or 'none'} in reserve")

    def _submit(self) -> int:
        folder = self._site.folder / "jobs"
        script = Path(jobs.__file__).with_name("train.sbatch").read_text()
        environment = {
            "HOLDFAST_PYTHON": sys.executable,
            "HOLDFAST_TRAIN_DIR": str(folder / "checkpoints"),
            "HOLDFAST_TRAIN_STEP_S": "0.1",
            "HOLDFAST_TRAIN_CHECKPOINT_EVERY": "25",
        }
        export = ",".join(("ALL", *(f"{k}={v}" for k, v in environment.items())))
        job = self._site.practice.sbatch(script, f"--output={folder}/train-%j.out", "--exclusive", f"--export={export}")
        self._say(f"job {job} submitted with sbatch: 3 nodes, 24 GPUs, a checkpoint every 25 steps")
        return job

    def _output(self, job: int) -> list[str]:
        path = self._site.folder / "jobs" / f"train-{job}.out"
        return path.read_text(errors="replace").splitlines() if path.exists() else []

    def _training(self, job: int) -> tuple[str, ...] | None:
        """The job's nodes, once it has a checkpoint and some later steps, which the fault will lose."""
        lines = self._output(job)
        saved = [n for n, line in enumerate(lines) if line.startswith("checkpoint step")]
        if not saved or not any(line.startswith("step") for line in lines[saved[-1] :]):
            return None
        shown = self._site.scheduler.job(job)
        self._say(f"job {job} trains on {', '.join(shown.nodes)}: {lines[saved[-1]]}, now {lines[-1]}")
        return shown.nodes

    def _watch(self) -> dict[str, Any]:
        """Print events as they happen, until the incident is closed or an operator was notified."""
        within_s = _HEAL_WITHIN_S + _RETRY_S * len(self._show.deliveries)
        since = time.monotonic()
        while time.monotonic() - since < within_s:
            self._tell()
            incidents = get(self._site, "/v1/incidents")["incidents"]
            found: dict[str, Any] = get(self._site, f"/v1/incidents/{incidents[-1]['id']}") if incidents else {}
            if found and self._show.watched and found["incident"]["state"] == "repairing":
                self._let_hyperpod_repair()
            if found and self._over(found):
                self._tell()
                return found
            time.sleep(0.1)
        raise Unavailable(f"not over within {within_s:.0f} s; the logs are in {self._site.folder}/log")

    def _let_hyperpod_repair(self) -> None:
        """Simulate HyperPod's own health monitoring, once."""
        if not self._repaired:
            self._repaired = True
            HyperpodBacking(self._site.practice).control.repair(self._before.instance_id, "replace")
            self._say(f"HyperPod itself replaces {self._before.instance_id}")

    def _over(self, found: dict[str, Any]) -> bool:
        if self._show.heals or self._show.spares:
            settled = all(r["phase"] in ("resumed", "gone", "held", "left_alone") for r in found["recoveries"])
        else:
            settled = True  # no node remains for the job
        if found["incident"]["state"] == "awaiting_human":
            return settled and bool(calls(self._site))
        return settled and found["incident"]["state"] == "closed"

    def _tell(self) -> None:
        """Print new events."""
        for event in get(self._site, f"/v1/events?after_id={self._last_event}")["events"]:
            self._last_event = event["id"]
            if event["kind"] == "fault.occurred":
                self._fault_at = datetime.fromisoformat(event["at"])
            line = timeline.line_of(event)
            if line is not None:
                at_s = timeline.after_s(event, self._fault_at)
                self._console.print(timeline.told(at_s, line, self._console.width), soft_wrap=True)

    def _sum_up(self, told: dict[str, Any]) -> None:
        """Print the timeline, and the cost of the fault."""
        self._console.print()
        title = f"Timeline of incident {told['incident']['id']} on {told['incident']['node']}"
        self._console.print(timeline.milestones(title, told["timeline"], self._fault_at))
        self._console.print(timeline.figures(told["timings"] or {}))
        self._console.print()

    def _wait(self, what: str, within_s: float, ready: Callable[[], tuple[str, ...] | None]) -> tuple[str, ...]:
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            try:
                found = ready()
            except NotFound:
                found = None
            if found is not None:
                return found
            time.sleep(0.1)
        raise Unavailable(f"{what}: not within {within_s:.0f} s; the logs are in {self._site.folder}/log")


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line. Ends the process with status 2 for options that do not go together."""
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__.splitlines()[0].partition(": ")[2])
    parser.add_argument("--provider", choices=KINDS, default="ec2", help="provider of the nodes (ec2)")
    parser.add_argument(
        "--spares",
        type=int,
        choices=(0, 1),
        default=1,
        help="0: no spare and no idle node; the job waits for the repair",
    )
    parser.add_argument(
        "--fail-replacements", type=int, choices=range(ATTEMPTS + 1), default=0, metavar="N",
        help=f"the next N replacements come without a GPU; {ATTEMPTS}: the ladder ends with an operator",
    )  # fmt: skip
    parser.add_argument(
        "--same-hardware", action="store_true", help="the same GPUs come back under the first replacement"
    )
    parser.add_argument(
        "--hyperpod-repairs", action="store_true", help="HyperPod repairs automatically (NodeRecovery Automatic); Holdfast watches"
    )  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="leave the cluster running, and say how to use it")
    options = parser.parse_args(argv)
    if options.same_hardware and options.fail_replacements:
        parser.error("--same-hardware and --fail-replacements are two scenarios: one at a time")
    if options.hyperpod_repairs and (
        options.provider != "hyperpod" or options.same_hardware or options.fail_replacements
    ):
        parser.error("--hyperpod-repairs goes with --provider hyperpod alone: Holdfast orders no replacement")
    if options.same_hardware and options.provider == "ec2":
        parser.error("--same-hardware needs a provider that exchanges a machine in place: hyperpod or command")
    return options


def main() -> int:
    options = read_options()
    show = Show(
        options.provider, options.spares, options.fail_replacements, options.same_hardware, options.hyperpod_repairs
    )  # fmt: skip
    settings: dict[str, dict[str, Any]] = {"repair": {"backoff_s": 1.0}}
    if show.watched:
        settings["provider"] = {"mode": "observe"}

    def make_site(folder: Path) -> PracticeSite:
        return PracticeSite.create(
            folder, nodes=show.nodes, spares=show.spares, provider=show.provider, settings=settings, heartbeat_s=2.0, name="demo"
        )  # fmt: skip

    def play(site: PracticeSite, narrator: Narrator) -> bool:
        return FaultDemo(show, site, narrator).run()

    good = "Healed." if show.heals else "Three replacements failed: an operator was notified, once."
    return perform(make_site, play, good=good, keep=_how_to_go_on if options.keep else None)


def _how_to_go_on(site: PracticeSite) -> str:
    holdfast, folder, node = Path(sys.executable).with_name("holdfast"), site.folder, site.practice.nodes[2]
    return (
        f"The cluster runs on. To use it in this shell:\n"
        f'  eval "$({holdfast} practice env --dir {folder})"\n'
        f"  holdfast nodes; holdfast incidents; holdfast metrics; squeue\n"
        f"  holdfast practice inject {node} xid 79 --gpu 5\n"
        f"and to end it:\n"
        f"  {holdfast} practice down --dir {folder}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
