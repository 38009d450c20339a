"""pyslurm's attributes to nouns; the values are those that pyslurm 24.11.0 gave on Slurm 24.11.5."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.model.errors import Rejected
from holdfast.slurm import pyslurm_records
from holdfast.slurm.pyslurm_records import JOB_ATTRIBUTES, NODE_ATTRIBUTES, gpu_indices, shared_indices
from holdfast.slurm.pyslurm_twin import fits

NODE: dict[str, Any] = dict.fromkeys((*NODE_ATTRIBUTES, "reason_user")) | {"name": "n1", "state": "IDLE"}
NOW = datetime(2026, 11, 20, tzinfo=UTC)
JOB: dict[str, Any] = dict.fromkeys(JOB_ATTRIBUTES) | {
    "id": 7,
    "submit_time": 1795000000,
    "user_id": 1000,
    "user_name": "ada",
    "state": "RUNNING",
    "layout": {},
}


@pytest.mark.parametrize(
    ("state", "base", "flags"),
    [
        ("IDLE", "IDLE", set()),
        ("MIXED+DRAIN", "MIXED", {"DRAIN"}),
        ("DOWN+DRAIN+NOT_RESPONDING", "DOWN", {"DRAIN", "NOT_RESPONDING"}),
        ("DOWN*+DRAIN", "DOWN", {"DRAIN", "NOT_RESPONDING"}),
        (None, "UNKNOWN", set()),
    ],
)
def test_node_states(state: str | None, base: str, flags: set[str]) -> None:
    node = pyslurm_records.node({**NODE, "state": state})
    assert (node.base_state, set(node.flags)) == (base, flags)


@pytest.mark.parametrize(
    ("configured", "text", "count"),
    [
        ({}, "", 0),
        (None, "", 0),
        ({"gpu": 8}, "gpu:8", 8),
        ({"gpu:h100": 4, "gpu:a100": 2, "shard": 64}, "gpu:h100:4,gpu:a100:2,shard:64", 6),
    ],
)
def test_gpus_of_a_node(configured: dict[str, int] | None, text: str, count: int) -> None:
    node = pyslurm_records.node({**NODE, "configured_gres": configured})
    assert (node.gres, node.gpu_count) == (text, count)


def test_a_reason_with_its_author() -> None:
    said = {"reason": "a b", "reason_user": "root", "reason_time": 1795000000}
    node = pyslurm_records.node({**NODE, **said})
    assert (node.reason, node.reason_user) == ("a b", "root")
    assert node.reason_time == datetime(2026, 11, 18, 11, 6, 40, tzinfo=UTC)
    unsaid = pyslurm_records.node({**NODE, **said, "reason": None})
    assert (unsaid.reason, unsaid.reason_user, unsaid.reason_time) == ("", "", None)


@pytest.mark.parametrize(
    ("layout", "held"),
    [
        ({}, {}),
        ({"n1": {}}, {}),
        (
            {"n1": {"gpu": {"count": 2, "indexes": "0-1"}}, "n2": {"gpu": {"count": 3, "indexes": "0,2-3"}}},
            {"n1": {0, 1}, "n2": {0, 2, 3}},
        ),
        ({"n1": {"gpu:a": {"count": 1, "indexes": "0"}, "gpu:b": {"count": 1, "indexes": "4"}}}, {"n1": {0, 4}}),
        ({"n1": {"gpu": 8}}, {}),
        ({"n1": {"shard": {"count": 1, "indexes": "0"}}}, {}),
        ({"n1": {"gpu": {"count": 2, "indexes": "zero"}}}, {}),
    ],
)
def test_gpus_that_a_job_holds(layout: dict[str, dict[str, Any]], held: dict[str, set[int]]) -> None:
    assert gpu_indices(layout) == held


def test_shares_that_a_job_holds() -> None:
    layout = {"n1": {"shard:tesla": {"count": 3, "indexes": "1-2"}, "gpu": {"count": 1, "indexes": "0"}, "mps": 5}}
    assert shared_indices(layout) == {"n1": {"shard": {1, 2}}}
    assert shared_indices({"n1": {"shard": {"count": 0, "indexes": ""}}}) == {}


@pytest.mark.parametrize(
    ("attribute", "value", "field", "wanted"),
    [
        ("array_task_id", 3, "array_task_id", 3),
        ("array_id", None, "array_task_id", None),
        ("array_id", 7, "array_task_id", 0),
        ("array_id", 7, "array_job_id", 7),
        ("array_tasks_waiting", "2-4,9", "tasks", (2, 3, 4, 9)),
        ("array_tasks_parallel", 2, "array_throttle", 2),
        ("array_tasks_parallel", None, "array_throttle", None),
        ("heterogeneous_id", 5, "het_leader", 5),
        ("heterogeneous_id", None, "het_leader", None),
        ("state_reason", "None", "reason", ""),
        ("state_reason", "Nodes required are DOWN", "reason", "Nodes_required_are_DOWN"),
        ("time_limit", 90, "time_limit_s", 5400),
        ("time_limit", None, "time_limit_s", None),
        ("priority", "UNLIMITED", "priority", 4294967295),
        ("priority", 0, "priority", 0),
        ("resource_sharing", "NO", "exclusive", True),
        ("resource_sharing", "OK", "exclusive", False),
        ("exit_code", 3, "exit_code", "3:0"),
        ("exit_code_signal", 9, "exit_code", "0:9"),
        ("name", "a\nb", "name", "a b"),
        ("allocated_nodes", "n[1-2,4]", "nodes", ("n1", "n2", "n4")),
        ("is_requeueable", True, "requeue", True),
        ("requeue_count", 2, "restarts", 2),
    ],
)
def test_fields_of_a_job(attribute: str, value: object, field: str, wanted: object) -> None:
    assert getattr(pyslurm_records.job({**JOB, attribute: value}, "c", NOW), field) == wanted


@pytest.mark.parametrize(
    ("limit_min", "end", "wanted"),
    [
        (90, NOW + timedelta(hours=1), NOW + timedelta(hours=1)),
        (None, NOW + timedelta(days=365), None),
        (None, NOW - timedelta(hours=1), NOW - timedelta(hours=1)),
    ],
)
def test_an_end_that_nobody_set_is_not_known(limit_min: int | None, end: datetime, wanted: datetime | None) -> None:
    found = {**JOB, "time_limit": limit_min, "end_time": int(end.timestamp())}
    assert pyslurm_records.job(found, "c", NOW).end_time == wanted


@pytest.mark.parametrize(
    ("nodes", "layout", "doubt"),
    [
        (None, {}, False),
        ("n[1-2]", {"n1": {}, "n2": {"gpu": {"count": 1, "indexes": "0"}}}, False),
        ("n1", {"n1": {}, "n2": {}}, False),
        ("n[1-2]", {"n1": {}}, True),
        ("n1", {}, True),
    ],
)
def test_a_job_whose_layout_is_missing_is_in_doubt(nodes: str | None, layout: dict[str, Any], doubt: bool) -> None:
    assert pyslurm_records.job_in_doubt({**JOB, "allocated_nodes": nodes, "layout": layout}) is doubt


@pytest.mark.parametrize(("code", "doubt"), [(None, False), (0, False), (15, True), (1, True)])
def test_an_exit_code_may_have_lost_128(code: int | None, doubt: bool) -> None:
    assert pyslurm_records.job_in_doubt({**JOB, "exit_code": code}) is doubt


def test_waiting_tasks_of_an_array_are_no_task() -> None:
    waiting = {**JOB, "array_id": 7, "array_tasks_waiting": "1-5"}
    assert pyslurm_records.job(waiting, "c", NOW).array_task_id is None


@pytest.mark.parametrize("missing", [{"id": 0}, {"submit_time": None}])
def test_a_job_without_identity_is_refused(missing: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        pyslurm_records.job({**JOB, **missing}, "c", NOW)


def test_a_node_without_a_name_is_refused() -> None:
    with pytest.raises(Rejected):
        pyslurm_records.node({**NODE, "name": None})


@pytest.mark.parametrize(
    ("pyslurm", "slurm", "same"),
    [
        ("24.11.0", "24.11.5", True),
        ("24.5.0", "24.05.3", True),
        ("25.11.2", "24.11.5", False),
        ("24.11.0", "25.11.0", False),
        ("24.1.1", "24.11.5", False),
        ("22.5.0", "22.05.8", False),
        ("unknown", "unknown", False),
    ],
)
def test_which_release_a_pyslurm_is_for(pyslurm: str, slurm: str, same: bool) -> None:
    assert fits(pyslurm, slurm) is same


@pytest.mark.parametrize(
    ("state", "doubt"), [("MIXED+DRAIN", True), ("ALLOCATED", False), ("DOWN+DRAIN", False), (None, False)]
)
def test_a_mixed_node_may_be_down(state: str | None, doubt: bool) -> None:
    assert pyslurm_records.node_in_doubt({**NODE, "state": state}) is doubt


def test_what_a_user_wrote_hides_no_job() -> None:
    said = {"required_nodes": "n1,", "excluded_nodes": "[n1", "eligible_time": 1001795459894}
    job = pyslurm_records.job({**JOB, **said}, "c", NOW)
    assert (job.required_nodes, job.excluded_nodes, job.unreadable) == (("n1",), (), "ExcNodeList=[n1")
    assert job.eligible_time is not None
    assert job.eligible_time.year == 9999
