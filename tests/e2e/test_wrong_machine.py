"""On a real Slurm and an emulated EC2: an agent that claims the machine of a node with a running job causes no action on it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.decisions.repair.ladder import LADDER
from holdfast.model.incidents.incident import Incident, IncidentKind
from holdfast.practice.cluster.hosting import agent_argv
from support.practice import eventually
from support.site import PATIENCE_S, Drill, raise_site, raze

pytestmark = pytest.mark.slurm
ENDS = ("TerminateInstances", "StopInstances", "RebootInstances")


@pytest.fixture
def drill(short_folder: Path) -> Iterator[Drill]:
    folder = Path(tempfile.mkdtemp(prefix="w", dir=short_folder))
    rungs = [rung.value for rung in LADDER]
    made = raise_site(folder, nodes=3, spares=0, heartbeat_s=2.0, settings={"repair": {"rungs": rungs}})
    yield made
    raze(made)


def _claims(drill: Drill, liar: str, theirs: str) -> None:
    """The agent starts again with another node's instance id in its settings, as on a copied image."""
    machine = drill.practice.machine(liar)
    settings = machine.host.folder.resolve() / "agent.toml"
    lines = settings.read_text().splitlines(keepends=True)
    lies = [f'instance_id = "{theirs}"\n' if each.startswith("instance_id_path") else each for each in lines]
    assert lies != lines
    settings.write_text("".join(lies))
    machine.forget_agent()
    machine.set_agent(agent_argv(settings.parent))


def _disputes(drill: Drill) -> list[Incident]:
    return [i for i in drill.store.incidents() if i.kind is IncidentKind.DISPUTED]


def test_the_machine_that_two_nodes_claim_runs_on_and_so_does_its_job(drill: Drill) -> None:
    _, other, liar = drill.practice.nodes
    theirs = drill.practice.machine(other).host.instance_id
    job = drill.sleeper(f"--nodelist={other}", "--exclusive")
    _claims(drill, liar, theirs)
    eventually(lambda: bool(_disputes(drill)), within_s=PATIENCE_S)
    drill.inject.xid(liar, 79, 3)
    eventually(lambda: drill.node(liar).draining, within_s=PATIENCE_S)
    time.sleep(15)
    assert {action: drill.site.emulator.effects(action) for action in ENDS} == {action: [] for action in ENDS}
    assert drill.launched() == []
    assert drill.run(job) == ("RUNNING", 0)
    assert not drill.node(other).out_of_service
    (dispute,) = _disputes(drill)
    assert dispute.open
    assert (dispute.instance_id, dispute.node) == (theirs, liar)
    assert other in dispute.headline
