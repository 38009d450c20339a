"""The group of a node, the summary line, and the natural order."""

from __future__ import annotations

import pytest

from holdfast.model.incidents.fleet import fleet_text, group_of, natural

GROUPS = [
    (("IDLE",), (), ("heard",), False, "in_service"),
    (("IDLE",), ("watching",), ("heard",), False, "in_service"),
    (("IDLE",), (), ("silent",), False, "silent"),
    (("IDLE",), (), ("silent", "heard"), False, "in_service"),
    (("IDLE",), (), ("unknown",), False, "in_service"),
    (("IDLE", "POWERED_DOWN"), (), ("silent",), False, "in_service"),
    (("MIXED", "DRAIN"), (), ("heard",), True, "draining"),
    (("MIXED", "DRAIN"), ("contained",), ("heard",), True, "draining"),
    (("IDLE", "DRAIN"), ("contained",), ("heard",), False, "in_repair"),
    (("IDLE", "DRAIN"), ("watching",), ("heard",), False, "out"),
    (("DOWN",), (), ("silent",), False, "out"),
    (("DOWN", "DRAIN"), ("repairing",), ("silent",), True, "in_repair"),
    (("IDLE", "MAINTENANCE"), (), ("heard",), False, "out"),
    (("UNKNOWN",), (), ("heard",), False, "unknown"),
    ((), ("open",), ("heard",), False, "unknown"),
]


@pytest.mark.parametrize(("slurm", "incidents", "agents", "busy", "group"), GROUPS)
def test_the_group_of_a_node(
    slurm: tuple[str, ...], incidents: tuple[str, ...], agents: tuple[str, ...], busy: bool, group: str
) -> None:
    assert group_of(slurm, incidents, agents, busy=busy) == group


def test_the_summary_line() -> None:
    counts = {"in_service": 4090, "silent": 1, "draining": 3, "in_repair": 2, "cloudy": 4}
    assert fleet_text(counts) == "4,100 nodes: 4,090 in service, 3 draining, 2 in repair, 1 silent, 4 cloudy"
    assert fleet_text({"out": 1}) == "1 node: 0 in service, 1 out (not by Holdfast)"
    assert fleet_text({}) == "0 nodes"


def test_the_natural_order() -> None:
    assert sorted(["n10", "n2", "gpu-1-10", "gpu-1-9", "n", "n2a"], key=natural) == [
        "gpu-1-9",
        "gpu-1-10",
        "n",
        "n2",
        "n2a",
        "n10",
    ]
