"""Which checks act on a node: the site's lists come from the leading controller, and the node's own lists override them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.acting import Acting
from holdfast.agent.sources.checks import settings_of
from holdfast.api.agents.ingest import given_checks
from holdfast.config.agent import AgentConfig
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import Node
from holdfast_checks.acting import CheckPolicy, Lists
from holdfast_checks.acting_file import FILE, kept
from holdfast_checks.cli import config as by_hand
from holdfast_checks.settings.thresholds import with_thresholds
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
    assert acting.lists == kept(tmp_path).policy.lists == Lists()


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


POLICY = CheckPolicy(Lists(("gpu.nvlink",), ("gpu.ecc",)), {"gpu.temperature_margin_c": 5})


def answer(policy: CheckPolicy, has: str, node: Node | None) -> dict[str, Any]:
    """What the leading controller answers to a heartbeat that names this version."""
    given = given_checks("n1", node, Policy(checks=policy), has)
    return {"leader": True} if given is None else {"leader": True, "checks": given}


NODE = Node("n1", "IDLE", frozenset())


def test_a_policy_is_given_once_and_outlives_restarts_and_a_controller_that_is_away(tmp_path: Path) -> None:
    changes: list[str] = []
    acting = Acting((None, ()), tmp_path, lambda: changes.append(acting.version))
    assert acting.version == ""
    acting.answered(answer(POLICY, acting.version, NODE))
    assert (acting.version, acting.lists, dict(acting.thresholds)) == (POLICY.version, POLICY.lists, POLICY.thresholds)
    assert answer(POLICY, acting.version, NODE) == {"leader": True}, "nothing is sent again"
    acting.answered(answer(POLICY, acting.version, NODE))
    again = Acting((None, ()), tmp_path)
    assert (again.version, dict(again.thresholds)) == (POLICY.version, POLICY.thresholds), "no controller was asked"
    other = replace(POLICY, thresholds={"gpu.temperature_margin_c": 4})
    acting.answered(answer(other, acting.version, None))
    assert acting.version == POLICY.version, "a node that Slurm does not show keeps what it has"
    acting.answered(answer(other, acting.version, NODE))
    assert changes == [POLICY.version, other.version]


def test_a_node_without_a_policy_gets_one_before_slurm_shows_it(tmp_path: Path) -> None:
    acting = Acting((None, ()), tmp_path)
    acting.answered(answer(POLICY, acting.version, None))
    assert acting.version == POLICY.version


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"thresholds": {"gpu.temperature_margin_c": 500}}, "500 is not between 0 and 50"),
        ({"thresholds": {"host.load_per_cpu": "rm -rf"}}, "expected a number"),
        ({"thresholds": []}, "checks.thresholds: must be an object"),
        ({"observe_only": "gpu.ecc"}, "must be lists of ids"),
        ({"checks_off": "gpu.ecc"}, "checks.checks_off: must be a list of ids"),
        ({"checks_off": [7]}, "checks.checks_off: must be a list of ids"),
    ],
)
def test_a_policy_that_is_wrong_anywhere_is_refused_as_a_whole(tmp_path: Path, wrong: dict[str, Any], why: str) -> None:
    acting = Acting((None, ()), tmp_path)
    acting.answered(answer(POLICY, "", NODE))
    newer = replace(POLICY, lists=Lists(("*",)))
    acting.answered({"leader": True, "checks": {**newer.document(), **wrong}})
    assert why in acting.refused
    assert "\n" not in acting.refused
    assert (acting.version, acting.lists, kept(tmp_path).version) == (POLICY.version, POLICY.lists, POLICY.version)
    acting.answered(answer(newer, acting.version, NODE))
    assert (acting.refused, acting.lists) == ("", newer.lists)


def test_a_command_or_a_path_from_a_controller_changes_nothing(tmp_path: Path) -> None:
    config, acting = AgentConfig(), Acting((None, ()), tmp_path)
    given = {"gpu.reset_command": ["/bin/sh", "-c", "x"], "host.munge_key": "/etc/shadow", "custom.x.command": ["x"]}
    acting.answered({"leader": True, "checks": {**POLICY.document(), "thresholds": given, "custom": given}})
    assert acting.version == POLICY.version
    assert with_thresholds(settings_of(config), acting.thresholds) == settings_of(config)


def test_an_older_controllers_lists_are_its_whole_policy(tmp_path: Path) -> None:
    acting = Acting((None, ()), tmp_path)
    acting.answered(answer(POLICY, "", NODE))
    acting.answered(LEADER)
    assert (acting.version, dict(acting.thresholds), acting.lists) == ("", {}, Lists(("gpu.nvlink",), ("gpu.ecc",)))


def test_an_older_agent_is_given_the_lists_each_time() -> None:
    given = given_checks("n1", NODE, Policy(checks=POLICY), None)
    assert given == {"act_on": ("gpu.nvlink",), "observe_only": ("gpu.ecc",)}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"act_on": 1}', "[" * 100_000])
def test_a_file_that_cannot_be_read_leaves_new_checks_observing(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert Acting((None, ()), tmp_path).lists == Lists()


def test_a_run_by_hand_weighs_as_the_agent_does(tmp_path: Path) -> None:
    Acting((None, ()), tmp_path).answered(LEADER)
    agent = tmp_path / "agent.toml"
    agent.write_text('state_dir = "."\nobserve_only = ["gpu.xid"]\n')
    assert by_hand.read(agent).acting == Lists(("gpu.nvlink",), ("gpu.ecc", "gpu.xid"))


def test_what_the_site_switches_off_is_kept_and_holds_for_a_run_by_hand(tmp_path: Path) -> None:
    acting = Acting((None, ()), tmp_path)
    acting.answered(answer(replace(POLICY, off=("host.disk", "of.a.newer.release")), acting.version, NODE))
    assert acting.off == Acting((None, ()), tmp_path).off == {"host.disk", "of.a.newer.release"}
    agent = tmp_path / "agent.toml"
    agent.write_text('state_dir = "."\ndisabled_checks = ["gpu.ecc"]\n')
    assert by_hand.read(agent).off == ("gpu.ecc", "host.disk", "of.a.newer.release")
    acting.answered(answer(POLICY, acting.version, NODE))
    assert acting.off == frozenset()
    acting.answered({"leader": True, "checks": GIVEN})
    assert acting.off == frozenset(), "of an older controller"


@pytest.mark.slow
def test_an_agent_switches_a_check_off_and_on_again_without_a_restart(
    folder: Folder, controller: FakeController
) -> None:
    low = CheckPolicy(thresholds={"host.memory_available_mib": 1e9})
    folder.write_config(f'controllers = ["{controller.url}"]\nintervals = {{ "host.memory" = 0.5 }}')
    controller.heartbeat_answer = {"leader": True, "checks": low.document()}

    def last(key: str) -> Any:
        return controller.heartbeats[-1].get(key) if controller.heartbeats else None

    with running(folder):
        controller.wait(lambda: "host.memory" in (last("failing") or ()))
        controller.heartbeat_answer = {"leader": True, "checks": replace(low, off=("host.memory",)).document()}
        controller.wait(lambda: last("checks_off") == ["host.memory"] and "host.memory" not in last("failing"))
        assert not [item for item in controller.items("clear") if item["check"] == "host.memory"], (
            "nothing was seen right"
        )
        controller.heartbeat_answer = {"leader": True, "checks": CheckPolicy().document()}
        controller.wait(lambda: any(item["check"] == "host.memory" for item in controller.items("clear")))
    assert last("checks_off") == []


@pytest.mark.slow
def test_an_agent_says_what_acts(folder: Folder, controller: FakeController) -> None:
    controller.heartbeat_answer = LEADER
    with running(folder):
        controller.wait(lambda: bool(controller.heartbeats) and controller.heartbeats[-1]["act_on"] == ["gpu.nvlink"])
    assert controller.heartbeats[0]["act_on"] == []
    assert json.loads((folder.path / "state" / FILE).read_text()).items() >= GIVEN.items()
    with running(folder):
        count = len(controller.heartbeats)
        controller.wait(lambda: len(controller.heartbeats) > count)
    assert controller.heartbeats[count]["observe_only"] == ["gpu.ecc"], "from its first heartbeat on"


@pytest.mark.slow
def test_an_agent_takes_thresholds_without_a_restart_and_says_what_it_refuses(
    folder: Folder, controller: FakeController
) -> None:
    strict = CheckPolicy(thresholds={"host.memory_available_mib": 1e9})
    folder.write_config(f'controllers = ["{controller.url}"]\nintervals = {{ "host.memory" = 0.5 }}')

    def last(key: str) -> str:
        return str(controller.heartbeats[-1][key]) if controller.heartbeats else ""

    def low() -> list[Any]:
        return [item for item in controller.items("finding") if item["check"] == "host.memory"]

    with running(folder):
        controller.wait(lambda: len(controller.heartbeats) > 2)
        assert low() == []
        controller.heartbeat_answer = {"leader": True, "checks": strict.document()}
        controller.wait(lambda: last("checks_version") == strict.version and bool(low()))
        wrong = {**CheckPolicy().document(), "thresholds": {"host.memory_available_mib": -1}}
        controller.heartbeat_answer = {"leader": True, "checks": wrong}
        controller.wait(lambda: "memory_available_mib: -1" in last("checks_refused"))
        assert last("checks_version") == strict.version
