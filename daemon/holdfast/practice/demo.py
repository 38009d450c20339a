"""``./dev demo``: a GPU falls off the bus under a training job on a real Slurm, and the cluster heals itself.

Exit status 0 only if all of it is true: checked at Slurm, at the EC2 emulator and in the job's own output, not in Holdfast's words."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast.controller.logs import set_up
from holdfast.model.errors import HoldfastError, NotFound, Unavailable
from holdfast.practice import jobs, story
from holdfast.practice.client import get
from holdfast.practice.inject import Injector
from holdfast.practice.site import SPARES, Site

GPU = 3
_HEAL_WITHIN_S = 90.0
_TRAIN_WITHIN_S = 60.0
_WIDTH = 120
"""Columns where standard output is no terminal."""


class Demo:
    """One run: set the stage, throw the fault, watch, check."""

    def __init__(self, site: Site, console: Console) -> None:
        self._site = site
        self._console = console
        self._began = time.monotonic()
        self._last_event = 0
        self._fault_at = datetime.now(UTC)

    def run(self) -> bool:
        """True: everything that the demo claims was found to be so."""
        self._stage()
        job = self._submit()
        first_nodes = self._wait("training", _TRAIN_WITHIN_S, lambda: self._training(job))
        bad = first_nodes[1]
        before = {row["instance_id"]: row for row in self._node(bad)["agents"]}
        self._fault_at = datetime.now(UTC)
        Injector(self._site.practice).xid(bad, 79, GPU)
        self._say(f"[bold red]GPU {GPU} of {bad} falls off the bus (Xid 79)[/]: one line in the kernel log of {bad}")
        incident = self._watch()
        facts = self._facts(job, bad, first_nodes, set(before), incident)
        self._show(incident)
        checked = Table.grid(padding=(0, 1))
        for text, true in facts:
            checked.add_row("  [green]✓[/]" if true else "  [bold red]✗[/]", text)
        self._console.print(checked, highlight=False)
        return all(true for _, true in facts)

    def _stage(self) -> None:
        nodes, spares = self._site.practice.nodes, self._site.spare_names
        self._say(
            f"starting Slurm, {len(nodes)} nodes with 8 emulated GPUs each ({', '.join(spares)} as warm spare), the EC2 emulator, "
            "the controller, the actor and one agent per node …"
        )
        self._site.up()
        self._say(f"all agents are heard; {len(nodes) - len(spares)} nodes work, {len(spares)} in reserve")

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
        """The job's nodes once it has a checkpoint and some steps beyond it, which the fault will cost."""
        lines = self._output(job)
        saved = [n for n, line in enumerate(lines) if line.startswith("checkpoint step")]
        if not saved or not any(line.startswith("step") for line in lines[saved[-1] :]):
            return None
        shown = self._site.scheduler.job(job)
        self._say(f"job {job} trains on {', '.join(shown.nodes)}: {lines[saved[-1]]}, now {lines[-1]}")
        return shown.nodes

    def _watch(self) -> dict[str, Any]:
        """Print what happens, as it happens, until the incident is closed."""
        since = time.monotonic()
        while time.monotonic() - since < _HEAL_WITHIN_S:
            self._tell()
            incidents = get(self._site, "/v1/incidents")["incidents"]
            if incidents and incidents[0]["state"] == "closed" and self._resumed(incidents[0]["id"]):
                self._tell()
                found: dict[str, Any] = get(self._site, f"/v1/incidents/{incidents[0]['id']}")
                return found
            time.sleep(0.1)
        raise Unavailable(f"not healed within {_HEAL_WITHIN_S:.0f} s; the logs are in {self._site.folder}/log")

    def _resumed(self, incident: str) -> bool:
        found = get(self._site, f"/v1/incidents/{incident}")
        return all(r["phase"] in ("resumed", "gone", "held", "left_alone") for r in found["recoveries"])

    def _tell(self) -> None:
        """Print what is new in the record."""
        for event in get(self._site, f"/v1/events?after_id={self._last_event}")["events"]:
            self._last_event = event["id"]
            if event["kind"] == "fault.occurred":
                self._fault_at = datetime.fromisoformat(event["at"])
            line = story.line_of(event) if event["incident_id"] else None
            if line is not None:
                at_s = story.after_s(event, self._fault_at)
                self._console.print(story.told(at_s, line, self._console.width), soft_wrap=True)

    def _facts(
        self, job: int, bad: str, first: tuple[str, ...], old: set[str], told: dict[str, Any]
    ) -> list[tuple[str, bool]]:
        """What the demo claims, each asked where it happened."""
        slurm = self._site.scheduler
        shown, node, pool = slurm.job(job), slurm.node(bad), slurm.reservation(SPARES).nodes
        lines = self._output(job)
        resumed = [int(line.split()[3]) for line in lines if line.startswith("resumed from step")]
        launched, gone = (self._site.emulator.effects(name) for name in ("RunInstances", "TerminateInstances"))
        fresh = [i for i in launched if i not in old][len(self._site.practice.nodes) - 1 :] or launched[-1:]
        spare = self._site.spare_names[0]
        holds = [name for name in slurm.view().reservations if name != SPARES]
        return [
            (f"Slurm: job {job} runs again under the same id, Restarts={shown.restarts}",
             shown.state == "RUNNING" and shown.restarts == 1),
            (f"Slurm: it left {bad}, kept {', '.join(sorted(set(first) - {bad}))}, and got the spare {spare}",
             set(shown.nodes) == (set(first) - {bad}) | {spare}),
            (f"Job's own output: resumed from step {resumed[-1] if resumed else '?'}, not from zero",
             bool(resumed) and resumed[-1] > 0),
            (f"EC2: one machine launched ({', '.join(fresh)}), one terminated ({', '.join(gone)})",
             len(gone) == 1 and gone[0] in old and len(launched) == len(self._site.practice.nodes) + 1),
            ("Holdfast: the new machine was validated before it served",
             any(e["kind"] == "node.validated" for e in told["timeline"])),
            (f"Slurm: {bad} is back in service, as the new spare", bad in pool and not node.out_of_service),
            ("Slurm: no reservation of the recovery is left behind", not holds),
        ]  # fmt: skip

    def _show(self, told: dict[str, Any]) -> None:
        """The timeline, and what the fault cost."""
        self._console.print()
        title = f"Timeline of incident {told['incident']['id']} on {told['incident']['node']}"
        self._console.print(story.milestones(title, told["timeline"], self._fault_at))
        self._console.print(story.figures(told["timings"] or {}))
        self._console.print()

    def _node(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(n for n in get(self._site, "/v1/nodes")["nodes"] if n["name"] == name)
        return found

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

    def _say(self, text: str) -> None:
        """A line of the stage; what does not fit is folded below the text."""
        row = Table.grid(padding=(0, 2))
        row.add_column(style="dim", no_wrap=True)
        row.add_column()
        row.add_row(f"{time.monotonic() - self._began:6.2f} s", text)
        self._console.print(row, highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__.splitlines()[0].partition(": ")[2])
    parser.add_argument("--keep", action="store_true", help="leave the cluster running, and say how to use it")
    options = parser.parse_args()
    set_up("text", "error")
    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-", dir="/tmp"))
    folder.chmod(0o755)
    site = Site.create(folder, nodes=5, spares=1, heartbeat_s=2.0, name="demo")
    began = time.monotonic()
    healed = False
    try:
        healed = Demo(site, console).run()
    except HoldfastError as error:
        console.print(f"[bold red]{escape(str(error))}[/]")
    except KeyboardInterrupt:
        console.print("stopped; taking the cluster down")
    finally:
        if not options.keep:
            site.down()
            if healed:
                shutil.rmtree(folder, ignore_errors=True)
    verdict = "[bold green]Healed.[/]" if healed else f"[bold red]Not all of it is true[/]; see {folder}/log"
    console.print(f"{verdict} {time.monotonic() - began:.0f} s in all.", highlight=False)
    if options.keep:
        _how_to_go_on(folder)
    return 0 if healed else 1


def _how_to_go_on(folder: Path) -> None:
    holdfast = Path(sys.executable).with_name("holdfast")
    sys.stdout.write(
        f"The cluster runs on. To use it in this shell:\n"
        f'  eval "$({holdfast} practice env --dir {folder})"\n'
        f"  holdfast nodes; holdfast incidents; holdfast metrics; squeue\n"
        f"  holdfast practice inject n3 xid 79 --gpu 5\n"
        f"and to end it:\n"
        f"  {holdfast} practice down --dir {folder}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
