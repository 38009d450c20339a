"""The judges of the slow GPU readings, as tables; near misses stay OK."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast_checks.details import GpuDetails, NvLink
from holdfast_checks.known import all_checks
from holdfast_checks.per_gpu import GpuFacts
from holdfast_checks.registry import Context
from holdfast_checks.result import Verdict
from holdfast_checks.runner import run
from holdfast_checks.settings import GpuSettings
from holdfast_checks.snapshot import GpuSnapshot, NvmlFailure, NvmlReading
from support.gpu_facts import (
    ERROR,
    NO,
    OK,
    SKIPPED,
    UNKNOWN,
    Short,
    degraded,
    facts,
    gpu,
    judge,
    links,
    ref,
    short,
    warning,
)

DETAILS_CHECKS = sorted(
    name
    for name in all_checks()
    if name.startswith("gpu.") and all_checks()[name].interval_s == 60 and name not in ("gpu.leftover", "gpu.slurm")
)


@pytest.mark.parametrize(
    ("check", "given", "wanted"),
    [
        ("gpu.nvlink", {"links": links(17)}, degraded("down", "reset_gpu")),
        ("gpu.nvlink", {"links": (NvLink(None), *links()[1:])}, UNKNOWN),
        ("gpu.nvlink", {"links": (), "link_count": NO}, SKIPPED),
        ("gpu.nvlink", {"links": (), "link_count": ERROR}, UNKNOWN),
        ("gpu.fabric", {"fabric_state": 0}, SKIPPED),
        ("gpu.fabric", {"fabric_state": 1}, degraded("not_ready", "reboot")),
        ("gpu.fabric", {"fabric_state": 2}, degraded("not_ready", "reboot")),
        ("gpu.fabric", {"fabric_state": 7}, warning("unknown_state")),
        ("gpu.fabric", {"fabric_state": NO}, SKIPPED),
        ("gpu.fabric", {"fabric_state": ERROR}, UNKNOWN),
        ("gpu.fabric", {"fabric_status": 999}, degraded("status", "reset_gpu")),
        ("gpu.fabric", {"fabric_health": NO}, OK),
        ("gpu.fabric", {"fabric_health": ERROR}, UNKNOWN),
        ("gpu.fabric", {"fabric_health": 0}, OK),
        ("gpu.fabric", {"fabric_health": 0x1A9}, degraded("unhealthy", "reset_gpu")),
        ("gpu.fabric", {"fabric_health": 0x19A}, degraded("unhealthy", "reset_gpu")),
        ("gpu.fabric", {"fabric_health": 0x16A}, degraded("unhealthy", "reset_gpu")),
        ("gpu.fabric", {"fabric_health": 0x1A6}, warning("recovering")),
        ("gpu.fabric", {"fabric_health": 0x1AA}, OK),
        ("gpu.fabric", {"fabric_health": 0x5AA}, degraded("configuration", "human")),
        ("gpu.fabric", {"fabric_health": 0xFAA}, degraded("configuration", "human")),
        ("gpu.fabric", {"fabric_health": 0x51AA}, OK),
        ("gpu.pcie", {"pcie_width": 8}, degraded("width", "reboot")),
        ("gpu.pcie", {"pcie_width": 0}, OK),
        ("gpu.pcie", {"pcie_width": 63, "pcie_width_max": 63}, OK),
        ("gpu.pcie", {"pcie_width": 8, "pcie_width_max": 8}, OK),
        ("gpu.pcie", {"pcie_width": NO}, SKIPPED),
        ("gpu.pcie", {"pcie_width_max": ERROR}, UNKNOWN),
        ("gpu.pcie", {"pcie_gen": 1, "utilisation_percent": 49}, OK),
        ("gpu.pcie", {"pcie_gen": 4, "utilisation_percent": 50}, warning("speed")),
        ("gpu.pcie", {"pcie_gen": 1, "utilisation_percent": ERROR}, OK),
        ("gpu.temperature", {"temperature_margin_c": 3}, OK),
        ("gpu.temperature", {"temperature_margin_c": 2}, warning("margin")),
        ("gpu.temperature", {"temperature_margin_c": -4}, warning("margin")),
        ("gpu.temperature", {"temperature_margin_c": NO}, SKIPPED),
        ("gpu.persistence", {"persistence": 0}, warning("off")),
        ("gpu.persistence", {"persistence": NO}, SKIPPED),
        ("gpu.mig", {"mig": 1, "mig_pending": 1}, warning("on")),
        ("gpu.mig", {"mig_pending": 1}, warning("pending")),
        ("gpu.mig", {"mig": NO, "mig_pending": NO}, SKIPPED),
        ("gpu.ecc_mode", {"ecc_mode": 0}, warning("off")),
        ("gpu.ecc_mode", {"ecc_mode_pending": 0}, warning("pending")),
        ("gpu.ecc_mode", {"ecc_mode": NO}, SKIPPED),
        ("gpu.sram", {"sram_threshold": 1}, degraded("threshold", "replace")),
        ("gpu.sram", {"sram_uncorrected": 1}, warning("errors")),
        ("gpu.sram", {"sram_threshold": NO}, SKIPPED),
        ("gpu.sram", {"ecc_uncorrected_aggregate": 9}, OK),
        ("gpu.memory_banks", {"banks_low": 1}, warning("low")),
        ("gpu.memory_banks", {"banks_low": 1, "banks_none": 1}, warning("none")),
        ("gpu.memory_banks", {"banks_partial": 9, "banks_high": 30}, OK),
        ("gpu.memory_banks", {"remap_uncorrected": 511}, OK),
        ("gpu.memory_banks", {"remap_uncorrected": 512}, degraded("rows", "replace")),
        ("gpu.memory_banks", {"banks_low": NO, "banks_none": NO}, SKIPPED),
        ("gpu.retired_pages", {"remap_pending": NO}, SKIPPED),
        (
            "gpu.retired_pages",
            {"remap_pending": NO, "retired_single": 62, "retired_double": 0},
            degraded("count", "replace"),
        ),
        ("gpu.retired_pages", {"remap_pending": NO, "retired_single": 46, "retired_double": 15}, warning("double_bit")),
        ("gpu.retired_pages", {"remap_pending": NO, "retired_single": 47, "retired_double": 14}, OK),
        (
            "gpu.retired_pages",
            {"remap_pending": NO, "retired_single": 0, "retired_double": 1, "retired_pending": 1},
            degraded("pending", "reset_gpu"),
        ),
        ("gpu.retired_pages", {"remap_pending": NO, "retired_single": 0, "retired_double": ERROR}, UNKNOWN),
        ("gpu.repair", {"repair_channel": 1}, degraded("pending", "reboot")),
        ("gpu.repair", {"repair_tpc": 1, "repair_channel": NO}, degraded("pending", "reboot")),
        ("gpu.repair", {"unrepairable_memory": 1, "repair_tpc": 1}, degraded("unrepairable", "replace")),
        ("gpu.repair", {"repair_channel": NO, "repair_tpc": NO, "unrepairable_memory": NO}, SKIPPED),
        ("gpu.ecc_corrected", {"ecc_corrected_volatile": 20_000_000}, OK),
        ("gpu.ecc_corrected", {"ecc_corrected_volatile": 20_000_001}, warning("count")),
        ("gpu.ecc_corrected", {"ecc_corrected_volatile": NO}, SKIPPED),
    ],
)
def test_one_reading(check: str, given: dict[str, Any], wanted: Short) -> None:
    good, judged = judge(check, facts(gpu(0, **_base(given)), gpu(1, **given)))
    assert short(judged) == wanted
    assert good.verdict in (Verdict.OK, Verdict.SKIPPED)
    assert (judged.component, judged.gpu_minor, judged.pci) == ("GPU-1", 1, "0000:01:00.0")
    assert judged.sticky
    assert judged.verdict is Verdict.OK or judged.summary
    assert judged.summary.isprintable()


def _base(given: dict[str, Any]) -> dict[str, Any]:
    """The healthy neighbour of an old part is an old part."""
    return {"remap_pending": NO, "retired_single": 0, "retired_double": 0} if given.get("remap_pending") == NO else {}


@pytest.mark.parametrize("check", DETAILS_CHECKS)
def test_nothing_read_is_never_bad_news(check: str) -> None:
    lost = GpuSnapshot(ref(0), lost=True)
    refused = GpuSnapshot(ref(1), failed=999)
    unread = GpuSnapshot(ref(2))
    errors = replace(gpu(3, remap_pending=NvmlReading()), details=GpuDetails.from_wire({}))
    results = judge(check, facts(lost, refused, unread, errors))
    assert not any(result.bad for result in results)
    assert {result.verdict for result in results} <= {Verdict.UNKNOWN, Verdict.OK}
    for context in (
        Context(),
        Context(nvml=NvmlFailure("hang", hang=True)),
        Context(nvml=NvmlFailure("none", code=12)),
    ):
        (result,) = run(all_checks()[check], context)
        assert result.verdict in (Verdict.UNKNOWN, Verdict.SKIPPED)


@pytest.mark.parametrize("check", DETAILS_CHECKS)
def test_a_healthy_node_is_ok(check: str) -> None:
    node = facts(gpu(0), gpu(1))
    later = facts(gpu(0), gpu(1), seconds=120.0)
    for results in (judge(check, node), judge(check, later, node)):
        assert {result.verdict for result in results} <= {Verdict.OK, Verdict.SKIPPED}


@pytest.mark.parametrize(
    ("up", "settings", "wanted"),
    [
        ((18, 18, 18), {}, (OK, OK, OK)),
        ((18, 12, 18), {}, (OK, degraded("down", "reset_gpu"), OK)),
        ((0, 0, 0), {}, (SKIPPED, SKIPPED, SKIPPED)),
        ((0, 0, 0), {"instance_type": "p5.48xlarge"}, (degraded("down", "reset_gpu"),) * 3),
        ((0,), {"instance_type": "p5.4xlarge"}, (SKIPPED,)),
        ((12, 12), {"gpu": GpuSettings(nvlinks=18)}, (degraded("down", "reset_gpu"),) * 2),
        ((12, 12), {"gpu": GpuSettings(nvlinks=12)}, (OK, OK)),
        ((17, 17), {"instance_type": "unheard-of.large"}, (OK, OK)),
    ],
)
def test_how_many_links_there_must_be(up: tuple[int, ...], settings: dict[str, Any], wanted: tuple[Short, ...]) -> None:
    gpus = [gpu(index, links=links(count)) for index, count in enumerate(up)]
    assert tuple(map(short, judge("gpu.nvlink", facts(*gpus, **settings)))) == wanted


def test_links_are_not_compared_between_kinds_of_gpu() -> None:
    bridge = gpu(1, name="H100 PCIe", links=links(12))
    assert [short(result) for result in judge("gpu.nvlink", facts(gpu(0), bridge))] == [OK, OK]


def test_a_link_that_is_down_is_named() -> None:
    down = (*links()[:4], NvLink(active=False), *links()[5:])
    (_, result) = judge("gpu.nvlink", facts(gpu(0), gpu(1, links=down)))
    assert dict(result.evidence) == {"links_down": "4", "active": 17, "expected": 18}


@pytest.mark.parametrize(
    ("before", "now", "seconds", "wanted", "named"),
    [
        ({}, {}, 60, OK, None),
        ({}, {"recoveries": {9: 1}}, 60, warning("recovery"), "9"),
        ({}, {"recoveries": {9: 4}}, 60, warning("recovery"), "9"),
        ({}, {"recoveries": {9: 5, 3: 1}}, 60, degraded("recoveries", "reset_gpu"), "9"),
        ({"recoveries": {9: 505}}, {"recoveries": {9: 505}}, 60, OK, None),
        ({"recoveries": {9: 505}}, {"recoveries": {9: 2}}, 60, OK, None),
        ({}, {"recoveries": dict.fromkeys(range(18), 1)}, 60, warning("recovery"), ",".join(map(str, range(18)))),
        ({}, {"recoveries": {0: 9}}, 120, warning("recovery"), "0"),
        ({}, {"replays": {2: 1}}, 60, warning("replay"), "2"),
        ({}, {"integrity_errors": {2: 1}}, 60, warning("integrity"), "2"),
        ({}, {"crc_errors": {7: 5999}}, 60, OK, None),
        ({}, {"crc_errors": {7: 6000}}, 60, degraded("crc", "reset_gpu"), "7"),
        ({}, {"failed_recoveries": {1: 1}, "crc_errors": {7: 9000}}, 60, degraded("recovery_failed", "reset_gpu"), "1"),
    ],
)
def test_errors_of_links(
    before: dict[str, dict[int, int]],
    now: dict[str, dict[int, int]],
    seconds: float,
    wanted: Short,
    named: str | None,
) -> None:
    first = facts(gpu(0), gpu(1, links=links(**before)), seconds=60.0)
    second = facts(gpu(0), gpu(1, links=links(**now)), seconds=60.0 + seconds)
    good, judged = judge("gpu.nvlink_errors", second, first)
    assert (short(good), short(judged)) == (OK, wanted)
    assert judged.evidence.get("links") == named


@pytest.mark.parametrize(
    ("generation", "lanes", "replays", "seconds", "wanted"),
    [
        (5, 16, 30, 60, OK),
        (5, 16, 31, 60, warning("rate")),
        (5, 16, 31, 120, OK),
        (4, 16, 16, 60, warning("rate")),
        (4, 16, 15, 60, OK),
        (3, 8, 4, 60, warning("rate")),
        (3, 8, 3, 60, OK),
        (7, 16, 61, 60, OK),
        (7, 16, 62, 60, warning("rate")),
        (5, 16, -50, 60, OK),
    ],
)
def test_rate_of_replays(generation: int, lanes: int, replays: int, seconds: float, wanted: Short) -> None:
    link = {"pcie_gen_max": generation, "pcie_width": lanes, "pcie_width_max": lanes}
    first = facts(gpu(0, pcie_replays=100, **link), seconds=60.0)
    second = facts(gpu(0, pcie_replays=100 + replays, **link), seconds=60.0 + seconds)
    assert [short(result) for result in judge("gpu.pcie_replay", second, first)] == [wanted]


@pytest.mark.parametrize("check", ["gpu.nvlink_errors", "gpu.pcie_replay"])
def test_the_first_reading_is_the_baseline_and_the_same_one_says_nothing(check: str) -> None:
    bad = gpu(0, links=links(recoveries={3: 10_000}), pcie_replays=1 << 30)
    node = facts(bad)
    assert [short(result) for result in judge(check, node)] == [OK]
    assert judge(check, node, node) == ()
    swapped = facts(gpu(0), seconds=0.0)
    other = replace(swapped.snapshot.gpus[0], ref=ref(5))
    another = GpuFacts(replace(swapped.snapshot, gpus=(other,)), swapped.settings)
    assert [short(result) for result in judge(check, node, another)] == [OK]


@pytest.mark.parametrize(
    ("rise", "seconds", "wanted"),
    [(59_999, 60, OK), (60_000, 60, warning("storm")), (-5, 60, OK), (60_000, 61, OK)],
)
def test_a_storm_of_corrected_errors(rise: int, seconds: float, wanted: Short) -> None:
    first = facts(gpu(0, ecc_corrected_volatile=10), seconds=60.0)
    second = facts(gpu(0, ecc_corrected_volatile=10 + rise), seconds=60.0 + seconds)
    assert [short(result) for result in judge("gpu.ecc_corrected", second, first)] == [wanted]


def test_settings_turn_expectations_round() -> None:
    other = GpuSettings(persistence_mode=False, ecc_mode=False, mig_mode=True, temperature_margin_c=50)
    node = facts(gpu(0, persistence=0, ecc_mode=0), gpu=other)
    wanted = {
        "gpu.persistence": OK,
        "gpu.ecc_mode": OK,
        "gpu.mig": warning("off"),
        "gpu.temperature": warning("margin"),
    }
    assert {check: short(judge(check, node)[0]) for check in wanted} == wanted


@pytest.mark.parametrize(
    ("others", "codes"),
    [
        ({}, []),
        ({"vbios": "2"}, ["vbios"]),
        ({"name": "H200", "power_limit_mw": 500_000}, ["name", "power_limit"]),
        ({"vbios": "", "name": "", "power_limit_mw": NO}, []),
    ],
)
def test_gpus_that_are_not_alike(others: dict[str, Any], codes: list[str]) -> None:
    results = judge("gpu.mix", facts(gpu(0), gpu(1, **others)))
    assert [result.code for result in results if result.bad] == codes
    assert {result.component for result in results} == {"node"}
    assert any(result.verdict is Verdict.OK for result in results) == (not codes)
