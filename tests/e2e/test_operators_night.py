"""An operator's night on a real Slurm: what was wrong is answered on the terminal, and every page came once, with a runbook that exists."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast.model.incidents.incident import IncidentState
from holdfast.practice.cluster.deliveries import Delivery, arrange
from support.practice import eventually
from support.site import PATIENCE_S, Drill, MakeDrill

pytestmark = pytest.mark.slurm


class OnCall:
    """The telephone of those who are called: a webhook."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str]] = []
        pages = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                pages.append((body["title"], body["message"]))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://127.0.0.1:{self.server.server_address[1]}/"

    def about(self, node: str) -> list[str]:
        """Subjects of the messages that name the node."""
        return [subject for subject, body in self.got if node in f"{subject} {body}".replace(",", " ").split()]


@pytest.fixture
def on_call() -> Iterator[OnCall]:
    made = OnCall()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def ask(drill: Drill, *words: str) -> str:
    """What the command line answers."""
    env = {**os.environ, **drill.site.client_env()}
    argv = [sys.executable, "-m", "holdfast.cli", *words]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def test_two_faults_whose_repair_fails_a_hand_drain_and_an_address_that_is_wrong(
    make_drill: MakeDrill, on_call: OnCall
) -> None:
    nowhere = "json://127.0.0.1:9/"
    notify = {"urls": [on_call.url], "group_s": 1.0, "routes": [{"urls": [nowhere]}]}
    drill = make_drill(nodes=4, spares=0, settings={"notify": notify, "repair": {"attempts": 1}})
    drill.scontrol("update", "NodeName=n3", "State=DRAIN", "Reason=swap PSU OPS-12")
    arrange(drill.practice.folder, [Delivery.FAULTY] * 2)
    for node in ("n1", "n2"):
        drill.inject.xid(node, 79, 3)
    for node in ("n1", "n2"):
        eventually(lambda n=node: drill.incident_on(n).state is IncidentState.AWAITING_HUMAN, within_s=PATIENCE_S)  # type: ignore[misc]
    eventually(lambda: bool(on_call.about("n1") and on_call.about("n2")), within_s=PATIENCE_S)

    def told() -> bool:
        shown = ask(drill, "status")
        return "notifier failed" in shown or "FAILED: notifier" in shown

    eventually(told, within_s=PATIENCE_S)
    shown = ask(drill, "status")
    for words in (
        "n1: gpu.xid 79",
        "n2: gpu.xid 79",
        "notifier: messages to people are not delivered",
        "not delivered to routes[0]",
    ):
        assert words in shown, shown
    assert "Healing" not in shown
    bad = [line.split()[0] for line in ask(drill, "nodes", "--bad").splitlines() if line.startswith("  n")]
    assert bad == ["n1", "n2", "n3"]
    night = ask(drill, "night", "--since", "yesterday")
    assert night.count("needs you") >= 2, night
    assert "drained by root: swap PSU OPS-12" in ask(drill, "node", "history", "n3")

    drill.scontrol("update", "NodeName=n1", "State=RESUME")
    eventually(lambda: any(s.startswith("over: ") or ": over: " in s for s in on_call.about("n1")), within_s=PATIENCE_S)
    assert "put back before incident" in ask(drill, "node", "health", "n1")
    for node, messages in (("n1", 2), ("n2", 1)):
        assert len(on_call.about(node)) == messages, on_call.got
    called = [body for subject, body in on_call.got if "over: " not in subject]
    assert all(body.count("unbook") == 2 and "Runbook: holdfast runbook awaiting-human" in body for body in called), (
        called
    )
    assert ask(drill, "runbook", "awaiting-human").startswith("# ")
    assert "operator" in ask(drill, "notices")
