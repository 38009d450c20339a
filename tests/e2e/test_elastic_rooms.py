"""An elastic job's groups in their rendezvous, on a real Slurm with real daemons: a fatal fault, and daemons that are killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import pytest

from holdfast.controller.quorum.quorum_link import QuorumLink
from holdfast.decisions.elastic.ledger import Read, fold
from holdfast.metrics.timings import Phase, measure
from holdfast.model.event import Event, EventKind
from holdfast.practice.cluster.slurmconf import FLEXIBLE
from support.practice import eventually
from support.site import PATIENCE_S, TESTS, Drill, MakeDrill

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
WORKER = TESTS / "support" / "room_worker.py"
LEDGER = tuple(kind for kind in EventKind if kind.value.startswith("quorum."))


class Elastic:
    """A job of three groups, each on a separate node: two in the base array, one in the flexible one."""

    def __init__(self, drill: Drill) -> None:
        self.drill = drill
        self.folder = drill.practice.folder / "jobs" / "steps"
        self.folder.mkdir()
        script = f"exec {sys.executable} {WORKER} {self.folder}"
        paths = ":".join(str(TESTS.parent / part) for part in ("daemon", "healthchecks"))
        common = ("--exclusive", "--requeue", f"--export=ALL,PYTHONPATH={paths}")
        self.base = drill.practice.sbatch(script, "--array=0-1", "--comment=holdfast elastic=2:3", *common)
        words = (f"--comment=holdfast elastic=2:3 of={self.base}", f"--partition={FLEXIBLE}")
        self.flexible = drill.practice.sbatch(script, "--array=2", *words, *common)
        self.link = QuorumLink(drill.practice.folder / "run" / "quorum.sock")

    def lines(self, group: int, start: str = "*") -> list[dict[str, Any]]:
        files = sorted(self.folder.glob(f"{group}-{start}.jsonl"), key=lambda path: path.stat().st_mtime)
        return [json.loads(line) for file in files for line in file.read_text().splitlines() if line.endswith("}")]

    def together(self, groups: int, *, of: tuple[int, ...] = (0, 1, 2)) -> None:
        """Wait until each of these has made three new steps with this many groups."""
        before = {group: len(self.lines(group)) for group in of}
        eventually(
            lambda: all(sum(s.get("groups") == groups for s in self.lines(g)[before[g] :]) >= 3 for g in of),
            within_s=PATIENCE_S,
        )

    def node_of(self, group: int) -> str:
        (job,) = [j for j in self.drill.scheduler.view().jobs.values() if j.array_task_id == group]
        return job.nodes[0]

    def ledger(self) -> list[tuple[str, str | None]]:
        return [(e.text, e.incident_id) for e in self.drill.events(*LEDGER)]

    def record(self) -> list[tuple[str, str | None]]:
        """What the ledger must hold in the end."""
        _, events = fold(Read(), self.link.records(0, 10_000), {})
        return [(e.text, e.incident_id) for e in events]


@pytest.fixture
def job(make_drill: MakeDrill) -> Elastic:
    made = Elastic(make_drill(nodes=4, spares=1, heartbeat_s=2.0, quorum=True, elastic=True))
    made.together(3)
    return made


def test_the_others_go_on_at_the_controllers_word_until_the_job_is_whole(job: Elastic) -> None:
    drill, bad = job.drill, job.node_of(2)
    hung = job.lines(2)[-1]["pid"]
    os.kill(hung, signal.SIGSTOP)  # as with a lost GPU: its group reaches no step, and its peers wait for it
    drill.inject.xid(bad, 79, gpu=0)
    incident = drill.incident_on(bad)
    eventually(lambda: phases(drill, incident.id).keys() >= {Phase.GO_ON, Phase.REGROW}, within_s=PATIENCE_S)
    found = phases(drill, incident.id)
    told = {phase.value: round(seconds, 3) for phase, seconds in found.items()}
    print(f"phases of the incident, in s: {told}")  # noqa: T201 - figures for whoever asks, with pytest -s
    assert found[Phase.EVICT] < 5.0, "the heartbeat timeout alone would be 5 s"
    assert found[Phase.GO_ON] < 3.0
    job.together(3)
    texts = [e.text for e in drill.store.events(incident_id=incident.id) if e.kind in LEDGER]
    milestones = ("shut out", "continue", "as many as before")
    assert [words for text in texts for words in milestones if words in text] == list(milestones)


@pytest.mark.soak
def test_daemons_that_are_killed_cost_no_step_and_nothing_is_told_twice(job: Elastic) -> None:
    processes, site = job.drill.practice.processes, job.drill.site
    for _ in range(3):
        processes.kill("controller")
        processes.kill("quorum")
        site.start_quorum()
        site.start_controller()
        job.together(3)
        (job.drill.practice.folder / "run" / "quorum.sock").unlink()
        job.together(3)
        job.drill.practice.command("scontrol", "requeue", f"{job.flexible}_2")
        job.together(2, of=(0, 1))
        processes.kill("controller")
        site.start_controller()
        job.together(3)
    for group in (0, 1, 2):
        steps = [line["step"] for line in job.lines(group) if "step" in line]
        assert steps == sorted(set(steps)), "a step was met for twice"
    eventually(lambda: len(job.ledger()) == len(job.record()), within_s=PATIENCE_S)
    assert job.ledger() == job.record(), "each once, in order, whichever group died"


def phases(drill: Drill, incident_id: str) -> dict[Phase, float]:
    events: tuple[Event, ...] = drill.store.events(incident_id=incident_id)
    return dict(measure(events)[0].phases) if events else {}
