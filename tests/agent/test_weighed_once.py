"""A result is judged once between the check and the outbox, so that what it would have called for is not lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.practice.aws import imds_state
from holdfast.practice.aws.imds import Imds
from holdfast_checks.known import all_checks
from support.agent_bench import FakeController, Folder, Json

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

SPOT = "cloud.interruption"


@dataclass
class Node:
    """A running agent whose site only observes spot notices, and the metadata of its machine."""

    controller: FakeController
    folder: Folder
    metadata: Path

    def finding(self, check: str) -> Json:
        def found() -> list[Json]:
            return [item for item in self.controller.items("finding") if item["check"] == check]

        self.controller.wait(lambda: bool(found()))
        return found()[0]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    metadata = tmp_path / "machines" / "i-0abc"
    metadata.mkdir(parents=True)
    (metadata / "instance_id").write_text("i-0abc\n")
    service = Imds(tmp_path)
    thread = threading.Thread(target=service.serve_forever, args=(0.01,))
    thread.start()
    (tmp_path / "node").mkdir()
    controller = FakeController()
    folder = Folder(tmp_path / "node", controller.url)
    others = json.dumps([name for name in all_checks() if name != SPOT])
    folder.write_config(
        f'controllers = ["{controller.url}"]\ndisabled_checks = {others}\nobserve_only = ["{SPOT}"]\n'
        f'[cloud]\nimds = "{service.url}/machines/i-0abc"\n[intervals]\n"{SPOT}" = 0.5\n'
    )
    process = folder.start()
    try:
        controller.wait(lambda: len(controller.heartbeats) > 1)
        yield Node(controller, folder, metadata)
    finally:
        process.kill()
        process.wait()
        controller.close()
        service.shutdown()
        thread.join()
        service.server_close()
    assert "Traceback" not in folder.agent_log


def test_what_an_observed_notice_would_have_called_for_reaches_the_controller(node: Node) -> None:
    """The loop and the report each judged it: the second time the would-be fatal, replace became warning, none."""
    at = datetime.now(UTC) + timedelta(minutes=2)
    imds_state.change(node.metadata, spot=imds_state.spot("terminate", at))
    found = node.finding(SPOT)
    assert (found["verdict"], found["severity"], found["remedy"]) == ("degraded", "warning", "none")
    evidence = found["evidence"]
    assert evidence["notice"] == "interruption"
    assert (evidence["observe"], evidence["would_severity"], evidence["would_remedy"]) == (True, "fatal", "replace")


def test_an_observed_notice_keeps_no_node_from_serving(node: Node) -> None:
    """An order's answer is judged too, and once: a finding of a check that only observes counts as a warning there."""
    imds_state.change(node.metadata, spot=imds_state.spot("terminate", datetime.now(UTC) + timedelta(minutes=2)))
    args = {"checks": [SPOT], "expect_no_job": False}
    node.controller.give({"id": "a/1", "verb": "validate", "args": args, "expires_s": 60, "incident": "0h3k"})
    node.controller.wait(lambda: bool(node.controller.items("order_outcome")))
    (outcome,) = node.controller.items("order_outcome")
    (result,) = outcome["detail"]["results"]
    assert (outcome["ok"], result["severity"], result["remedy"]) == (True, "warning", "none")
