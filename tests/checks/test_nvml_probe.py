"""The NVML probe against the emulated library: snapshots, events, hangs, lost GPUs, broken children."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.practice.nvml import state as nvml_state
from holdfast.practice.nvml.build import STATE_ENV
from holdfast_checks.probes import process_files
from holdfast_checks.probes.nvml import NvmlEvent, NvmlOutcome, NvmlProbe
from holdfast_checks.snapshot import NvmlFailure, NvmlReading, Snapshot
from support.emulated_nvml import library

pytestmark = pytest.mark.slow

MakeProbe = Callable[..., NvmlProbe]


@pytest.fixture
def state_path(tmp_path: Path) -> Path:
    path = tmp_path / "nvml.ini"
    nvml_state.write(path, nvml_state.default_state("n1", 4, 1, minors=(2, 0, 3, 1)))
    return path


@pytest.fixture
def make_probe(state_path: Path) -> Iterator[MakeProbe]:
    probes = []

    def make(deadline_s: float = 10.0, **options: object) -> NvmlProbe:
        probe = NvmlProbe(deadline_s, library(), {STATE_ENV: str(state_path)}, **options)  # type: ignore[arg-type]
        probes.append(probe)
        return probe

    yield make
    for probe in probes:
        probe.close()


def wait_for(probe: NvmlProbe, wanted: Callable[[NvmlOutcome], bool], timeout_s: float = 10.0) -> NvmlOutcome:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        due = probe.next_deadline()
        wait_s = min(until, until if due is None else due) - time.monotonic()
        ready = select.select([probe], [], [], max(0.0, wait_s))[0]
        for outcome in probe.on_readable() if ready else probe.tick():
            if wanted(outcome):
                return outcome
    raise AssertionError("it did not happen")


def good(probe: NvmlProbe) -> Snapshot:
    answer = probe.request()
    assert isinstance(answer, Snapshot), answer
    return answer


def bad(probe: NvmlProbe) -> NvmlFailure:
    answer = probe.request()
    assert isinstance(answer, NvmlFailure), answer
    return answer


def alive(pid: int) -> bool:
    stat = process_files.stat(pid)
    return stat is not None and not stat.ended


def test_snapshot(make_probe: MakeProbe, state_path: Path) -> None:
    nvml_state.set_fail(state_path, "field230", 3)
    nvml_state.set_remap(state_path, 1, pending=True, uncorrected=2)
    nvml_state.set_throttle(state_path, 2, reasons=0x40, temperature_c=90)
    probe = make_probe()
    snapshot = good(probe)
    wanted = nvml_state.read(state_path)
    assert (snapshot.driver_version, snapshot.count) == ("580.95.05", 4)
    assert [(gpu.ref.uuid, gpu.ref.minor, gpu.ref.index, gpu.ref.serial) for gpu in snapshot.gpus] == [
        (gpu.uuid, gpu.minor, index, gpu.serial) for index, gpu in enumerate(wanted.gpus)
    ]
    assert snapshot.gpus[1].ref.pci == "0000:10:00.0"
    assert snapshot.gpus[1].remap_pending == NvmlReading(1)
    assert snapshot.gpus[1].remap_uncorrected == NvmlReading(2)
    assert snapshot.gpus[2].clock_event_reasons == NvmlReading(0x40)
    assert snapshot.gpus[2].temperature_c == NvmlReading(90)
    assert snapshot.gpus[0].recovery_action == NvmlReading(unsupported=True)
    pid = probe.pid
    nvml_state.set_fail(state_path, "field230", None)
    nvml_state.set_recovery_action(state_path, 0, 2)
    assert good(probe).gpus[0].recovery_action == NvmlReading(2)
    assert probe.pid == pid


def test_an_error_is_kept_apart_from_what_is_unsupported(make_probe: MakeProbe, state_path: Path) -> None:
    nvml_state.set_fail(state_path, "nvmlDeviceGetRemappedRows", 999)
    nvml_state.set_fail(state_path, "nvmlDeviceGetTotalEccErrors", 3)
    nvml_state.set_fail(state_path, "nvmlDeviceGetCurrentClocksEventReasons", 13)
    nvml_state.set_throttle(state_path, 0, reasons=0x8)
    gpu = good(make_probe()).gpus[0]
    assert gpu.remap_pending == NvmlReading(error="Unknown Error (999)")
    assert gpu.ecc_uncorrected_volatile == NvmlReading(unsupported=True)
    assert gpu.clock_event_reasons == NvmlReading(0x8)  # by the name of older drivers


def test_a_lost_gpu_keeps_its_name(make_probe: MakeProbe, state_path: Path) -> None:
    probe = make_probe()
    before = good(probe)
    nvml_state.lose_gpu(state_path, 2)
    after = good(probe)
    assert [gpu.lost for gpu in after.gpus] == [False, False, True, False]
    assert after.gpus[2].ref == before.gpus[2].ref


def test_other_hardware_under_a_running_child_is_named_anew(make_probe: MakeProbe, state_path: Path) -> None:
    probe = make_probe()
    good(probe)
    replaced = nvml_state.default_state("n1", 4, 2)
    nvml_state.write(state_path, replaced)
    after = good(probe)
    assert [(gpu.ref.uuid, gpu.ref.minor) for gpu in after.gpus] == [(gpu.uuid, gpu.minor) for gpu in replaced.gpus]


def test_events_are_pushed(make_probe: MakeProbe, state_path: Path) -> None:
    probe = make_probe()
    refs = [gpu.ref for gpu in good(probe).gpus]
    time.sleep(0.1)  # the child registers its event set after its first answer
    begun = time.monotonic()
    nvml_state.add_xid(state_path, 3, 79)
    event = wait_for(probe, lambda outcome: isinstance(outcome, NvmlEvent))
    assert isinstance(event, NvmlEvent)
    assert (event.kind, event.data, event.gpu.uuid, event.gpu.minor) == ("xid", 79, refs[3].uuid, 1)
    assert begun < event.monotonic_s <= time.monotonic()
    nvml_state.set_recovery_action(state_path, 0, 1)
    again = wait_for(probe, lambda outcome: isinstance(outcome, NvmlEvent))
    assert isinstance(again, NvmlEvent)
    assert (again.kind, again.data) == ("recovery_action", 1)


def test_events_go_on_after_a_gpu_is_lost(make_probe: MakeProbe, state_path: Path) -> None:
    probe = make_probe()
    good(probe)
    time.sleep(0.1)
    nvml_state.lose_gpu(state_path, 0)
    assert wait_for(probe, lambda outcome: isinstance(outcome, NvmlEvent) and outcome.kind == "lost")
    time.sleep(1.3)  # the event set is made again after a pause
    nvml_state.add_xid(state_path, 1, 48)
    event = wait_for(probe, lambda outcome: isinstance(outcome, NvmlEvent) and outcome.kind == "xid")
    assert isinstance(event, NvmlEvent)
    assert event.data == 48


def test_a_hang_is_a_failure_and_the_next_child_answers(make_probe: MakeProbe, state_path: Path) -> None:
    probe = make_probe(deadline_s=0.3)
    slow = make_probe(deadline_s=10.0)
    good(slow)
    nvml_state.set_hang(state_path, on=True)
    failure = bad(probe)
    assert (failure.hang, failure.misses, failure.code) == (True, 1, None)
    assert probe.pid is None
    soon = bad(probe)  # too early for another child
    assert soon == failure
    nvml_state.set_hang(state_path, on=False)
    probe.resume()
    deadline = time.monotonic() + 10
    while isinstance(answer := probe.request(), NvmlFailure) and time.monotonic() < deadline:
        probe.resume()  # a loaded machine may need more than 0.3 s to start a process
    assert isinstance(answer, Snapshot)


def test_hangs_in_a_row_are_counted_and_children_do_not_pile_up(make_probe: MakeProbe, state_path: Path) -> None:
    nvml_state.set_hang(state_path, on=True)
    probe = make_probe(deadline_s=0.2)
    pids = set()
    for _ in range(3):
        probe.send()
        pids.add(probe.pid)
        failure = wait_for(probe, lambda outcome: isinstance(outcome, NvmlFailure))
        probe.resume()
    assert isinstance(failure, NvmlFailure)
    assert (failure.hang, failure.misses) == (True, 3)
    assert len(pids) == 3
    assert not any(alive(pid) for pid in pids if pid is not None)


class _Unkillable(subprocess.Popen[bytes]):
    """Stands for a process in D state: no signal ends it while ``held``."""

    held = True

    def kill(self) -> None:
        if not self.held:
            super().kill()

    def wait(self, timeout: float | None = None) -> int:
        if self.held:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        super().kill()
        return super().wait(timeout)


def test_a_child_that_cannot_be_killed_is_left_alone(
    make_probe: MakeProbe, state_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast_checks.probes.nvml.subprocess.Popen", _Unkillable)
    monkeypatch.setattr(_Unkillable, "held", True)
    nvml_state.set_hang(state_path, on=True)
    probe = make_probe(deadline_s=0.2)
    bad(probe)
    probe.resume()
    second, third = bad(probe), bad(probe)
    assert (second.hang, second.misses, third.misses) == (True, 2, 3)
    assert "cannot be killed" in second.text
    assert probe.pid is None
    assert not probe.released
    nvml_state.set_hang(state_path, on=False)
    monkeypatch.setattr(_Unkillable, "held", False)
    until = time.monotonic() + 5
    while not probe.released and time.monotonic() < until:
        time.sleep(0.01)
    assert probe.released


def test_a_version_mismatch_is_an_error_and_needs_a_new_process(make_probe: MakeProbe, state_path: Path) -> None:
    probe = make_probe()
    nvml_state.set_fail(state_path, "nvmlInit", 18)
    failure = bad(probe)
    assert (failure.code, failure.hang) == (18, False)
    assert probe.pid is None
    nvml_state.set_fail(state_path, "nvmlInit", None)
    probe.resume()
    assert good(probe).count == 4


def test_no_library_is_an_error(tmp_path: Path) -> None:
    probe = NvmlProbe(10, env={"LD_LIBRARY_PATH": str(tmp_path)})
    if isinstance(failure := probe.request(), Snapshot):
        pytest.skip("this machine has a real NVML")
    assert failure.code == 12
    probe.close()


def test_a_child_that_dies_is_a_failure(make_probe: MakeProbe) -> None:
    probe = make_probe()
    good(probe)
    assert probe.pid is not None
    os.kill(probe.pid, signal.SIGSTOP)
    probe.send()
    os.kill(probe.pid, signal.SIGKILL)
    failure = wait_for(probe, lambda outcome: isinstance(outcome, NvmlFailure))
    assert isinstance(failure, NvmlFailure)
    assert (failure.text, failure.hang) == ("the NVML process ended with status -9", False)


@pytest.mark.parametrize(
    ("said", "text", "hang"),
    [
        ('{"id": 1, "ok": {}}', "unreadable answer", False),
        ("nonsense\\n[]\\n{}", "did not answer", True),
        ('{"id": 7, "ok": {}}', "did not answer", True),
    ],
)
def test_nonsense_from_the_child_is_not_an_answer(make_probe: MakeProbe, said: str, text: str, hang: bool) -> None:
    program = f"import sys; sys.stdin.readline(); print('{said}', flush=True); sys.stdin.read()"
    probe = make_probe(deadline_s=0.3, command=(sys.executable, "-c", program))
    failure = bad(probe)
    assert text in failure.text
    assert failure.hang is hang


def test_let_go_leaves_no_process(make_probe: MakeProbe) -> None:
    probe = make_probe()
    good(probe)
    pid = probe.pid
    assert pid is not None
    probe.let_go()
    assert not alive(pid)
    deadline = time.monotonic() + 20
    while not probe.released:  # killed it is; the kernel may take its time with the rest
        assert time.monotonic() < deadline
        time.sleep(0.05)
    probe.send()
    assert not probe.pending
    probe.resume()
    assert good(probe).count == 4


def test_the_child_ends_with_its_parent(state_path: Path) -> None:
    program = (
        "import sys, os, signal\n"
        "from pathlib import Path\n"
        "from holdfast_checks.probes.nvml import NvmlProbe\n"
        f"probe = NvmlProbe(10, Path({str(library())!r}), {{{STATE_ENV!r}: {str(state_path)!r}}})\n"
        "probe.request()\n"
        "print(probe.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    pid = int(done.stdout)
    until = time.monotonic() + 5
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(pid)
