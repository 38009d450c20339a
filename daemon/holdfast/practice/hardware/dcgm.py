"""An emulated ``dcgmi`` for one node: a script in the node's folder, and ``dcgm.json`` with the present faults.

The command answers ``discovery -l``, ``health -g G -c -j`` and ``diag -r N -j`` in the shapes of DCGM 4.6 (``Diag.cpp``, ``Health.cpp`` and
``Query.cpp`` of its sources)."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from holdfast.practice.nvml import state as nvml
from holdfast.practice.nvml.build import STATE_FILE

STATE = "dcgm.json"
COMMAND = "dcgmi"
_HEALTHY = "dcgm-healthy.json"
_GPUS = "dcgm-gpus.txt"
_SCRIPT = """#!/bin/sh
here="${{0%/*}}"
case "$1" in
discovery) exec cat "$here/{gpus}" ;;
health) [ -e "$here/{state}" ] || exec cat "$here/{healthy}" ;;
esac
exec {python} -m {module} "$here" "$@"
"""
_VERSION = "4.6.0"
_HANG_S = 3600.0
_LEVELS: dict[int, tuple[tuple[str, str], ...]] = {
    1: (("Deployment", "software"),),
    2: (("Deployment", "software"), ("Integration", "pcie"), ("Hardware", "memory")),
    3: (
        ("Deployment", "software"),
        ("Integration", "pcie"),
        ("Hardware", "memory"),
        ("Hardware", "diagnostic"),
        ("Hardware", "nvbandwidth"),
        ("Stress", "memory_bandwidth"),
        ("Stress", "targeted_stress"),
        ("Stress", "targeted_power"),
    ),
}
TESTS = tuple(dict.fromkeys(test for tests in _LEVELS.values() for _category, test in tests))
SYSTEMS = {
    "memory": ("Memory system", "Failure", "GPU {gpu} had uncorrectable memory errors and row remapping failed."),
    "nvlink": ("NVLINK system", "Failure", "GPU {gpu}'s NvLink link 4 is currently down"),
    "inforom": ("InfoROM system", "Warning", "A corrupt InfoROM has been detected in GPU {gpu}."),
    "pcie": ("PCIe system", "Warning", "Detected more than 96 PCIe replays per minute for GPU {gpu} : 1200"),
    "thermal": ("Thermal system", "Warning", "Detected clocks event due to thermal violation in GPU {gpu}."),
    "recovery": (
        "Internal error",
        "Failure",
        "GPU {gpu} fault may have left the OS in an inconsistent state. Recovery action: 2 (NODE_REBOOT).",
    ),
}
"""Faults of ``dcgm_health_fail``: DCGM's name for the system, its health and its message."""
ERRORS: dict[str, tuple[int, int, int, str]] = {
    "software": (85, 6, 10, "GPU {gpu} had memory errors and row remappings are pending"),
    "pcie": (
        46,
        5,
        13,
        "GPU {gpu} is running at PCI link width 8X, which is below the minimum allowed link width of 16X",
    ),
    "memory": (52, 2, 10, "Faulty memory detected on GPU {gpu}: 3 mismatches"),
    "diagnostic": (111, 2, 10, "Found 12 nan-value memory elements on GPU {gpu}"),
    "nvbandwidth": (
        30,
        4,
        13,
        "Bandwidth of GPU {gpu} in direction d2h of 9.10 did not exceed minimum required bandwidth of 20.00.",
    ),
    "memory_bandwidth": (62, 4, 1, "GPU {gpu} only achieved a memory bandwidth of 900.00 GB/s, below 1200.00 GB/s"),
    "targeted_stress": (50, 4, 1, "GPU {gpu} stress level of 3000 did not reach desired stress level 9000"),
    "targeted_power": (63, 4, 14, "Max power of 310.0 did not reach desired power minimum 560.0 for GPU {gpu}"),
}
"""Failures of ``dcgm_diag_fail`` per test: DCGM's error id, severity, category and message."""


def install(folder: Path) -> None:
    """Install the command for new hardware, without faults. The shell answers the calls that agents repeat often: with many nodes on
    one machine, a Python process per call would be too slow."""
    (folder / STATE).unlink(missing_ok=True)
    state = nvml.read(folder / STATE_FILE)
    (folder / _HEALTHY).write_text(json.dumps(_health(state, {}), indent=3) + "\n")
    (folder / _GPUS).write_text(_discovery(state))
    script = folder / COMMAND
    script.write_text(
        _SCRIPT.format(state=STATE, healthy=_HEALTHY, gpus=_GPUS, python=sys.executable, module=f"{__name__}i")
    )
    script.chmod(0o755)


def wrong(folder: Path) -> dict[str, Any]:
    """``diag``: test → GPU minor; ``health``: system → GPU minor; ``hang``."""
    try:
        told: dict[str, Any] = json.loads((folder / STATE).read_text())
    except FileNotFoundError:
        told = {}
    return {"diag": told.get("diag", {}), "health": told.get("health", {}), "hang": told.get("hang", False)}


def put(folder: Path, what: dict[str, Any]) -> None:
    """Set the present faults."""
    temporary = folder / f"{STATE}.{os.getpid()}.tmp"
    temporary.write_text(json.dumps(what))
    temporary.replace(folder / STATE)


def main(folder: Path, arguments: list[str]) -> int:
    """Answer as ``dcgmi`` with these arguments. Returns the exit status."""
    state, told = nvml.read(folder / STATE_FILE), wrong(folder)
    if told["hang"]:
        time.sleep(_HANG_S)
    match arguments:
        case ["health", "-g", _, "-c", "-j"]:
            sys.stdout.write(json.dumps(_health(state, told["health"]), indent=3) + "\n")
            return 0
        case ["diag", "-r", ("1" | "2" | "3") as level, "-j"]:
            answer, failed = _diag(state, int(level), told["diag"])
            sys.stdout.write(json.dumps(answer, indent=2) + "\n")
            return 226 if failed else 0  # DCGM_ST_NVVS_ERROR (-30) as an exit status
    sys.stdout.write("PARSE ERROR: arguments not known to this emulation\n")
    return 1


def _discovery(state: nvml.NvmlState) -> str:
    line = "+--------+" + "-" * 70 + "+\n"
    rows = [
        f"{len(state.gpus)} GPUs found.\n",
        line,
        f"| GPU ID | {'Device Information':<69}|\n",
        line.replace("-", "="),
    ]
    for index, gpu in enumerate(state.gpus):
        rows.append(f"| {index:<7}| {'Name: Practice GPU':<69}|\n")
        rows.append(f"|        | {'PCI Bus ID: ' + gpu.pci.upper():<69}|\n")
        rows += [f"|        | {'Device UUID: ' + gpu.uuid:<69}|\n", line]
    return "".join([*rows, "0 NvSwitches found.\n"])


def _health(state: nvml.NvmlState, incidents: dict[str, int]) -> dict[str, Any]:
    gpus: dict[str, Any] = {}
    worst = "Healthy"
    for system, minor in incidents.items():
        index = str(nvml.index_of_minor(state, minor))
        name, health, text = SYSTEMS[system]
        worst = "Failure" if "Failure" in (health, worst) else health
        gpu = gpus.setdefault(index, {"children": {"Errors": {"children": {}}}})
        gpu["value"] = "Failure" if gpu.get("value") == "Failure" else health
        words = text.format(gpu=index)
        cut = words.rfind(" ", 0, 54) if len(words) > 54 else len(words)
        pieces = [piece for piece in (words[:cut], words[cut:].strip()) if piece]
        gpu["children"]["Errors"]["children"][name] = {"overflow": pieces, "value": health}
    body: dict[str, Any] = {"Overall Health": {"value": worst}}
    if gpus:
        body["GPU"] = {"children": gpus}
    return {"body": body, "header": ["Health Monitor Report"]}


def _diag(state: nvml.NvmlState, level: int, failing: dict[str, int]) -> tuple[dict[str, Any], bool]:
    categories: dict[str, list[dict[str, Any]]] = {}
    failed = False
    for category, test in _LEVELS[level]:
        hurt = nvml.index_of_minor(state, failing[test]) if test in failing else None
        failed = failed or hurt is not None
        results = [_result(test, index, bad=index == hurt) for index in range(len(state.gpus))]
        summary: dict[str, Any] = {"status": "Fail" if hurt is not None else "Pass"}
        if hurt is not None:
            summary["warnings"] = results[hurt]["warnings"]
        categories.setdefault(category, []).append({"name": test, "results": results, "test_summary": summary})
    entities = [{"device_id": "20b0", "entity_id": i, "serial_num": f"15600{i}"} for i in range(len(state.gpus))]
    answer = {
        "DCGM Diagnostic": {
            "test_categories": [{"category": name, "tests": tests} for name, tests in categories.items()]
        },
        "entity_groups": [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}],
        "metadata": {"Driver Version Detected": "580.95.05", "version": _VERSION},
    }
    return answer, failed


def _result(test: str, index: int, *, bad: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": index, "status": "Pass"}
    if bad:
        number, severity, category, text = ERRORS[test]
        warning = {"error_category": category, "error_id": number, "error_severity": severity}
        result |= {"status": "Fail", "warnings": [{**warning, "warning": text.format(gpu=index)}]}
    return result
