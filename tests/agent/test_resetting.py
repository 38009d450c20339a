"""The order to reset a GPU: what must release it first, what is reported when something does not, what is restored."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from holdfast.agent.node.processes import SlurmNode, Stepd
from holdfast.agent.orders.orders import OrderResult, ReceivedOrder
from holdfast.agent.orders.resetting import gpu_users, reset_gpu
from holdfast.model.errors import Rejected
from holdfast_checks.probes.child import Children
from holdfast_checks.settings.gpu import GpuSettings

UUID = "GPU-00000000-0000-0000-0000-000000000001"


class FakeSlurm(SlurmNode):
    """scontrol's answer is text here; there is no step."""

    def __init__(self, state: str = "IDLE+DRAIN", steps: tuple[Stepd, ...] = ()) -> None:
        self._node = "n1"
        self.state = state
        self.reason = "holdfast[1kjmmb0rr000]: gpu.xid"
        self.steps = steps

    @property
    def node(self) -> str:
        return self._node

    def stepds(self, job_id: int | None = None) -> list[Stepd]:
        return list(self.steps)

    def show(self, what: str, name: str = "") -> str:
        return f"NodeName=n1 State={self.state} Reason={self.reason} [root@1]"


class FakeNvml:
    def __init__(self, *, lets_go: bool = True) -> None:
        self.lets_go = lets_go
        self.said: list[str] = []

    def let_go(self, within_s: float) -> bool:
        self.said.append("let_go")
        return self.lets_go

    def resume(self) -> None:
        self.said.append("resume")


class Bench:
    """A tool that records how it was called, in place of nvidia-smi and systemctl."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.dev = folder / "dev"
        self.dev.mkdir()
        self.nvml = FakeNvml()
        self.slurm = FakeSlurm()
        self.settings = GpuSettings(
            reset_command=(str(folder / "smi"), "--gpu-reset"), reset_stops=("dcgm", "exporter"), device_path=self.dev
        )
        self.tool("smi", "exit 0")
        self.tool("systemctl", "[ $1 != is-active ] || [ $3 = dcgm ]")
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def tool(self, name: str, body: str) -> None:
        file = self.folder / name
        file.write_text(f'#!/bin/sh\necho {name} "$@" >> {shlex.quote(str(self.calls))}\n{body}\n')
        file.chmod(0o755)

    def reset(self, **args: object) -> OrderResult:
        order = ReceivedOrder("o1", "reset_gpu", {"gpus": [UUID], "max_s": 10.0, **args}, "", "", 1e9)
        return reset_gpu(self.nvml, self.slurm, self.settings, Children())(order)

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_everybody_lets_go_and_comes_back(bench: Bench) -> None:
    assert bench.reset().ok
    changing = [call for call in bench.called() if "is-active" not in call]
    assert changing == ["systemctl stop dcgm", f"smi --gpu-reset -i {UUID}", "systemctl start dcgm"]
    assert bench.nvml.said == ["let_go", "resume"]


@pytest.mark.parametrize("state", ["ALLOCATED+DRAIN", "IDLE+COMPLETING+DRAIN", "MIXED"])
def test_a_job_on_the_node_is_left_alone(bench: Bench, state: str) -> None:
    bench.slurm.state = state
    with pytest.raises(Rejected):
        bench.reset()
    assert (bench.called(), bench.nvml.said) == ([], [])


@pytest.mark.parametrize(("state", "reason"), [("IDLE", "holdfast[1kjmmb0rr000]: x"), ("IDLE+DRAIN", "psu swap")])
def test_a_node_on_which_a_job_may_start_is_left_alone(bench: Bench, state: str, reason: str) -> None:
    """Whatever the order says: a job that starts while the GPUs are reset loses them."""
    bench.slurm.state, bench.slurm.reason = state, reason
    with pytest.raises(Rejected, match="not drained by Holdfast"):
        bench.reset()
    assert (bench.called(), bench.nvml.said) == ([], [])


def test_a_process_that_holds_a_gpu_is_named(bench: Bench) -> None:
    device = bench.dev / "nvidia3"
    device.touch()
    with device.open():
        done = bench.reset()
    assert not done.ok
    assert str(os.getpid()) in done.summary
    assert not [call for call in bench.called() if call.startswith("smi")]
    assert "systemctl start dcgm" in bench.called()


def test_only_device_files_of_gpus_count(tmp_path: Path) -> None:
    (tmp_path / "null").touch()
    with (tmp_path / "null").open():
        assert gpu_users(tmp_path) == []


def test_our_own_child_that_hangs_calls_for_a_reboot(bench: Bench) -> None:
    bench.nvml.lets_go = False
    done = bench.reset()
    assert (done.ok, "reboot" in done.summary) == (False, True)
    assert bench.nvml.said == ["let_go", "resume"]


def test_a_refusal_is_told_in_its_own_words(bench: Bench) -> None:
    bench.tool("smi", "echo 'Unable to reset this GPU'; exit 6")
    done = bench.reset()
    assert (done.ok, done.summary) == (False, "reset failed: Unable to reset this GPU (exit status 6)")


@pytest.mark.parametrize(("body", "ok"), [('[ -z "$2" ]', True), ("exit 6", False)])
def test_gpus_that_share_nvswitches_are_reset_as_a_whole(bench: Bench, body: str, ok: bool) -> None:
    (bench.dev / "nvidia-nvswitch0").touch()
    bench.tool("smi", body)
    assert bench.reset().ok is ok
    assert [call for call in bench.called() if call.startswith("smi")] == [
        f"smi --gpu-reset -i {UUID}",
        "smi --gpu-reset",
    ]


@pytest.mark.slow
def test_a_tool_that_hangs_or_is_not_there_is_a_failure(bench: Bench) -> None:
    bench.tool("smi", "exec sleep 60")
    assert "did not end" in bench.reset(max_s=0.3).summary
    (bench.folder / "smi").unlink()
    assert not bench.reset().ok


@pytest.mark.parametrize("gpus", [None, [], ["0"], ["GPU-1;reboot"], [3], ["GPU-a"] * 65])
def test_names_that_are_none_are_rejected(bench: Bench, gpus: object) -> None:
    with pytest.raises(Rejected):
        bench.reset(gpus=gpus)
    assert bench.called() == []
