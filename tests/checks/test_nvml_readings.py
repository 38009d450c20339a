"""The readings of the NVML child against libraries that refuse, lie and lack: a missing reading has its reason, and nothing breaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.practice.nvml import state
from holdfast.practice.nvml.build import R470_LACKS, STATE_ENV
from holdfast_checks.details import GpuDetails, NvLink
from holdfast_checks.probes.nvml import NvmlProbe
from holdfast_checks.reading import NvmlReading
from holdfast_checks.snapshot import NvmlFailure, Snapshot
from support.emulated_nvml import OPTIONAL, READINGS, library

pytestmark = pytest.mark.slow

CODES = (*range(1, 30), 999)
UNSUPPORTED = {2, 3, 13, 25}
LOST = 15


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "nvml.ini"
    state.write(path, state.default_state("n1", 2, 1))
    return path


@pytest.fixture
def probe(path: Path) -> Iterator[NvmlProbe]:
    with_everything = NvmlProbe(10, library(), {STATE_ENV: str(path)}, details_age_s=0.0)
    yield with_everything
    with_everything.close()


def asked(probe: NvmlProbe) -> Snapshot:
    answer = probe.request()
    assert isinstance(answer, Snapshot), answer
    return answer


def details(probe: NvmlProbe, index: int = 0) -> GpuDetails:
    found = asked(probe).gpus[index].details
    assert found is not None
    return found


def test_every_reading(probe: NvmlProbe, path: Path) -> None:
    state.change_gpu(
        path,
        1,
        nvlink_down=1 << 3,
        nvlink_replays="0:1",
        nvlink_recoveries="0:2 17:505",
        nvlink_crc="0:3",
        nvlink_failed="0:4",
        fabric_state=2,
        fabric_status=999,
        pcie_gen=4,
        pcie_width=8,
        pcie_replays=77,
        temperature_c=80,
        persistence=0,
        mig=1,
        ecc_pending=0,
        ecc_corrected_aggregate=1 << 40,
        sram_threshold=1,
        sram_uncorrected=6,
        banks_low=2,
        banks_none=1,
        remap_uncorrected=3,
        repair_tpc=1,
        unrepairable_memory=1,
        power_mw=650_000,
        utilisation_percent=97,
        processes="4711:5 4712:6",
        vbios="x",
    )
    found = details(probe, 1)
    assert found.links[0] == NvLink(True, 1, 2, 3, 4, None)
    assert found.links[3] == NvLink(False, 0, 0, 0, 0, None)
    assert found.links[17].recoveries == 505
    assert found.pids == (4711, 4712)
    assert (found.name, found.vbios) == ("NVIDIA H100 80GB HBM3", "x")
    numbers = {
        name: getattr(found, name).value
        for name in GpuDetails.__dataclass_fields__
        if isinstance(getattr(found, name), NvmlReading)
    }
    assert numbers == {
        "link_count": 18,
        "process_count": 2,
        "fabric_state": 2,
        "fabric_status": 999,
        "fabric_health": 0x1AA,
        "pcie_gen": 4,
        "pcie_gen_max": 5,
        "pcie_width": 8,
        "pcie_width_max": 16,
        "pcie_replays": 77,
        "temperature_margin_c": 7,
        "persistence": 0,
        "mig": 1,
        "mig_pending": 0,
        "ecc_mode": 1,
        "ecc_mode_pending": 0,
        "ecc_corrected_aggregate": 1 << 40,
        "ecc_uncorrected_aggregate": 0,
        "sram_threshold": 1,
        "sram_uncorrected": 6,
        "banks_max": 634,
        "banks_high": 3,
        "banks_partial": 0,
        "banks_low": 2,
        "banks_none": 1,
        "retired_single": None,
        "retired_double": None,
        "retired_pending": None,
        "repair_channel": 0,
        "repair_tpc": 1,
        "unrepairable_memory": 1,
        "power_mw": 650_000,
        "power_limit_mw": 700_000,
        "utilisation_percent": 97,
    }


def test_details_are_read_when_they_are_old_and_kept_meanwhile(path: Path) -> None:
    probe = NvmlProbe(10, library(), {STATE_ENV: str(path)}, details_age_s=600)
    try:
        first = asked(probe)
        state.change_gpu(path, 0, mig=1, temperature_c=50)
        second = asked(probe)
        assert second.details_monotonic_s == first.details_monotonic_s > 0
        assert (second.gpus[0].temperature_c.value, second.gpus[0].details) == (50, first.gpus[0].details)
        probe.send(everything=True)
        third = asked(probe)
        assert third.details_monotonic_s > second.monotonic_s
        assert third.gpus[0].details is not None
        assert third.gpus[0].details.mig.value == 1
    finally:
        probe.close()


@pytest.mark.parametrize("nvlinks", [0, 4, 18, 36])
def test_links_end_where_the_part_ends(probe: NvmlProbe, path: Path, nvlinks: int) -> None:
    state.change_gpu(path, 0, nvlinks=nvlinks)
    found = details(probe)
    assert len(found.links) == nvlinks
    assert found.link_count == (NvmlReading(nvlinks) if nvlinks else NvmlReading(unsupported=True))


@pytest.mark.parametrize("code", sorted(UNSUPPORTED))
def test_any_word_for_not_there_ends_the_links(probe: NvmlProbe, path: Path, code: int) -> None:
    state.set_fail(path, "nvmlDeviceGetNvLinkState", code)
    assert details(probe).link_count == NvmlReading(unsupported=True)


def test_an_error_of_the_first_link_is_not_no_link(probe: NvmlProbe, path: Path) -> None:
    state.set_fail(path, "nvmlDeviceGetNvLinkState", 10)
    assert details(probe).link_count == NvmlReading(error="Timeout (10)")
    state.set_fail(path, "nvmlDeviceGetNvLinkState", None)
    assert details(probe).link_count == NvmlReading(18)


def test_drivers_without_scoped_fields_have_old_counters(probe: NvmlProbe, path: Path) -> None:
    for field in (161, 162, 163, 214, 215, 211):
        state.set_fail(path, f"field{field}", 3)
    state.change_gpu(path, 0, nvlink_recoveries="5:9", nvlink_crc="5:8")
    assert details(probe).links[5] == NvLink(True, 0, 9, 8, None, None)


@pytest.mark.parametrize("call", READINGS)
def test_a_call_that_refuses_is_missed_alone(probe: NvmlProbe, path: Path, call: str) -> None:
    """With a code for an error, and with one for a missing part; the other GPU is healthy."""
    good = asked(probe)
    for code in (999, 3):
        state.set_fail(path, f"{call}@0", code)
        found = asked(probe)
        assert found.gpus[0].details is not None
        assert not found.gpus[0].lost
        assert found.gpus[1] == good.gpus[1]
        assert found.gpus[0].ref == good.gpus[0].ref


def test_every_code_from_every_reading(probe: NvmlProbe, path: Path) -> None:
    asked(probe)
    for code in CODES:
        for call in READINGS:
            state.set_fail(path, call, code)
        found = asked(probe)
        assert all(gpu.lost == (code == LOST) for gpu in found.gpus), code
        if code != LOST:
            gpu = found.gpus[0]
            readings = [gpu.temperature_c, gpu.clock_event_reasons, gpu.recovery_action, gpu.remap_pending]
            assert gpu.details is not None
            readings += [gpu.details.fabric_state, gpu.details.sram_threshold, gpu.details.pcie_replays]
            assert {reading.unsupported for reading in readings} == {code in UNSUPPORTED}, code
            assert all(reading.value is None for reading in readings)


@pytest.mark.parametrize("code", CODES)
def test_every_code_for_a_handle(probe: NvmlProbe, path: Path, code: int) -> None:
    """One GPU is refused and the other read, unless the code is about the library as a whole."""
    state.set_fail(path, "nvmlDeviceGetHandleByIndex@1", code)
    answer = probe.request()
    if code in {1, 9, 12, 13, 18}:
        assert isinstance(answer, NvmlFailure)
        assert answer.code == code
    else:
        assert isinstance(answer, Snapshot)
        assert [(gpu.lost, gpu.failed) for gpu in answer.gpus] == [
            (False, None),
            (True, None) if code == LOST else (False, code),
        ]


@pytest.mark.parametrize("code", CODES)
def test_every_code_for_the_start(probe: NvmlProbe, path: Path, code: int) -> None:
    state.set_fail(path, "nvmlInit", code)
    answer = probe.request()
    assert isinstance(answer, NvmlFailure)
    assert (answer.code, answer.hang) == (code, False)


def test_a_refused_gpu_keeps_its_name(probe: NvmlProbe, path: Path) -> None:
    before = asked(probe)
    state.set_fail(path, "nvmlDeviceGetHandleByIndex@1", 999)
    gpu = asked(probe).gpus[1]
    assert (gpu.failed, gpu.at_work, gpu.ref) == (999, False, before.gpus[1].ref)


def test_a_count_that_is_too_high(probe: NvmlProbe, path: Path) -> None:
    state.set_count(path, 4)
    found = asked(probe)
    assert [gpu.failed for gpu in found.gpus] == [None, None, 2, 2]
    assert (found.count, found.gpus[0].details is not None) == (4, True)


@pytest.mark.parametrize("without", [R470_LACKS, OPTIONAL], ids=["R470", "nothing-optional"])
def test_a_library_that_lacks_symbols(path: Path, without: tuple[str, ...]) -> None:
    probe = NvmlProbe(10, library(without), {STATE_ENV: str(path)})
    try:
        gpu = asked(probe).gpus[1]
        assert gpu.ref.uuid
        assert gpu.details is not None
        assert gpu.details.sram_threshold == gpu.details.fabric_state == NvmlReading(unsupported=True)
        if without == R470_LACKS:  # what it has by another name
            assert gpu.clock_event_reasons == NvmlReading(1)
            assert gpu.details.temperature_margin_c == NvmlReading(53)
            assert gpu.details.process_count == NvmlReading(0)
        else:
            assert gpu.temperature_c == gpu.remap_pending == gpu.details.link_count == NvmlReading(unsupported=True)
    finally:
        probe.close()
