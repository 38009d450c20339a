"""The emulated NVML through the unmodified binding, each in a separate process as on a node."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.practice.nvml import state as nvml_state
from holdfast.practice.nvml.build import BuildError, build, environment

pytestmark = pytest.mark.slow

Ask = Callable[[str], Any]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def state_path(tmp_path: Path) -> Path:
    path = tmp_path / "nvml.ini"
    nvml_state.write(path, nvml_state.default_state("n1", 8, 1))
    return path


@pytest.fixture
def ask(library: Path, state_path: Path) -> Ask:
    """Runs lines of Python that use ``pynvml`` (as ``n``) and set ``answer``; returns the answer."""

    def run(lines: str) -> Any:
        program = "import json, pynvml as n\nn.nvmlInit()\n" + textwrap.dedent(lines) + "\nprint(json.dumps(answer))"
        env = {**os.environ, **environment(library, state_path)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=20, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_identity_comes_from_the_state_file(ask: Ask, state_path: Path) -> None:
    answer = ask("""
        def one(i):
            h = n.nvmlDeviceGetHandleByIndex(i)
            pci = n.nvmlDeviceGetPciInfo(h)
            return [n.nvmlDeviceGetUUID(h), n.nvmlDeviceGetMinorNumber(h), n.nvmlDeviceGetIndex(h),
                    n.nvmlDeviceGetSerial(h), n.nvmlDeviceGetName(h), pci.busId, pci.busIdLegacy, pci.bus, pci.domain]
        answer = [n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetNVMLVersion(), n.nvmlSystemGetCudaDriverVersion(),
                  [one(i) for i in range(n.nvmlDeviceGetCount())]]
    """)
    wanted = nvml_state.read(state_path)
    assert answer[:3] == ["580.95.05", "13.580.95.05", 13000]
    assert answer[3] == [
        [
            gpu.uuid,
            gpu.minor,
            index,
            gpu.serial,
            gpu.name,
            gpu.pci,
            f"0000:{0x10 + 11 * index:02X}:00.0",
            16 + 11 * index,
            0,
        ]
        for index, gpu in enumerate(wanted.gpus)
    ]


def test_handles_by_uuid_and_pci_address_are_those_by_index(ask: Ask) -> None:
    assert ask("""
        h = n.nvmlDeviceGetHandleByIndex(5)
        a = n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h))
        b = n.nvmlDeviceGetHandleByPciBusId(b"0000:47:00.0")
        answer = [n.nvmlDeviceGetIndex(a), n.nvmlDeviceGetIndex(b)]
    """) == [5, 5]


def test_readings(ask: Ask, state_path: Path) -> None:
    nvml_state.change_gpu(state_path, 2, temperature_c=71, power_mw=650_000, memory_used=1 << 30)
    nvml_state.change_gpu(state_path, 2, processes="4242:1073741824 17:5", nvlink_down=0b100)
    nvml_state.set_ecc(state_path, 2, uncorrected=3, corrected=9)
    nvml_state.set_remap(state_path, 2, pending=True, uncorrected=2, corrected=1)
    nvml_state.set_throttle(state_path, 2, reasons=0x48)
    nvml_state.change_gpu(state_path, 2, retired_pages=2, retired_pending=1)
    answer = ask("""
        h = n.nvmlDeviceGetHandleByIndex(2)
        fields = n.nvmlDeviceGetFieldValues(h, [230, 4, (144, 0), 9999])
        histogram = n.nvmlDeviceGetRowRemapperHistogram(h)
        answer = dict(
            temperature=n.nvmlDeviceGetTemperature(h, 0), temperature_v=n.nvmlDeviceGetTemperatureV(h, 0),
            threshold=n.nvmlDeviceGetTemperatureThreshold(h, 1), power=n.nvmlDeviceGetPowerUsage(h),
            memory=[n.nvmlDeviceGetMemoryInfo(h).used, n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).used],
            processes=[[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(h)],
            ecc=[n.nvmlDeviceGetTotalEccErrors(h, t, c) for t in (0, 1) for c in (0, 1)],
            dram=n.nvmlDeviceGetMemoryErrorCounter(h, 1, 0, 2), mode=n.nvmlDeviceGetEccMode(h),
            remap=n.nvmlDeviceGetRemappedRows(h), clocks=n.nvmlDeviceGetCurrentClocksEventReasons(h),
            old_clocks=n.nvmlDeviceGetCurrentClocksThrottleReasons(h), pages=len(n.nvmlDeviceGetRetiredPages(h, 1)),
            pending=n.nvmlDeviceGetRetiredPagesPendingStatus(h), persistence=n.nvmlDeviceGetPersistenceMode(h),
            utilisation=n.nvmlDeviceGetUtilizationRates(h).gpu, spare=[histogram.max, histogram.high],
            links=[n.nvmlDeviceGetNvLinkState(h, i) for i in (1, 2)],
            fields=[[f.fieldId, f.nvmlReturn, f.valueType, f.value.ullVal, f.timestamp > 10**15] for f in fields])
    """)
    assert answer == {
        "temperature": 71,
        "temperature_v": 71,
        "threshold": 87,
        "power": 650_000,
        "memory": [1 << 30, 1 << 30],
        "processes": [[4242, 1 << 30], [17, 5]],
        "ecc": [9, 9, 3, 3],
        "dram": 3,
        "mode": [1, 1],
        "remap": [1, 2, 1, 0],
        "clocks": 0x48,
        "old_clocks": 0x48,
        "pages": 2,
        "pending": 1,
        "persistence": 1,
        "utilisation": 0,
        "spare": [637, 3],
        "links": [1, 0],
        "fields": [[230, 0, 1, 0, True], [4, 0, 3, 3, True], [144, 0, 1, 1, True], [9999, 3, 1, 0, True]],
    }


def test_lost_gpu_answers_lost_and_the_others_go_on(ask: Ask, state_path: Path) -> None:
    nvml_state.lose_gpu(state_path, 3)
    assert ask("""
        def code(call, *args):
            try:
                call(*args)
            except n.NVMLError as error:
                return [error.value, str(error)]
            return 0
        answer = [n.nvmlDeviceGetCount(), code(n.nvmlDeviceGetHandleByIndex, 3), code(n.nvmlDeviceGetHandleByIndex, 4)]
    """) == [8, [15, "GPU is lost"], 0]


def test_a_change_is_seen_by_a_running_process(ask: Ask, state_path: Path, tmp_path: Path) -> None:
    edited = tmp_path / "edited.ini"
    edited.write_text(state_path.read_text().replace("temperature_c = 34", "temperature_c = 91"))
    assert ask(f"""
        import os
        h = n.nvmlDeviceGetHandleByIndex(0)
        before = n.nvmlDeviceGetTemperature(h, 0)
        os.replace({str(edited)!r}, {str(state_path)!r})
        answer = [before, n.nvmlDeviceGetTemperature(h, 0)]
    """) == [34, 91]


def test_a_file_that_is_being_written_in_place_is_passed_over(ask: Ask, state_path: Path) -> None:
    text = state_path.read_text()
    half = text[: text.index("[gpu 4]")].replace("temperature_c = 34", "temperature_c = 91")
    assert ask(f"""
        h = n.nvmlDeviceGetHandleByIndex(0)
        answer = [n.nvmlDeviceGetTemperature(h, 0)]
        open({str(state_path)!r}, "w").close()
        answer += [n.nvmlDeviceGetCount()]
        open({str(state_path)!r}, "w").write({half!r})
        answer += [n.nvmlDeviceGetCount(), n.nvmlDeviceGetTemperature(h, 0)]
    """) == [34, 8, 8, 34]


def test_planted_failures(ask: Ask, state_path: Path) -> None:
    nvml_state.set_fail(state_path, "nvmlDeviceGetRemappedRows", 3)
    nvml_state.set_fail(state_path, "field230", 3)
    assert ask("""
        h = n.nvmlDeviceGetHandleByIndex(0)
        try:
            answer = n.nvmlDeviceGetRemappedRows(h)
        except n.NVMLError_NotSupported:
            answer = ["unsupported", n.nvmlDeviceGetFieldValues(h, [230])[0].nvmlReturn]
    """) == ["unsupported", 3]


def test_a_failure_may_be_of_one_gpu_and_leave_out_the_version(ask: Ask, state_path: Path) -> None:
    nvml_state.set_fail(state_path, "nvmlDeviceGetPciInfo@2", 999)
    nvml_state.set_fail(state_path, "nvmlDeviceGetHandleByIndex@3", 16)
    nvml_state.set_fail(state_path, "field94@1", 10)
    assert ask("""
        def code(call, *args):
            try:
                call(*args)
            except n.NVMLError as error:
                return error.value
            return 0
        handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(3)]
        answer = [[code(n.nvmlDeviceGetPciInfo, h) for h in handles], code(n.nvmlDeviceGetHandleByIndex, 3),
                  [n.nvmlDeviceGetFieldValues(h, [94])[0].nvmlReturn for h in handles]]
    """) == [[0, 0, 999], 16, [0, 10, 0]]


def test_structs_of_another_version_are_refused(ask: Ask) -> None:
    assert ask("""
        import ctypes
        h = n.nvmlDeviceGetHandleByIndex(0)
        def code(call, struct, version):
            struct.version = version
            try:
                call(h, ctypes.byref(struct))
            except n.NVMLError as error:
                return error.value
            return 0
        calls = [(n.nvmlDeviceGetGpuFabricInfoV, n.c_nvmlGpuFabricInfo_v2_t, n.nvmlGpuFabricInfo_v2),
                 (n.nvmlDeviceGetSramEccErrorStatus, n.c_nvmlEccSramErrorStatus_v1_t, n.nvmlEccSramErrorStatus_v1)]
        answer = [[code(call, make(), version), code(call, make(), version + 1)] for call, make, version in calls]
    """) == [[0, 25], [0, 25]]


def test_the_count_can_lie_and_symbols_can_be_missing(
    ask: Ask, state_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nvml_state.set_count(state_path, 9)
    assert ask("answer = n.nvmlDeviceGetCount()") == 9
    old = build(tmp_path_factory.mktemp("old"), without=("nvmlDeviceGetMigMode",))
    library = ctypes.CDLL(str(old))
    assert hasattr(library, "nvmlDeviceGetEccMode")
    assert not hasattr(library, "nvmlDeviceGetMigMode")
    assert not hasattr(library, "state_parse")


_WAITER = """
    import time, sys
    events = n.nvmlEventSetCreate()
    for i in range(8):
        n.nvmlDeviceRegisterEvents(n.nvmlDeviceGetHandleByIndex(i), {types}, events)
    open({ready!r}, "w").close()
    try:
        got = n.nvmlEventSetWait_v2(events, {timeout_ms})
        answer = [n.nvmlDeviceGetIndex(got.device), got.eventType, got.eventData, time.time()]
    except n.NVMLError as error:
        answer = error.value
    n.nvmlEventSetFree(events)
    n.nvmlShutdown()
"""


def _when(ready: Path, act: Callable[[], None]) -> threading.Thread:
    def wait_and_act() -> None:
        while not ready.exists():
            time.sleep(0.005)
        time.sleep(0.05)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("types", "act", "wanted"),
    [
        (8, lambda path: nvml_state.add_xid(path, 3, 79), [3, 8, 79]),
        (2, lambda path: nvml_state.set_ecc(path, 1, uncorrected=1), [1, 2, 0]),
        (0x8000, lambda path: nvml_state.set_recovery_action(path, 7, 2), [7, 0x8000, 2]),
    ],
)
def test_wait_blocks_until_the_event(
    ask: Ask, state_path: Path, tmp_path: Path, types: int, act: Callable[[Path], None], wanted: list[int]
) -> None:
    nvml_state.add_xid(state_path, 0, 31)  # from before the event set: never delivered
    acted: list[float] = []

    def act_and_note() -> None:
        act(state_path)
        acted.append(time.time())

    thread = _when(tmp_path / "ready", act_and_note)
    answer = ask(_WAITER.format(types=types, ready=str(tmp_path / "ready"), timeout_ms=10_000))
    thread.join()
    assert answer[:3] == wanted
    assert answer[3] - acted[0] < 5.0  # an event, not the timeout


def test_wait_ends_with_a_timeout_when_nothing_registered_happens(ask: Ask, state_path: Path, tmp_path: Path) -> None:
    thread = _when(tmp_path / "ready", lambda: nvml_state.set_ecc(state_path, 1, uncorrected=1))
    assert ask(_WAITER.format(types=8, ready=str(tmp_path / "ready"), timeout_ms=300)) == 10
    thread.join()


def test_hang_blocks_until_it_is_taken_away(ask: Ask, state_path: Path, tmp_path: Path) -> None:
    def heal() -> None:
        time.sleep(0.2)
        nvml_state.set_hang(state_path, on=False)

    thread = _when(tmp_path / "ready", heal)
    took = ask(f"""
        import time
        path = {str(state_path)!r}
        text = open(path).read()
        open(path, "w").write(text.replace("hang = 0", "hang = 1"))
        begun = time.monotonic()
        open({str(tmp_path / "ready")!r}, "w").close()
        n.nvmlDeviceGetCount()
        answer = time.monotonic() - begun
    """)
    thread.join()
    assert 0.2 <= took < 5


def test_state_survives_its_file(state_path: Path) -> None:
    nvml_state.set_fail(state_path, "nvmlInit", 18)
    nvml_state.add_xid(state_path, 1, 48)
    nvml_state.change_gpu(state_path, 1, lost=True, processes="1:2")
    state = nvml_state.read(state_path)
    nvml_state.write(state_path, state)
    assert nvml_state.read(state_path) == state
    assert state.gpus[1].lost
    assert state.fail == {"nvmlInit": 18}
    nvml_state.set_fail(state_path, "nvmlInit", None)
    assert nvml_state.read(state_path).fail == {}


def test_every_generation_has_its_own_uuids() -> None:
    uuids = [
        {gpu.uuid for gpu in nvml_state.default_state(node, 8, generation).gpus}
        for node in ("n1", "n2")
        for generation in (1, 2)
    ]
    assert len(set().union(*uuids)) == 32
    assert nvml_state.default_state("n1", 8, 1) == nvml_state.default_state("n1", 8, 1)


def test_minors_may_differ_from_the_index() -> None:
    state = nvml_state.default_state("n1", 4, 1, minors=(2, 0, 3, 1))
    assert [nvml_state.index_of_minor(state, minor) for minor in range(4)] == [1, 3, 0, 2]
    with pytest.raises(ValueError, match="permutation"):
        nvml_state.default_state("n1", 4, 1, minors=(0, 0, 1, 2))


def test_reboot_keeps_what_is_broken_for_good(state_path: Path) -> None:
    nvml_state.lose_gpu(state_path, 0)
    nvml_state.set_remap(state_path, 1, failed=True)
    nvml_state.set_remap(state_path, 2, pending=True)
    nvml_state.reboot(state_path)
    gpus = nvml_state.read(state_path).gpus
    assert (gpus[0].lost, gpus[1].remap_failed, gpus[2].remap_pending, gpus[2].remap_uncorrected) == (False, 1, 0, 1)


def test_remove_gpu_moves_the_rest_down(ask: Ask, state_path: Path) -> None:
    nvml_state.remove_gpu(state_path, 0)
    assert ask("answer = [n.nvmlDeviceGetCount(), n.nvmlDeviceGetMinorNumber(n.nvmlDeviceGetHandleByIndex(0))]") == [
        7,
        1,
    ]


def test_build_is_cached_and_says_what_is_missing(
    library: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = library.stat().st_mtime_ns
    assert build(library.parent.parent) == library
    assert library.stat().st_mtime_ns == built
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="install gcc"):
        build(tmp_path)
