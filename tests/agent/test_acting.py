"""Which checks act on a node: the site's lists come from the leading controller, and the node's own lists override them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.acting import Acting
from holdfast_checks.acting import Lists
from holdfast_checks.acting_file import FILE, kept
from holdfast_checks.cli import config
from support.agent_bench import FakeController, Folder, running

GIVEN: dict[str, Any] = {"act_on": ["gpu.nvlink"], "observe_only": ["gpu.ecc"]}
LEADER: dict[str, Any] = {"leader": True, "checks": GIVEN}


def test_the_controllers_lists_are_taken_over_and_kept(tmp_path: Path) -> None:
    changes: list[Lists] = []
    acting = Acting((None, ()), tmp_path, lambda: changes.append(acting.lists))
    assert acting.lists == Lists()
    acting.answered(LEADER)
    acting.answered(LEADER)
    given = Lists(("gpu.nvlink",), ("gpu.ecc",))
    assert (acting.lists, changes) == (given, [given])
    assert Acting((None, ()), tmp_path).lists == given, "also after a restart without a controller"
    acting.answered({"leader": True, "checks": {"act_on": [], "observe_only": []}})
    assert acting.lists == kept(tmp_path) == Lists()


@pytest.mark.parametrize(
    ("own", "here"),
    [
        ((None, ()), Lists(("gpu.nvlink",), ("gpu.ecc",))),
        (((), ()), Lists((), ("gpu.ecc",))),
        ((("efa.count",), ("gpu.xid",)), Lists(("efa.count",), ("gpu.ecc", "gpu.xid"))),
    ],
)
def test_what_the_node_says_itself_stands(
    tmp_path: Path, own: tuple[tuple[str, ...] | None, tuple[str, ...]], here: Lists
) -> None:
    acting = Acting(own, tmp_path)
    acting.answered(LEADER)
    assert acting.lists == here


@pytest.mark.parametrize(
    "answer",
    [
        {"leader": False, "checks": {"act_on": ["*"], "observe_only": []}},
        {"checks": {"act_on": ["*"], "observe_only": []}},
        {"leader": True},
        {"leader": True, "checks": None},
        {"leader": True, "checks": ["*"]},
        {"leader": True, "checks": {"act_on": "*", "observe_only": []}},
        {"leader": True, "checks": {"act_on": [7], "observe_only": []}},
        {"leader": True, "checks": {"act_on": ["*"]}},
        {"leader": True, "checks": {"act_on": ["x"] * 501, "observe_only": []}},
    ],
)
def test_a_standby_an_older_controller_and_nonsense_change_nothing(tmp_path: Path, answer: dict[str, Any]) -> None:
    acting = Acting((None, ()), tmp_path)
    acting.answered(LEADER)
    acting.answered(answer)
    assert acting.lists == Lists(("gpu.nvlink",), ("gpu.ecc",))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"act_on": 1}', "[" * 100_000])
def test_a_file_that_cannot_be_read_leaves_new_checks_observing(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert Acting((None, ()), tmp_path).lists == Lists()


def test_a_run_by_hand_weighs_as_the_agent_does(tmp_path: Path) -> None:
    Acting((None, ()), tmp_path).answered(LEADER)
    agent = tmp_path / "agent.toml"
    agent.write_text('state_dir = "."\nobserve_only = ["gpu.xid"]\n')
    assert config.read(agent).acting == Lists(("gpu.nvlink",), ("gpu.ecc", "gpu.xid"))


@pytest.mark.slow
def test_an_agent_says_what_acts(folder: Folder, controller: FakeController) -> None:
    controller.heartbeat_answer = LEADER
    with running(folder):
        controller.wait(lambda: bool(controller.heartbeats) and controller.heartbeats[-1]["act_on"] == ["gpu.nvlink"])
    assert controller.heartbeats[0]["act_on"] == []
    assert json.loads((folder.path / "state" / FILE).read_text()) == GIVEN
    with running(folder):
        count = len(controller.heartbeats)
        controller.wait(lambda: len(controller.heartbeats) > count)
    assert controller.heartbeats[count]["observe_only"] == ["gpu.ecc"], "from its first heartbeat on"
