"""Each fault of the network through the real agent: injected into the machine's files, reported by check, component and remedy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.practice.cluster.host import PracticeHost
from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.faults import all_faults
from holdfast.practice.hardware import network
from holdfast_checks.known import all_checks
from support.agent_bench import FakeController, Folder, Json
from support.sysfs_tree import lay_out

pytestmark = pytest.mark.slow

OURS = ("efa.", "ib.", "net.")
LOOKS_S = 2.0
"""More than three samples at the shortest interval, and the delivery of a report."""


@dataclass
class Node:
    """A machine with its agent at work."""

    machine: PracticeMachine
    controller: FakeController

    def inject(self, fault: str, value: str = "") -> None:
        all_faults()[fault].apply(self.machine, value, 0)

    def heal(self, fault: str) -> None:
        heal = all_faults()[fault].heal
        assert heal is not None
        heal(self.machine)

    def said(self, kind: str) -> list[Json]:
        return [item for item in self.controller.items(kind) if item["check"].startswith(OURS)]

    def finding(self, check: str, component: str) -> Json:
        """Wait for a finding of the check on the component."""

        def named() -> list[Json]:
            return [one for one in self.said("finding") if (one["check"], one["component"]) == (check, component)]

        self.controller.wait(lambda: bool(named()))
        return named()[-1]

    def carry(self) -> None:
        """Traffic, until a heartbeat shows it: the first sample after a counter reset does not count it as traffic."""
        seen = len(self.controller.heartbeats)
        until_s = time.monotonic() + 30
        while not any(beat["fabric_silent_s"] == 0 for beat in self.controller.heartbeats[seen:]):
            assert time.monotonic() < until_s, "the agent did not report the traffic"
            self.inject("rdma_traffic", "1")
            time.sleep(0.2)

    def fabric_is(self, said: Callable[[float | None], bool]) -> None:
        """Wait for a current heartbeat that shows this state of the fabric."""
        seen = len(self.controller.heartbeats)
        self.controller.wait(lambda: any(said(beat["fabric_silent_s"]) for beat in self.controller.heartbeats[seen:]))

    def cleared(self, check: str, component: str) -> None:
        self.controller.wait(
            lambda: any((one["check"], one["component"]) == (check, component) for one in self.said("clear"))
        )


@contextmanager
def node(path: Path, layout: network.NetworkLayout, intervals_s: dict[str, float] | None = None) -> Iterator[Node]:
    """A machine with such devices; its agent checks only the network, twice a second."""
    controller = FakeController()
    folder = Folder(path, controller.url)
    (path / "network.json").write_text(f'{{"efa": {layout.efa}, "ib": {layout.ib}}}')
    network.install(path)
    (path / "spool").mkdir()
    ours = [name for name in all_checks() if name.startswith(OURS)]
    others = [name for name in all_checks() if name not in ours]
    intervals = {**dict.fromkeys(ours, 0.5), **(intervals_s or {})}
    folder.write_config(
        f'controllers = ["{controller.url}"]\nact_on = ["*"]\ndisabled_checks = {others}\n'
        + "[intervals]\n"
        + "".join(f'"{name}" = {seconds}\n' for name, seconds in intervals.items())
        + f'[network]\ndefault_route_device = "{network.DEFAULT_ROUTE}"\nfi_info = "{path / network.FI_INFO}"\n'
        + f'slurmd_spool = "{path / "spool"}"\nmemlock_gib = 0.0\nbusy_after_min = 0.02\nsilent_after_min = 0.02\n'
    )
    if layout.ib:  # one that never had a cable
        network.write(path / f"sys/class/infiniband/{network.ib_name(layout.ib - 1)}/ports/1/state", "1: DOWN")
    machine = cast("PracticeMachine", SimpleNamespace(name="n1", host=PracticeHost(path, "n1", 0)))
    process = folder.start()
    try:
        controller.wait(lambda: len(controller.heartbeats) > 2)
        yield Node(machine, controller)
    finally:
        process.kill()
        process.wait()
        controller.close()
    assert "Traceback" not in folder.agent_log


@pytest.fixture(scope="module")
def efa_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with node(tmp_path_factory.mktemp("efa"), network.NetworkLayout(efa=4)) as one:
        yield one


@pytest.fixture(scope="module")
def ib_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with node(tmp_path_factory.mktemp("ib"), network.NetworkLayout(efa=0, ib=6)) as one:
        yield one


def near_misses_of_efa(machine: PracticeMachine) -> None:
    sysfs = machine.host.sysfs
    first = sysfs / "class/infiniband" / network.efa_name(0)
    network.write(first / "ports/1/state", "1: DOWN")  # a constant in the real driver: never judged
    network.add(first / "ports/1/hw_counters/rx_drops", 40)
    network.add(first / "hw_counters/cmds_err", 2)
    network.add(first / "hw_counters/submitted_cmds", 1)  # no keep-alive for less than the time that it takes
    network.write(sysfs / "class/net" / network.DEFAULT_ROUTE / "carrier_down_count", 1)
    bridge = "class/infiniband/mlx5_9"
    lay_out(
        sysfs,
        f"{bridge}/device -> ../../../bus/pci/devices/0000:f1:00.0\n{bridge}/ports/1/state = 1: DOWN\n"
        "bus/pci/devices/0000:f1:00.0/driver -> ../../drivers/mlx5_core\n",
    )


def near_misses_of_infiniband(machine: PracticeMachine) -> None:
    port = machine.host.sysfs / "class/infiniband" / network.ib_name(4) / "ports/1"
    network.add(port / "counters/symbol_error", 5)
    network.add(port / "counters/port_xmit_discards", 20)
    network.write(port / "rate", "399.9 Gb/sec (4X NDR)")
    network.write(port / "state", "1: DOWN")
    time.sleep(0.6)
    network.write(port / "state", "4: ACTIVE")


@pytest.mark.parametrize(
    ("which", "near_misses"), [("efa_node", near_misses_of_efa), ("ib_node", near_misses_of_infiniband)]
)
def test_near_misses_stay_silent(
    which: str, near_misses: Callable[[PracticeMachine], None], request: pytest.FixtureRequest
) -> None:
    one: Node = request.getfixturevalue(which)
    near_misses(one.machine)
    time.sleep(LOOKS_S)
    assert one.said("finding") == []


@pytest.mark.parametrize(
    ("fault", "value", "check", "component", "code", "severity", "remedy"),
    [
        ("efa_gone", "", "efa.count", "0000:52:1b.0", "gone", "fatal", "reboot"),
        ("efa_unbound", "rdmap81s27", "efa.count", "0000:51:1b.0", "unbound", "fatal", "reboot"),
        ("efa_no_completion", "", "efa.admin", "rdmap79s27", "no_completion_cmds", "fatal", "reboot"),
        ("efa_drops", "", "efa.counters", "rdmap79s27", "rx_drops", "warning", "none"),
        (
            "efa_unresponsive",
            "rdmap80s27",
            "efa.counters",
            "rdmap80s27",
            "unresponsive_remote_events",
            "warning",
            "none",
        ),
        ("efa_no_provider", "", "efa.provider", "node", "none", "degraded", "reboot"),
        ("carrier_down", "", "efa.carrier", "rdmap79s27", "no_carrier", "degraded", "reboot"),
        ("carrier_flap", "", "net.ethernet", "ens5", "flapping", "warning", "none"),
        ("module_missing", "", "net.modules", "ib_uverbs", "missing", "degraded", "reboot"),
        ("ib_down", "", "ib.port", "mlx5_0/1", "down", "fatal", "human"),
        ("ib_gone", "mlx5_1", "ib.port", "mlx5_1/1", "gone", "fatal", "reboot"),
        ("ib_slow", "mlx5_2", "ib.port", "mlx5_2/1", "slow", "degraded", "human"),
        ("ib_flap", "mlx5_3", "ib.flaps", "mlx5_3/1", "unstable", "warning", "none"),
        ("ib_errors", "mlx5_4", "ib.counters", "mlx5_4/1", "symbol_error", "degraded", "human"),
    ],
)
def test_a_fault_is_reported_and_what_heals_is_cleared(
    fault: str,
    value: str,
    check: str,
    component: str,
    code: str,
    severity: str,
    remedy: str,
    request: pytest.FixtureRequest,
) -> None:
    one: Node = request.getfixturevalue("ib_node" if fault.startswith("ib_") else "efa_node")
    one.inject(fault, value)
    found = one.finding(check, component)
    assert (found["code"], found["severity"], found["remedy"]) == (code, severity, remedy)
    if all_faults()[fault].heal is not None:
        one.heal(fault)
        one.cleared(check, component)


def test_a_job_that_falls_silent_is_recorded_and_one_that_goes_on_is_not(efa_node: Node) -> None:
    (efa_node.machine.host.folder / "spool/n1_7.0").touch()

    def busy(seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            efa_node.inject("rdma_traffic", "1")
            time.sleep(0.1)

    busy(2 * LOOKS_S)
    assert not any(one["check"] == "efa.silence" for one in efa_node.said("finding"))
    found = efa_node.finding("efa.silence", "node")
    assert (found["code"], found["severity"], found["remedy"]) == ("silent", "warning", "none")
    assert found["evidence"]["jobs"] == "7"
    busy(LOOKS_S)
    efa_node.cleared("efa.silence", "node")


@pytest.mark.parametrize("layout", [network.NetworkLayout(efa=32), network.NetworkLayout(efa=0, ib=8)])
def test_heartbeats_tell_how_long_the_fabric_has_been_silent(tmp_path: Path, layout: network.NetworkLayout) -> None:
    def silent(seconds: float | None) -> bool:
        return seconds is not None and seconds > 1

    with node(tmp_path, layout) as one:
        time.sleep(LOOKS_S)
        assert {beat["fabric_silent_s"] for beat in one.controller.heartbeats} == {None}, (
            "none carried yet: nothing known"
        )
        one.carry()
        one.fabric_is(silent)
        one.carry()
        one.fabric_is(silent)
        devices = one.machine.host.sysfs / "class/infiniband"
        counter = min(
            devices.glob("*/ports/1/hw_counters/rx_bytes" if layout.efa else "*/ports/1/counters/port_rcv_data")
        )
        network.write(counter, 0)  # its driver was loaded again
        one.fabric_is(lambda seconds: seconds is None)
        one.carry()
        one.fabric_is(silent)
        network.remove_device(one.machine.host.sysfs, max(path.name for path in devices.iterdir()))
        one.fabric_is(lambda seconds: seconds is None)
        time.sleep(LOOKS_S)
        assert one.controller.heartbeats[-1]["fabric_silent_s"] is None


def test_a_device_that_completes_nothing_and_sends_no_keep_alive_is_dead(tmp_path: Path) -> None:
    with node(tmp_path, network.NetworkLayout(efa=2), {"efa.admin": 11.5}) as one:
        one.inject("efa_dead")
        found = one.finding("efa.admin", "rdmap79s27")
        assert (found["code"], found["severity"], found["remedy"]) == ("dead", "fatal", "reboot")
        assert {item["component"] for item in one.said("finding")} == {"rdmap79s27"}
