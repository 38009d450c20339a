"""An agent with a future wire version and a controller of today, as real processes: refused with a clear error, and nothing is lost."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from lifecycle.processes import Head, agent_config, eventually, running

pytestmark = pytest.mark.slow
TOMORROW = "import holdfast.model.agents.report as r; r.WIRE_VERSION += 1"


@pytest.mark.timeout(120)
def test_an_agent_of_another_version_is_refused_and_waits_for_the_upgrade(tmp_path: Path) -> None:
    head = Head(tmp_path)
    viewer = head.token("viewer", "test")
    folder = agent_config(head, "n1", head.url, None)
    command = ("holdfast.agent", "--config", str(folder / "agent.toml"))
    with ExitStack() as stack:
        log = stack.enter_context(running(tmp_path, "holdfast.head", "controller", "--config", str(head.config)))
        eventually(lambda: head.hears(viewer) is not None, log)
        with running(folder, *command, before=TOMORROW) as said:
            eventually(lambda: "upgrade the older side" in said.read_text(), said)
            assert head.hears(viewer) == set()
            assert "Traceback" not in said.read_text(), "it continues, and asks again"
        assert "Traceback" not in log.read_text()
        with running(folder, *command) as said:
            eventually(lambda: head.hears(viewer) == {"n1"}, said)
