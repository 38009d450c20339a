"""The real control loop repairs a simulated node with a site's script: each call is a process that speaks the contract."""

from __future__ import annotations

import dataclasses
import json
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import OutsideError
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.machine import Instance
from holdfast.providers.command.adapter import CommandProvider
from holdfast.providers.command.contract import EXITS
from holdfast.providers.command.settings import CommandSettings
from support.simulated import SimProvider, Site

pytestmark = pytest.mark.slow
BRIDGE = Path(__file__).parent / "bridge_script.py"
VERBS = ["status", "reboot", "launch", "assign", "terminate"]


class Script:
    """What a script over the simulated machines answers."""

    def __init__(self, sim: SimProvider) -> None:
        self._sim = sim
        self.asked: Counter[str] = Counter()

    def answer(self, asked: Mapping[str, str]) -> dict[str, Any]:
        self.asked[asked["verb"]] += 1
        try:
            return {"status": 0, "answer": self._do(asked)}
        except OutsideError as error:
            status = {kind: status for status, kind in EXITS.items()}[type(error)]
            return {"status": status, "answer": {"error": str(error)}}

    def _do(self, asked: Mapping[str, str]) -> dict[str, Any]:
        match asked["verb"]:
            case "capabilities":
                return {"contract": 1, "verbs": VERBS, "power_off_confirmed": True}
            case "status":
                return {"machine": self._status(asked)}
            case "launch":
                self._sim.launch(asked["node"], incident=asked["incident"], token=asked["token"])
                return {"machine": self._status({**asked, "instance_id": ""})}
            case "assign":
                self._sim.assign(asked["instance_id"], asked["node"])
            case "terminate":
                self._sim.terminate(asked["instance_id"])
        return {}

    def _status(self, asked: Mapping[str, str]) -> dict[str, Any] | None:
        found: Instance | None
        if asked["instance_id"]:
            found = self._sim.instance(asked["instance_id"])
        elif asked["token"]:
            found = self._sim.find_launched(asked["token"])
        else:
            found = self._sim.instance_of(asked["node"])
        if found is None:
            return None
        tokens = {number: token for token, number in self._sim.tokens.items()}
        shown = dataclasses.asdict(found)
        shown["launched_at"] = found.launched_at.isoformat() if found.launched_at else None
        return {**shown, "token": tokens.get(found.instance_id, "")}


class ByScript(CommandProvider):
    """The provider ``command``, with the other methods that a simulated site calls on its own provider."""

    def __init__(self, settings: CommandSettings, sim: SimProvider) -> None:
        super().__init__(settings)
        self.serving = sim.serving


@dataclasses.dataclass(frozen=True, slots=True)
class Bridged:
    site: Site
    sim: SimProvider
    script: Script


@pytest.fixture
def bridged() -> Iterator[Bridged]:
    """Three nodes, the last one a spare, whose machines the controller knows by the script alone."""
    site = Site(3, spares=("n3",))
    sim = site.provider
    script = Script(sim)
    with tempfile.TemporaryDirectory() as folder, _answering(Path(folder) / "s", script.answer) as path:
        command = (sys.executable, "-I", "-S", str(BRIDGE), str(path))
        site.provider = ByScript(CommandSettings("c", command), sim)  # type: ignore[assignment]
        site.start_controller()
        site.start_actor()
        site.run(31)
        yield Bridged(site, sim, script)


@contextmanager
def _answering(path: Path, answer: Callable[[Mapping[str, str]], object]) -> Iterator[Path]:
    """One question per connection, until it is closed."""

    def serve() -> None:
        asked = b"first"
        while asked:
            line, _ = listener.accept()
            with line, line.makefile("rb") as lines:
                asked = lines.read()
                if asked:
                    line.sendall(json.dumps(answer(json.loads(asked))).encode())

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(path))
            thread.join()


def repair(site: Site, seconds: float = 300) -> str:
    """Raise a fault of n1 and run until it is repaired; returns the incident's id."""
    site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    site.fault("n1")
    site.run(seconds, step_s=5)
    incident = site.incident("n1")
    assert incident.state is IncidentState.CLOSED, site.story()
    return incident.id


def test_a_node_is_replaced_by_a_script(bridged: Bridged) -> None:
    site = bridged.site
    incident = repair(site)
    order = ["Launch", "Terminate", "Assign", "AdoptSpare", "Undrain"]
    assert [kind for kind in site.kinds(incident) if kind in order] == order
    assert site.book.nodes["n1"].instance_id == "i-0004"
    assert bridged.sim.live() == {"i-0002", "i-0003", "i-0004"}
    assert [bridged.script.asked[verb] for verb in ("launch", "assign", "terminate")] == [1, 1, 1]


def test_no_machine_for_a_while_is_waited_for(bridged: Bridged) -> None:
    bridged.sim.capacity = False
    site = bridged.site
    site.fault("n1")
    site.run(120, step_s=5)
    assert "n1: no machine yet" in site.notices.sent
    bridged.sim.capacity = True
    site.run(1000, step_s=5)
    assert site.incident("n1").state is IncidentState.CLOSED
    assert bridged.sim.live() == {"i-0002", "i-0003", "i-0004"}


@pytest.mark.parametrize("kind", ["Launch", "Terminate", "Assign"])
def test_a_crash_after_a_call_doubles_nothing(bridged: Bridged, kind: str) -> None:
    bridged.site.kill_at = (kind, "acted")
    repair(bridged.site, 400)
    assert bridged.site.killed == 1
    assert bridged.sim.live() == {"i-0002", "i-0003", "i-0004"}
    assert bridged.sim.terminated == {"i-0001": 1}
    assert bridged.script.asked["launch"] == 1
