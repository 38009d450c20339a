"""The judges of InfiniBand, RoCE and Ethernet, as tables: each fault, and near misses that must stay silent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_checks.checks import ib_counters, ib_flaps, ib_port, net_ethernet
from holdfast_checks.link_history import LinkHistory, observe, trouble
from holdfast_checks.probes.fabric import FabricPort
from holdfast_checks.probes.rdma import Device, Port
from holdfast_checks.registry import Check, Context, Sample, SampleChange
from holdfast_checks.result import Result
from holdfast_checks.runner import Samples, run
from holdfast_checks.settings import CheckSettings, NetworkSettings
from support.sysfs_tree import captured

Found = set[tuple[str, str, str | None, str]]


def bad(results: tuple[Result, ...]) -> Found:
    """(component, code, severity, remedy) of each finding."""
    return {(one.component, one.code, one.severity, one.remedy) for one in results if one.bad}


def port(number: int = 0, state: str = "ACTIVE", rate: float | None = 400.0, phys: str = "LinkUp") -> FabricPort:
    device = Device(f"mlx5_{number}", "mlx5_core", f"0000:{number + 16:02x}:00.0")
    return FabricPort(device, Port(1, state, phys, rate, "InfiniBand"))


DOWN = port(state="DOWN", rate=10.0, phys="Polling")
TWO = {"mlx5_0/1": 400.0, "mlx5_1/1": 400.0}
Facts = ib_port.IbPortFacts


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        (Facts((port(), port(1)), TWO), set()),
        (Facts((DOWN, port(1)), TWO), {("mlx5_0/1", "down", "fatal", "human")}),
        (Facts((port(state="INIT"),), {"mlx5_0/1": 400.0}), {("mlx5_0/1", "not_active", "degraded", "human")}),
        (Facts((port(rate=200),), {"mlx5_0/1": 400.0}), {("mlx5_0/1", "slow", "degraded", "human")}),
        (Facts((port(rate=200),), expected_rate_gbps=400), {("mlx5_0/1", "slow", "degraded", "human")}),
        (Facts((port(1),), TWO), {("mlx5_0/1", "gone", "fatal", "reboot")}),
        (Facts((port(),), expected_ports=2), {("node", "missing", "degraded", "human")}),
        (Facts((port(), port(1, "DOWN")), expected_ports=2), {("node", "missing", "degraded", "human")}),
        (
            Facts((port(rate=200),), {"mlx5_0/1": 400.0}, expected_ports=2),
            {("mlx5_0/1", "slow", "degraded", "human"), ("node", "missing", "degraded", "human")},
        ),
        # one that is down has its name already: the number says nothing more
        (Facts((DOWN, port(1)), TWO, expected_ports=2), {("mlx5_0/1", "down", "fatal", "human")}),
        # near misses: never had a cable; the same rate in other digits; faster than before; unreadable; under other names
        (Facts((DOWN, port(1))), set()),
        (Facts((port(rate=399.9),), {"mlx5_0/1": 400.0}), set()),
        (Facts((port(rate=800),), {"mlx5_0/1": 400.0}), set()),
        (Facts((port(rate=None),), {"mlx5_0/1": 400.0}), set()),
        (Facts((port(state=""),), {"mlx5_0/1": 400.0}), set()),
        (Facts((port(4), port(5)), TWO), set()),
        (Facts((port(), DOWN), expected_ports=1), set()),
    ],
)
def test_port(facts: Facts, wanted: Found) -> None:
    assert bad(ib_port.judge(facts)) == wanted


def test_a_port_is_missed_once_it_was_up(tmp_path: Path) -> None:
    sysfs = captured(tmp_path, "network/hgx.tree")
    settings = CheckSettings(sysfs=sysfs, state_dir=tmp_path, network=NetworkSettings(default_route_device="bond0.100"))
    first = {one.component: one.verdict.value for one in run(ib_port.CHECK, Context(settings))}
    assert first == {"mlx5_0/1": "ok", "mlx5_1/1": "skipped", "mlx5_4/1": "ok"}
    folder = sysfs / "class/infiniband/mlx5_0/ports/1"
    (folder / "state").write_text("1: DOWN\n")
    (folder / "phys_state").write_text("2: Polling\n")
    (found,) = (one for one in run(ib_port.CHECK, Context(settings)) if one.bad)
    assert (found.component, found.code, found.pci) == ("mlx5_0/1", "down", "0000:18:00.0")
    (folder / "state").write_text("4: ACTIVE\n")
    (folder / "rate").write_text("200 Gb/sec (2X NDR)\n")
    assert bad(run(ib_port.CHECK, Context(settings))) == {("mlx5_0/1", "slow", "degraded", "human")}
    (tmp_path / "ib_ports.json").write_text('{"mlx5_0/1": "fast"}')
    assert bad(run(ib_port.CHECK, Context(settings))) == set()
    ignored = replace(settings, network=NetworkSettings(ignore_devices=("mlx5_*",)), state_dir=None)
    (result,) = run(ib_port.CHECK, Context(ignored))
    assert result.verdict == "skipped"


def test_a_finding_on_a_port_whose_place_another_took_is_cleared(tmp_path: Path) -> None:
    sysfs = captured(tmp_path, "network/hgx.tree")
    (tmp_path / "ib_ports.json").write_text('{"mlx5_7/1": "400", "mlx5_8/1": "400"}')
    settings = CheckSettings(sysfs=sysfs, state_dir=tmp_path, network=NetworkSettings(default_route_device="eth0"))
    for _look in range(ib_port.POLLS + 1):  # an OK counts after as many samples
        found = {one.component: one.verdict.value for one in run(ib_port.CHECK, Context(settings))}
    assert found == {"mlx5_0/1": "ok", "mlx5_1/1": "skipped", "mlx5_4/1": "ok", "mlx5_7/1": "ok", "mlx5_8/1": "ok"}
    (sysfs / "class/infiniband/mlx5_4/ports/1/state").write_text("1: DOWN\n")
    assert bad(run(ib_port.CHECK, Context(settings))) == {("mlx5_4/1", "down", "fatal", "human")}


HOUR = 3600.0


def history(*looks: tuple[float, bool | None], losses: Iterable[int | None] = ()) -> LinkHistory:
    """After samples at (time, up), with the driver's count of losses at each."""
    counts = [*losses, *[None] * len(looks)]
    found = LinkHistory()
    for (at_s, up), lost in zip(looks, counts, strict=False):
        found = observe(found, up, lost, at_s)
    return found


def downs(*lengths_s: float, apart_s: float = 100.0) -> list[tuple[float, bool | None]]:
    """Samples of a link that was up, and down this long each time."""
    at_s, looks = 0.0, [(0.0, True)]
    for length_s in lengths_s:
        looks += [(at_s + apart_s, False), (at_s + apart_s + length_s, True)]
        at_s += apart_s + length_s
    return [*looks]


@pytest.mark.parametrize(
    ("looks", "now_s", "code"),
    [
        (downs(25, 25, 25), 500, "flapping"),
        (downs(25, 25, 24), 500, "unstable"),
        (downs(25, 25), 500, ""),
        (downs(241), 500, "dropped"),
        (downs(240), 500, ""),
        # near misses: down now is a state, never a flap; never up is no loss; one that cannot be read is no news
        ([(0.0, True), (10.0, False)], 500, ""),
        ([(0.0, False), (50.0, False), (100.0, False)], 500, ""),
        ([(0.0, True), (10.0, None), (20.0, True), (30.0, None)], 500, ""),
        # it clears after an hour without one, and counts again when they continue within the six
        (downs(30, 30, 30), 390 + HOUR - 1, "flapping"),
        (downs(30, 30, 30), 390 + HOUR, ""),
        (downs(30, 30, 30, apart_s=1.5 * HOUR), 4.6 * HOUR, "flapping"),
        (downs(30, 30, 30, apart_s=4 * HOUR), 12.1 * HOUR, ""),
    ],
)
def test_flaps(looks: list[tuple[float, bool | None]], now_s: float, code: str) -> None:
    assert trouble(history(*looks), now_s, HOUR).code == code


@pytest.mark.parametrize(
    ("losses", "code"),
    [((5, 8), "unstable"), ((5, 7), ""), ((5, 6, 8), "unstable"), ((5, 0, 2), ""), ((None, 9), ""), ((9, None), "")],
)
def test_losses_too_short_to_be_seen_are_counted_by_the_driver(losses: tuple[int | None, ...], code: str) -> None:
    looks = [(10.0 * number, True) for number in range(len(losses))]
    assert trouble(history(*looks, losses=losses), 100, HOUR).code == code


def test_a_down_that_was_seen_is_not_counted_twice() -> None:
    looks = [(0.0, True), (10.0, False), (20.0, True), (30.0, False), (40.0, True)]
    assert trouble(history(*looks, losses=(0, 1, 1, 2, 2)), 50, HOUR).losses == 2


def test_flaps_and_counters_of_a_tree(tmp_path: Path) -> None:
    sysfs = captured(tmp_path, "network/hgx.tree")
    context = Context(CheckSettings(sysfs=sysfs, network=NetworkSettings(default_route_device="eth0")))
    samples = Samples()
    for check in (ib_flaps.CHECK, ib_counters.CHECK):
        assert bad(run(check, context, samples)) == set()
    (sysfs / "class/infiniband/mlx5_0/ports/1/counters/link_downed").write_text("4\n")
    found = run(ib_flaps.CHECK, context, samples)
    assert bad(found) == {("mlx5_0/1", "unstable", "warning", "none")}
    assert {one.component: one.verdict.value for one in found if not one.bad} == {
        "mlx5_1/1": "skipped",
        "mlx5_4/1": "ok",
    }
    found = run(ib_counters.CHECK, context, samples)
    assert bad(found) == {("mlx5_0/1", "link_downed", "warning", "none")}
    assert {one.component: one.verdict.value for one in found if not one.bad} == {
        "mlx5_1/1": "skipped",
        "mlx5_4/1": "skipped",
    }
    assert bad(run(ib_counters.CHECK, context, samples)) == set()


def counted(before: Mapping[str, int], now: Mapping[str, int], seconds: float) -> SampleChange:
    def sample(values: Mapping[str, int], at_s: float) -> Sample:
        return Sample(ib_counters.IbCountersFacts({"mlx5_0/1": values}, {"mlx5_0/1": None}), at_s)

    return SampleChange(sample(before, 0), sample(now, seconds))


@pytest.mark.parametrize(
    ("counter", "more", "seconds", "severity", "sticky"),
    [
        ("symbol_error", 10, 300, "degraded", True),
        ("symbol_error", 9, 300, None, True),
        ("symbol_error", 9, 1, None, True),
        ("link_error_recovery", 25, 300, "warning", True),
        ("link_error_recovery", 24, 300, None, True),
        ("local_link_integrity_errors", 1, 300, "degraded", False),
        ("excessive_buffer_overrun_errors", 1, 300, "degraded", False),
        ("port_rcv_errors", 3000, 300, "warning", True),
        ("port_rcv_errors", 2999, 300, None, True),
        ("port_xmit_discards", 30000, 300, "warning", True),
        ("port_xmit_discards", 29999, 300, None, True),
        ("rnr_nak_retry_err", 1, 300, "warning", True),
        ("local_ack_timeout_err", 300, 300, "warning", True),
        ("local_ack_timeout_err", 299, 300, None, True),
        ("roce_slow_restart", 3000, 300, "warning", True),
        ("symbol_error", -5, 300, None, True),
    ],
)
def test_counters(counter: str, more: int, seconds: float, severity: str | None, sticky: bool) -> None:
    (result,) = ib_counters.judge(counted({counter: 100}, {counter: 100 + more}, seconds))
    assert (result.severity, result.code) == (severity, counter if severity else "")
    assert result.sticky is sticky


def test_the_worst_counter_speaks_and_the_others_are_evidence() -> None:
    names = ("link_downed", "local_link_integrity_errors", "port_rcv_errors")
    (result,) = ib_counters.judge(counted(dict.fromkeys(names, 0), dict.fromkeys(names, 2), 300))
    assert result.code == "local_link_integrity_errors"
    assert result.evidence == {"local_link_integrity_errors": 2, "link_downed": 2, "seconds": 300.0}


def test_ethernet_flaps_and_loses_its_carrier(tmp_path: Path) -> None:
    sysfs = captured(tmp_path, "network/hgx.tree")
    settings = CheckSettings(sysfs=sysfs, network=NetworkSettings(default_route_device="bond0"))
    samples = Samples()
    eth0 = sysfs / "class/net/eth0"

    def look() -> Found:
        return bad(run(net_ethernet.CHECK, Context(settings), samples))

    assert look() == set()
    (eth0 / "carrier_changes").write_text("8\n")
    assert look() == set()
    (eth0 / "carrier_changes").write_text("10\n")
    assert look() == {("eth0", "flapping", "warning", "none")}
    (eth0 / "carrier").write_text("0\n")
    assert look() == {("eth0", "no_carrier", "warning", "none")}
    (eth0 / "flags").write_text("0x1842\n")
    assert ("eth0", "no_carrier", "warning", "none") not in look()


@pytest.mark.parametrize("check", [ib_port.CHECK, ib_flaps.CHECK, ib_counters.CHECK, net_ethernet.CHECK])
def test_nothing_to_look_at_is_skipped(tmp_path: Path, check: Check) -> None:
    (result,) = run(check, Context(CheckSettings(sysfs=tmp_path, proc=tmp_path)))
    assert result.verdict == "skipped"
