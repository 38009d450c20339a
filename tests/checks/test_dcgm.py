"""The verdicts on DCGM's answers, in every known shape and in some unknown ones."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast_checks.checks import dcgm_health
from holdfast_checks.dcgm import diag, errors, health
from holdfast_checks.dcgm.command import discovered
from holdfast_checks.dcgm.level import by_serial
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.inventory import GpuInventory
from holdfast_checks.known import all_checks
from holdfast_checks.registry import Context, Cost
from holdfast_checks.result import Remedy, Result, Severity, Verdict
from holdfast_checks.runner import run
from holdfast_checks.settings import CheckSettings, DcgmSettings

CAPTURED = Path(__file__).parent / "captured" / "dcgm"
GPUS = {
    n: GpuRef(uuid=f"GPU-{n}", minor=n, pci=f"0000:{0x53 + n:02x}:00.0", index=n, serial=f"165092305000{n + 1}")
    for n in range(3)
}


def judged(name: str) -> set[tuple[str, str, str, str | None, str]]:
    results = diag.judge("dcgm.diag2", diag.DiagFacts(diag.parse((CAPTURED / name).read_text()), GPUS))
    return {short(result) for result in results}


def short(result: Result) -> tuple[str, str, str, str | None, str]:
    return (result.component, result.verdict, result.code, result.severity, result.remedy)


def test_a_3_1_answer_with_a_warning_before_it_null_tests_and_texts_without_a_number() -> None:
    assert judged("diag-3.1-nvvs.json") == {
        ("GPU-0", "ok", "", None, "none"),
        ("GPU-1", "failed", "14", "fatal", "reset_gpu"),
        ("GPU-2", "ok", "", None, "none"),
    }


def test_a_3_3_answer() -> None:
    assert judged("diag-3.3.json") == {
        ("node", "ok", "", None, "none"),
        ("GPU-0", "ok", "", None, "none"),
        ("GPU-1", "failed", "80", "fatal", "replace"),
        ("GPU-1", "degraded", "30", "degraded", "human"),
    }


def test_a_4_6_answer_with_a_test_an_error_and_an_entity_that_nobody_knows() -> None:
    assert judged("diag-4.6.json") == {
        ("GPU-0", "ok", "", None, "none"),
        ("GPU-1", "failed", "52", "fatal", "replace"),
        ("GPU-1", "degraded", "999", "degraded", "human"),
        ("node", "degraded", "a_test_of_next_year cpu 0", "degraded", "human"),
    }
    parsed = diag.parse((CAPTURED / "diag-4.6.json").read_text())
    assert (parsed.version, parsed.driver, parsed.serials[1]) == ("4.6.0", "580.95.05", "1650923050002")
    assert by_serial(parsed.serials, GpuInventory(tuple(GPUS.values())))[1].uuid == "GPU-1"


def one_test(status: str, *warnings: Any, name: str = "memory") -> str:
    result = {"entity_group": "GPU", "entity_id": 0, "status": status, "warnings": list(warnings)}
    root = {"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": name, "results": [result]}]}]}}
    return json.dumps(root)


def error(number: int, severity: int = 2, text: str = "text") -> dict[str, Any]:
    return {"error_id": number, "error_severity": severity, "error_category": 1, "warning": text}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (one_test("Pass"), ("ok", "", None, "none")),
        (one_test("Pass", error(52)), ("ok", "", None, "none")),
        (one_test("Skip", error(48)), ("skipped", "", None, "none")),
        (one_test("Skip"), ("skipped", "", None, "none")),
        (one_test("Not Run"), ("skipped", "", None, "none")),
        (one_test("Fail", error(47, 5)), ("unknown", "", None, "none")),
        (one_test("Fail", error(130, 4)), ("unknown", "", None, "none")),
        (one_test("something new"), ("unknown", "", None, "none")),
        (one_test("Fail"), ("degraded", "memory", "degraded", "human")),
        (one_test("Warn"), ("degraded", "memory", "warning", "none")),
        (one_test("Fail", error(25, 6)), ("degraded", "25", "warning", "none")),
        (one_test("Fail", error(29, 5)), ("degraded", "29", "warning", "none")),
        (one_test("Warn", error(85, 6)), ("degraded", "85", "degraded", "reset_gpu")),
        (one_test("Fail", error(4)), ("degraded", "4", "degraded", "reset_gpu")),
        (one_test("Fail", error(84, 6)), ("degraded", "84", "warning", "none")),
        (one_test("Fail", error(111)), ("failed", "111", "fatal", "replace")),
        (one_test("Fail", error(118)), ("failed", "118", "fatal", "replace")),
        (one_test("Fail", error(126)), ("failed", "126", "fatal", "reboot")),
        (one_test("Fail", error(110, 4)), ("degraded", "110", "degraded", "human")),
        (one_test("Fail", error(64, 4)), ("degraded", "64", "warning", "none")),
        (one_test("Fail", error(4242, 1)), ("degraded", "4242", "degraded", "human")),
        (one_test("Warn", error(4242, 1)), ("degraded", "4242", "warning", "none")),
        (one_test("Fail", "words of an old version"), ("degraded", "memory", "degraded", "human")),
        (one_test("Fail", "GPU 0 has fallen off the bus"), ("failed", "120", "fatal", "reboot")),
    ],
)
def test_one_result(text: str, wanted: tuple[str, str, str | None, str]) -> None:
    (result,) = diag.judge("dcgm.diag1", diag.DiagFacts(diag.parse(text), GPUS))
    assert short(result)[1:] == wanted
    assert result.gpu_uuid == "GPU-0"
    assert result.sticky


def test_a_gpu_that_nobody_can_name_keeps_dcgms_number_and_text_with_control_characters_is_one_line() -> None:
    text = one_test("Fail", error(52, 2, "line one\nline\x1b[31m two")).replace('"entity_id": 0', '"entity_id": 7')
    (result,) = diag.judge("dcgm.diag1", diag.DiagFacts(diag.parse(text), GPUS))
    assert result.component == "dcgm-gpu-7"
    assert result.summary == "DCGM memory: line one line [31m two"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "{",
        "[]",
        "{}",
        '{"DCGM Diagnostic": 3}',
        '{"a": {"test_categories": []}}',
        "null",
        '{"a":' * 5000 + "}",
    ],
)
def test_what_is_no_diagnostic_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no JSON object|no DCGM diagnostic|nested|line 1 column"):
        diag.parse(text)


@pytest.mark.parametrize(
    "body",
    [
        {"test_categories": None},
        {"test_categories": {"tests": 1}},
        {"test_categories": [None, 1, "x", {"tests": [None, {"name": 3, "results": "x"}, {"results": [1, {}]}]}]},
        {
            "test_categories": [
                {"tests": [{"results": [{"status": None, "warnings": 5, "gpu_id": "a,b", "info": None}]}]}
            ]
        },
    ],
)
def test_odd_shapes_never_raise_and_are_never_a_fault_of_a_gpu(body: dict[str, Any]) -> None:
    parsed = diag.parse(json.dumps({"DCGM Diagnostic": body}))
    for result in diag.judge("dcgm.diag1", diag.DiagFacts(parsed, GPUS)):
        assert result.verdict in (Verdict.UNKNOWN, Verdict.SKIPPED)


def health_of(name: str) -> dict[tuple[str, str], Result]:
    overall, incidents = health.parse((CAPTURED / name).read_text())
    results = health.judge("dcgm.health", health.HealthFacts(overall, incidents, GPUS))
    return {(result.component, result.code): result for result in results}


def test_each_incident_of_health_is_a_finding_and_the_other_gpus_are_ok() -> None:
    found = health_of("health-4.6.json")
    assert {(key, short(result)[1:]) for key, result in found.items()} == {
        (("GPU-0", "85"), ("degraded", "85", "degraded", "reset_gpu")),
        (("GPU-0", "4"), ("degraded", "4", "degraded", "reset_gpu")),
        (("GPU-0", "11"), ("degraded", "11", "warning", "none")),
        (("GPU-1", ""), ("ok", "", None, "none")),
        (("GPU-2", ""), ("ok", "", None, "none")),
        (("node", "15 switch 3"), ("failed", "15 switch 3", "fatal", "reboot")),
    }
    assert "row remappings are pending" in found["GPU-0", "85"].summary


def report(overall: str, **systems: tuple[str, str]) -> str:
    errors_ = {name: {"value": value, "overflow": [text]} for name, (value, text) in systems.items()}
    body: dict[str, Any] = {"Overall Health": {"value": overall}}
    if systems:
        body["GPU"] = {"children": {"0": {"value": overall, "children": {"Errors": {"children": errors_}}}}}
    return json.dumps({"header": ["Health Monitor Report"], "body": body})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (report("Healthy"), ("ok", "", None)),
        (
            report("Warning", Thermal=("Warning", "Detected clocks event due to thermal violation")),
            ("degraded", "10", "warning"),
        ),
        (report("Failure", Driver=("Failure", "GPU 0 has fallen off the bus")), ("failed", "120", "fatal")),
        (report("Failure", Driver=("Failure", "words of next year")), ("degraded", "driver", "degraded")),
        (report("Warning", Driver=("Warning", "words of next year")), ("degraded", "driver", "warning")),
        (report("Failure", Memory=("Failure", "Detected XID 31 for GPU 0")), ("degraded", "101", "warning")),
    ],
)
def test_one_health_report(text: str, wanted: tuple[str, str, str | None]) -> None:
    overall, incidents = health.parse(text)
    results = health.judge("dcgm.health", health.HealthFacts(overall, incidents, GPUS))
    (of_gpu,) = [result for result in results if result.component == "GPU-0"]
    assert (of_gpu.verdict, of_gpu.code, of_gpu.severity) == wanted


def test_an_unhealthy_report_without_an_incident_is_unknown_and_clears_nothing() -> None:
    overall, incidents = health.parse(report("Internal error"))
    (result,) = health.judge("dcgm.health", health.HealthFacts(overall, incidents, GPUS))
    assert result.verdict is Verdict.UNKNOWN


def test_discovery_names_the_gpus_and_takes_no_switch_for_one() -> None:
    known = GpuRef(uuid="GPU-5c6c3f4a-0000-0000-0000-000000000001", minor=5)
    found = discovered((CAPTURED / "discovery.txt").read_text(), GpuInventory((known,)))
    assert found[1] is known
    assert found[0].pci == "0000:53:00.0"
    assert sorted(found) == [0, 1]


def test_every_error_of_the_table_has_a_name_and_every_text_a_number() -> None:
    table = errors._table()
    assert len(table) == 133
    assert all(name and kind in {*errors.SEVERITIES.values(), "none"} for name, kind, _category in table.values())
    names = {row[0] for row in table.values()}
    assert names >= set(errors._BY_NAME) | errors.SAYS_NOTHING | errors.NOT_APPLICABLE
    for name, _pattern in errors._TEXTS:
        assert name in names
    assert errors.by_number(9999).severity is Severity.WARNING
    assert errors.by_number(9999).remedy is Remedy.NONE


def fake(folder: Path, script: str) -> Context:
    command = folder / "dcgmi"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return Context(CheckSettings(dcgm=DcgmSettings(dcgmi=str(command), health_deadline_s=0.8)))


NO_ENGINE = (
    "echo 'Error: unable to establish a connection to the specified host: localhost'\n"
    "echo 'Error: Unable to connect to host engine. Host engine connection invalid/disconnected.'\nexit 1"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "verdict", "words"),
    [
        (NO_ENGINE, Verdict.SKIPPED, "host engine"),
        (
            "echo 'Error: Health watches not enabled. Please enable watches. '; exit 255",
            Verdict.SKIPPED,
            "watches are off",
        ),
        ("echo 'Error: Unable to check health watches. Return: busy'; exit 255", Verdict.UNKNOWN, "Return: busy"),
        ("echo '{\"body\": {}}'", Verdict.UNKNOWN, "no health report"),
        ("sleep 20", Verdict.UNKNOWN, "no answer within"),
        ("trap '' TERM; sleep 20 & wait; sleep 20", Verdict.UNKNOWN, "no answer within"),
        ("exec head -c 6000000 /dev/zero", Verdict.UNKNOWN, "said more than"),
    ],
)
def test_a_dcgm_that_is_absent_hangs_or_talks_nonsense(
    tmp_path: Path, script: str, verdict: Verdict, words: str
) -> None:
    began_s = time.monotonic()
    (result,) = run(dcgm_health.CHECK, fake(tmp_path, script))
    assert result.verdict is verdict
    assert words in result.summary
    assert time.monotonic() - began_s < 5


@pytest.mark.slow
def test_no_dcgmi_is_skipped_by_every_check_of_dcgm() -> None:
    context = Context(CheckSettings(dcgm=DcgmSettings(dcgmi="/nonexistent/dcgmi")))
    for check in (check for name, check in all_checks().items() if name.startswith("dcgm.")):
        (result,) = run(check, context)
        assert result.verdict is Verdict.SKIPPED, result
        assert "not installed" in result.summary


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error_text", "verdict"),
    [
        ("Error: Diagnostic can only be performed on a homogeneous group of GPUs.", Verdict.SKIPPED),
        ("Error: Unable to complete diagnostic for group 0. Return: (-3) : busy", Verdict.UNKNOWN),
    ],
)
def test_a_diagnostic_that_dcgm_refuses(tmp_path: Path, error_text: str, verdict: Verdict) -> None:
    answer = json.dumps({"DCGM Diagnostic": {"version": "4.6.0", "runtime_error": error_text}})
    (result,) = run(all_checks()["dcgm.diag1"], fake(tmp_path, f"cat <<'END'\n{answer}\nEND\nexit 1"))
    assert result.verdict is verdict
    assert error_text[:40] in result.summary


def test_a_diagnostic_is_never_run_by_itself_and_the_first_level_fits_a_prolog() -> None:
    checks = all_checks()
    assert [checks[f"dcgm.diag{level}"].cost for level in (1, 2, 3)] == [Cost.LIGHT, Cost.ACTIVE, Cost.ACTIVE]
    assert checks["dcgm.diag1"].deadline_s <= 10


@pytest.mark.slow
def test_a_diagnostic_out_of_time_is_asked_to_end_before_it_is_killed(tmp_path: Path) -> None:
    """``dcgmi`` stops the diagnostic in the host engine when it gets SIGTERM; after SIGKILL it would continue there."""
    script = f"trap 'touch {tmp_path}/asked; exit 1' TERM\nsleep 20 & wait"
    (result,) = run(dcgm_health.CHECK, fake(tmp_path, script))
    assert result.verdict is Verdict.UNKNOWN
    assert (tmp_path / "asked").exists()
    assert not subprocess.run(["pgrep", "-f", str(tmp_path / "dcgmi")], capture_output=True, check=False).stdout
