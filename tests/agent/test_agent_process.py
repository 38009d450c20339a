"""The real agent in a separate process, against a controller over HTTP."""

from __future__ import annotations

import json
import signal
import tarfile

import pytest

from holdfast.agent.sending.memory import AgentMemory
from holdfast.model.actions.action import Verb
from support.agent_bench import PCI, XID, FakeController, Folder, running

pytestmark = pytest.mark.slow


def know_gpu(folder: Folder, boot_id: str = "boot-1") -> None:
    """As if an earlier process of this boot had seen the GPU."""
    gpu = {"uuid": "GPU-1", "minor": 3, "pci": PCI, "index": 0, "serial": "42"}
    memory = AgentMemory(folder.path / "state")
    memory.set("inventory", json.dumps({"boot_id": boot_id, "driver_version": "535", "gpus": [gpu]}))
    memory.close()


def test_an_xid_in_the_kernel_log_is_a_report_with_the_gpu_the_age_and_the_token(
    folder: Folder, controller: FakeController
) -> None:
    know_gpu(folder)
    with running(folder) as process:
        controller.wait(lambda: len(controller.heartbeats) > 0)
        logged_s = folder.log(XID)
        controller.wait(lambda: bool(controller.items("finding")))
        (found,) = controller.items("finding")
        assert (found["check"], found["code"], found["component"]) == ("gpu.xid", "79", "GPU-1")
        assert (found["gpu_minor"], found["pci"], found["severity"]) == (3, PCI, "fatal")
        (report,) = [report for report in controller.reports if found in report["items"]]
        assert 0 < found["age_s"] <= report["received_s"] - logged_s
        assert "history" not in found
        assert controller.tokens == {"Bearer secret"}
        (heartbeat, *_) = controller.heartbeats
        assert (heartbeat["node"], heartbeat["instance_id"], heartbeat["boot_id"]) == ("n1", "i-0abc", "boot-1")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert "Traceback" not in folder.agent_log


def test_a_first_start_records_history_and_forged_lines_count_for_nothing(
    folder: Folder, controller: FakeController
) -> None:
    know_gpu(folder)
    folder.log(XID)
    with running(folder):
        controller.wait(lambda: bool(controller.items("finding")))
        folder.log(XID.replace("79", "48"), facility=1)
        folder.log("oops " + XID.replace("79", "48"))
        folder.log(XID.replace("3b:00", "ff:00"))
        folder.log(XID.replace("79", "95"))
        controller.wait(lambda: len(controller.items("finding")) > 1)
    found = {(item["code"], item.get("history", False)) for item in controller.items("finding")}
    assert found == {("79", True), ("95", False)}


@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])
def test_after_kill_9_a_line_written_meanwhile_is_live_and_one_of_another_boot_is_history(
    folder: Folder, controller: FakeController, boot_id: str
) -> None:
    know_gpu(folder)
    with running(folder):
        controller.wait(lambda: len(controller.heartbeats) > 0)
        folder.log(XID)
        controller.wait(lambda: bool(controller.items("finding")))
    (folder.path / "boot_id").write_text(boot_id)
    know_gpu(folder, boot_id)
    folder.log(XID.replace("79", "95"))
    with running(folder):
        controller.wait(lambda: any(item["code"] == "95" for item in controller.items("finding")))
    later = [item for item in controller.items("finding") if item["code"] == "95"]
    assert [item.get("history", False) for item in later] == [boot_id == "boot-2"]
    assert len([i for i in controller.items("finding") if i["code"] == "79"]) == (2 if boot_id == "boot-2" else 1)


def test_a_controller_away_and_the_agent_killed_meanwhile_lose_nothing_and_double_nothing(
    folder: Folder, controller: FakeController
) -> None:
    know_gpu(folder)
    codes = ["48", "62", "74", "79", "95", "109", "119"]
    controller.answer = lambda _report: (503, {"error": {"code": "unavailable", "message": "no database"}})
    with running(folder):
        controller.wait(lambda: len(controller.heartbeats) > 0)
        for code in codes[:4]:
            folder.log(XID.replace("79", code, 1))
        controller.wait(lambda: any(report["items"] for report in controller.reports))
    controller.lose_answers = 1
    controller.answer = lambda _report: (200, {})
    for code in codes[4:]:
        folder.log(XID.replace("79", code, 1))
    with running(folder):
        controller.wait(lambda: len(controller.items("finding")) >= len(codes))
    found = [item["code"] for item in controller.items("finding")]
    assert sorted(found) == sorted(codes)
    assert not any(item.get("history") for item in controller.items("finding"))


def test_a_second_agent_on_the_same_folder_and_bad_settings_end_with_one_line(
    folder: Folder, controller: FakeController
) -> None:
    with running(folder):
        controller.wait(lambda: len(controller.heartbeats) > 0)
        second = folder.start()
        assert second.wait(30) == 78
    assert "holdfast agent: another agent uses state_dir" in folder.agent_log
    folder.write_config('hartbeat_s = 1\ncontrollers = ["http://127.0.0.1:1"]')
    assert folder.start().wait(30) == 78
    assert "unknown key 'hartbeat_s'; did you mean 'heartbeat_s'?" in folder.agent_log
    assert "Traceback" not in folder.agent_log


def test_an_order_over_the_wire_is_answered_through_the_outbox(folder: Folder, controller: FakeController) -> None:
    with running(folder):
        controller.give(
            {"id": "a/1", "verb": "collect_evidence", "args": {"max_s": 2}, "expires_s": 30, "incident": "0h3k"}
        )
        controller.wait(lambda: bool(controller.items("order_outcome")))
    (outcome,) = controller.items("order_outcome")
    assert (outcome["order_id"], outcome["ok"]) == ("a/1", True)
    with tarfile.open(outcome["detail"]["path"]) as bundle:
        names = {name.removeprefix("0h3k/") for name in bundle.getnames()}
    assert {"kernel.log", "pstore.json", "proc/meminfo", "nvml.json", "inventory.json", "missing.json"} <= names


def test_each_verb_has_a_handler_and_another_releases_verb_is_refused(
    folder: Folder, controller: FakeController
) -> None:
    """The refusal lists what the agent knows: every verb, and nothing else."""
    with running(folder):
        controller.give({"id": "a/1", "verb": "paint_node", "args": {}, "expires_s": 30})
        controller.wait(lambda: bool(controller.items("order_outcome")))
    (outcome,) = controller.items("order_outcome")
    known = ", ".join(sorted(verb.value for verb in Verb))
    assert (outcome["ok"], outcome["summary"]) == (
        False,
        f"refused: unsupported verb 'paint_node'; this agent knows {known}",
    )
