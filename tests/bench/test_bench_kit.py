"""What the benches rely on: a check's cost is separate, other tools' CPU time is complete, latencies are paired correctly."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench.kit import breakdown, others  # noqa: E402
from bench.kit.endpoint import Endpoint  # noqa: E402
from bench.kit.slurmview import Trace  # noqa: E402
from bench.kit.stage import heartbeat_heard, resumed_from  # noqa: E402

from bench import events  # noqa: E402
from holdfast.config.agent import AgentConfig  # noqa: E402
from holdfast.model.errors import Unavailable  # noqa: E402
from holdfast_checks.registry import Check, Cost, Need  # noqa: E402
from holdfast_checks.result import Remedy, Result, Severity  # noqa: E402

BURN = "import time\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass\n"


def a_check(gather: Callable[[Any], Any]) -> Check:
    return Check(
        "host.x",
        "x",
        frozenset({Need.HOST}),
        360.0,
        Cost.PASSIVE,
        Severity.WARNING,
        Remedy.NONE,
        gather,
        lambda _facts: (Result.ok("host.x"), Result.ok("host.x"), Result.skipped("host.x")),
    )


def test_a_checks_cost_is_its_cpu_with_its_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakdown, "_LONGEST_S", 0.0)
    snapshots: Any = [SimpleNamespace(gpus=())]
    argv = [sys.executable, "-S", "-c", BURN]

    def command(_context: Any) -> None:
        subprocess.run(argv, check=True)

    dear = breakdown._check(a_check(command), AgentConfig(), snapshots)
    assert 50 <= dear.ms < 500
    assert (dear.per_hour, dear.verdicts) == (10.0, "2 ok, 1 skipped")
    assert dear.s_per_hour == pytest.approx(dear.ms / 100)
    cheap = breakdown._check(a_check(lambda _context: None), AgentConfig(intervals={"host.x": 60.0}), snapshots)
    assert cheap.ms < 5
    assert cheap.per_hour == 60.0


def _script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_nhc_is_run_on_its_own_configuration_and_marks_no_node(tmp_path: Path) -> None:
    told = tmp_path / "told"
    _script(
        tmp_path / "nhc-genconf",
        'while [ "$1" != -c ]; do shift; done; printf "# x\\n * || check_a\\n * || check_b\\n" > "$2"\n',
    )
    burn = _script(tmp_path / "burn.py", BURN)
    _script(tmp_path / "nhc", f'echo "$@" > {told}\n{sys.executable} -S {burn}\nexit 1\n')
    spent = others.nhc(tmp_path)
    assert spent.name == "NHC, 2 checks, exit status 1"
    assert 0.05 <= spent.cpu_s < 0.5, "what its commands used is its own"
    assert spent.per_hour_s == pytest.approx(12 * spent.cpu_s)
    for words in ("MARK_OFFLINE=0", "NHC_CHECK_ALL=1", f"INCDIR={tmp_path}/scripts"):
        assert words in told.read_text()


def test_gcm_is_run_check_by_check(tmp_path: Path) -> None:
    told = tmp_path / "told"
    body = f'#!/bin/sh\necho "$SEEN $@" >> {told}\ncase $1 in check-node) exit 7;; check-storage) exit 2;; esac\n'
    _script(tmp_path / "bin" / "health_checks", body)
    spent = others.gcm(tmp_path, {"SEEN": "emulated"})
    lines = told.read_text().splitlines()
    assert len(lines) == len(others.GCM_CHECKS)
    assert all(line.startswith("emulated check-") for line in lines)
    assert all("bench nagios --sink do_nothing" in line for line in lines)
    assert spent.failed == ["check-node uptime (7)"]
    assert len(spent.parts) == len(others.GCM_CHECKS)


@pytest.mark.parametrize("ask", [others.nhc, lambda folder: others.gcm(folder, {})])
def test_a_tool_that_is_not_there_is_said_so(tmp_path: Path, ask: Callable[[Path], object]) -> None:
    with pytest.raises(Unavailable, match=r"gpucm|mej/nhc"):
        ask(tmp_path)


def _post(url: str, body: object) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310
    urllib.request.urlopen(request, timeout=5).close()  # noqa: S310 - loopback


def test_the_endpoint_notes_the_first_arrival_of_each_finding() -> None:
    with Endpoint().listening() as endpoint:
        finding = {"kind": "finding", "check": "gpu.xid", "code": "79"}
        _post(f"{endpoint.url}/v1/heartbeats", {"all_ok": True})
        _post(f"{endpoint.url}/v1/reports", {"items": [finding, {"kind": "inventory"}]})
        first_s = endpoint.seen["gpu.xid", "79"]
        _post(f"{endpoint.url}/v1/reports", {"items": [finding, {**finding, "code": "48"}]})
        assert endpoint.wait(2, 5.0)
        assert endpoint.wait_for_inventory(5.0)
        assert endpoint.seen["gpu.xid", "79"] == first_s < endpoint.seen["gpu.xid", "48"]
        assert not endpoint.wait(3, 0.01)


def test_latencies_are_of_what_arrived() -> None:
    assert events.latencies({"1": 1.0, "2": 2.0, "3": 3.0}, {"1": 1.5, "3": 3.25, "9": 9.0}) == [0.5, 0.25]


@pytest.mark.parametrize(
    ("status", "all_ok", "interval_s", "expected"),
    [
        ("heard", True, 4.0, True),
        ("heard", False, 4.0, False),
        ("silent", True, 4.0, False),
        ("heard", True, 10.0, False),
    ],
)
def test_a_stage_is_ready_once_each_agent_beats_as_the_controller_gives_it(
    status: str, all_ok: bool, interval_s: float, expected: bool
) -> None:
    """A report makes an agent count as reporting, too, but has neither its interval nor that all is OK."""
    agent = {"status": status, "all_ok": all_ok, "heartbeat_interval_s": interval_s}
    assert heartbeat_heard(agent) is expected


def test_a_job_resumed_from_its_newest_checkpoint_or_from_an_older_one() -> None:
    trace = Trace("n1", 7, Path("out"))
    trace.lines = [
        (1.0, "starting from step 0 world_size=3"),
        (2.0, "checkpoint step 10"),
        (3.0, "checkpoint step 20"),
        (4.0, "step 22"),
    ]
    assert resumed_from(trace, 5.0) is None
    trace.lines += [
        (6.0, "first line 1.5"),
        (7.0, "resumed from step 20 world_size=3 run=1"),
        (8.0, "checkpoint step 30"),
    ]
    assert resumed_from(trace, 5.0) == (20, 20)
    trace.lines[5] = (7.0, "resumed from step 10 world_size=3 run=1")
    assert resumed_from(trace, 5.0) == (10, 20)
    assert resumed_from(trace, 9.0) is None
