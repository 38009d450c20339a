"""docs/aws-consequences.md names the test of each consequence: that it exists, and what no other test shows."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.actions.action import SetDown
from holdfast.model.ids import slurm_reason
from holdfast.model.incidents.incident import IncidentState
from holdfast.providers.hyperpod.answers import PodNode, read_summary
from support.simulated import Site

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "aws-consequences.md"
HYPERPODS_ORDERS = ("Action:Replace", "Action:Reboot")
"""Whole reasons that HyperPod obeys (docs of SageMaker HyperPod, resiliency on Slurm)."""


# The page


def rows() -> Iterator[tuple[str, list[str], list[str]]]:
    """What follows, files, tests."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 3 and "`" in cells[1]:
            yield cells[0], re.findall(r"`([^`]+)`", cells[1]), re.findall(r"`([^`]+)`", cells[2])


ROWS = list(rows())


@functools.cache
def functions(file: Path) -> frozenset[str]:
    module = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("test", sorted({test for _, _, tests in ROWS for test in tests}))
def test_every_named_test_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert name.startswith("test_")
    assert name in functions(ROOT / "tests" / file)


@pytest.mark.parametrize("file", sorted({file for _, files, _ in ROWS for file in files}))
def test_every_named_file_is_there(file: str) -> None:
    assert (ROOT / "daemon" / "holdfast" / file).is_file()


def test_every_consequence_has_a_test() -> None:
    assert {int(m[1]) for what, _, _ in ROWS if (m := re.match(r"(\d+)\. ", what))} == set(range(1, 11))
    assert len(ROWS) >= 50
    assert all(files and tests for _, files, tests in ROWS)


# What is shown here alone


@pytest.mark.parametrize("text", [*HYPERPODS_ORDERS, "\nAction:Replace", "]: Action:Reboot", ""])
def test_no_reason_of_ours_is_an_order_to_hyperpod(text: str) -> None:
    reason = slurm_reason("1kjmmb3pg001", text)
    assert reason not in HYPERPODS_ORDERS
    assert reason.startswith("holdfast[")
    assert "\n" not in reason


def test_a_completing_job_keeps_its_machine() -> None:
    site = Site(3, spares=("n3",))
    site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    site.machine("n1").kill_helps = False
    site.slurm.nodes["n1"].stuck = True
    ended: list[str] = []
    site.provider.on_terminate = ended.append
    site.fault("n1")
    while not site.slurm.nodes["n1"].down:
        site.run(1)
        assert ended == []
        assert site.incident("n1").state is IncidentState.CONTAINED
    assert any(isinstance(i.action, SetDown) for i in site.store.intents())
    site.run(300, step_s=5)
    assert ended == ["i-0001"]


@pytest.mark.parametrize("status", ["Running", "Pending", "ShuttingDown", "Failure"])
def test_a_sticky_message_decides_nothing(status: str) -> None:
    def shown(message: str) -> PodNode:
        told = {"Status": status, "Message": message}
        return read_summary({"InstanceId": "i-1", "InstanceGroupName": "gpu", "InstanceStatus": told})

    stale = shown("Lifecycle scripts did not run successfully.")
    assert stale.as_instance() == shown("").as_instance()


def test_a_node_that_hyperpod_patches_is_its_own() -> None:
    """AutoPatchConfig drains nodes on its own: a fault on one is recorded, its job recovered, and the node left to HyperPod."""
    site = Site(3)
    site.slurm.operator_drains("n1", "HyperPod patching", user="slurm")
    site.fault("n1")
    site.run(300, step_s=5)
    assert site.slurm.nodes["n1"].reason == "HyperPod patching"
    assert site.incident("n1").state is IncidentState.AWAITING_HUMAN
    assert (site.provider.tokens, site.provider.terminated) == ({}, {})


def test_each_machine_is_ended_by_a_call_of_its_own() -> None:
    """No call of ours names two machines, so that an id that EC2 has forgotten takes no other with it."""
    ending = {"terminate_instances", "stop_instances", "start_instances", "reboot_instances"}
    found = 0
    for file in sorted((ROOT / "daemon" / "holdfast" / "providers").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ending:
                if any(keyword.arg == "DryRun" for keyword in node.keywords):
                    continue
                ids = next((k.value for k in node.keywords if k.arg == "InstanceIds"), None)
                assert isinstance(ids, ast.List), f"{file.name}:{node.lineno}"
                assert len(ids.elts) == 1, f"{file.name}:{node.lineno}"
                assert not isinstance(ids.elts[0], ast.Starred), f"{file.name}:{node.lineno}"
                found += 1
    assert found >= 4
