"""The judges of the EFA checks, as tables: each fault, and near misses that must stay silent."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast_checks.checks import (
    efa_admin,
    efa_carrier,
    efa_count,
    efa_counters,
    efa_provider,
    efa_silence,
    net_memlock,
    net_modules,
)
from holdfast_checks.probes.netdev import NetworkDevice
from holdfast_checks.probes.rdma import Device
from holdfast_checks.registry import Context, NotApplicable, Sample, SampleChange
from holdfast_checks.result import Result
from holdfast_checks.runner import Samples, run
from holdfast_checks.settings import CheckSettings, NetworkSettings
from support.sysfs_tree import CAPTURED, captured

Found = set[tuple[str, str, str | None, str]]


def bad(results: tuple[Result, ...]) -> Found:
    """(component, code, severity, remedy) of each finding."""
    return {(one.component, one.code, one.severity, one.remedy) for one in results if one.bad}


def devices(*numbers: int) -> tuple[Device, ...]:
    return tuple(Device(f"rdmap{n}s27", "efa", f"0000:{n:02x}:1b.0") for n in numbers)


def known(*numbers: int) -> dict[str, str]:
    return {str(one.pci): one.name for one in devices(*numbers)}


Facts = efa_count.EfaCountFacts


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        (Facts(devices(16, 32)), set()),
        (Facts(devices(16, 32), known=known(16, 32)), set()),
        (Facts(devices(16), known=known(16, 32)), {("0000:20:1b.0", "gone", "fatal", "reboot")}),
        (Facts((), known=known(16)), {("0000:10:1b.0", "gone", "fatal", "reboot")}),
        (Facts(devices(16), ("0000:20:1b.0",)), {("0000:20:1b.0", "unbound", "degraded", "reboot")}),
        (
            Facts(devices(16), ("0000:20:1b.0",), known(16, 32)),
            {("0000:20:1b.0", "unbound", "fatal", "reboot")},
        ),
        (Facts(devices(16), expected=2), {("node", "missing", "degraded", "reboot")}),
        (Facts((), expected=32), {("node", "missing", "degraded", "reboot")}),
        # one that is missing has its name already: the number says nothing more
        (Facts(devices(16), known=known(16, 32), expected=2), {("0000:20:1b.0", "gone", "fatal", "reboot")}),
        (Facts(devices(16), instance_type="p5", type_has=32), {("node", "fewer_than_type", "warning", "none")}),
        # near misses: launched with fewer and said so; more than expected; renamed and moved; taken away by the site
        (Facts(devices(16), expected=1, instance_type="p5", type_has=32), set()),
        (Facts(devices(16, 32), expected=1), set()),
        (Facts(devices(17, 33), known=known(16, 32)), set()),
        (Facts(devices(16), known=known(16, 32), expected=1), set()),
        (Facts(devices(17), known=known(16, 32)), set()),
    ],
)
def test_count(facts: Facts, wanted: Found) -> None:
    assert bad(efa_count.judge(facts)) == wanted


def test_count_names_the_devices_that_are_there_so_that_they_clear() -> None:
    ok = [one.component for one in efa_count.judge(Facts(devices(16, 32))) if not one.bad]
    assert ok == ["0000:10:1b.0", "0000:20:1b.0", "node"]
    moved = efa_count.judge(Facts(devices(17), known=known(17), forgotten=frozenset({"0000:10:1b.0"})))
    assert [(one.component, one.verdict.value) for one in moved] == [
        ("0000:11:1b.0", "ok"),
        ("0000:10:1b.0", "ok"),
        ("node", "ok"),
    ]


def test_count_learns_on_disk_and_never_counts_bridges(tmp_path: Path) -> None:
    p4d = captured(tmp_path / "p4d", "network/p4d.tree")
    settings = CheckSettings(sysfs=p4d, state_dir=tmp_path)
    found = run(efa_count.CHECK, Context(settings))
    assert bad(found) == {("0000:90:1b.0", "unbound", "degraded", "reboot")}
    shutil.rmtree(p4d / "class/infiniband/efa_1")  # it leaves the class with its driver
    (p4d / "bus/pci/devices/0000:20:1b.0/driver").unlink()
    found = run(efa_count.CHECK, Context(settings))
    assert ("0000:20:1b.0", "unbound", "fatal", "reboot") in bad(found)
    p6 = captured(tmp_path / "p6", "network/p6_b300_without_efa.tree")
    (result,) = run(efa_count.CHECK, Context(CheckSettings(sysfs=p6)))
    assert (result.verdict, result.summary) == ("skipped", "no EFA device is attached to this node")
    found = run(efa_count.CHECK, Context(CheckSettings(sysfs=p6, network=NetworkSettings(expected_efa=2))))
    assert bad(found) == {("node", "missing", "degraded", "reboot")}


def change(before: Mapping[str, int] | None, now: Mapping[str, int], seconds: float = 30.0) -> SampleChange:
    """Of one device, as both checks of counters see it."""

    def sample(values: Mapping[str, int], at_s: float) -> Sample:
        return Sample(efa_admin.EfaAdminFacts({"efa_0": values}, {"efa_0": "0000:10:1b.0"}), at_s)

    return SampleChange(None if before is None else sample(before, 0.0), sample(now, seconds))


REST = {"no_completion_cmds": 0, "cmds_err": 0, "keep_alive_rcvd": 91, "submitted_cmds": 42, "completed_cmds": 42}


@pytest.mark.parametrize(
    ("before", "more", "seconds", "wanted"),
    [
        ({}, {"no_completion_cmds": 1}, 30, ("no_completion_cmds", "fatal", "reboot")),
        ({}, {"no_completion_cmds": 1, "cmds_err": 50}, 30, ("no_completion_cmds", "fatal", "reboot")),
        ({}, {"cmds_err": 5}, 30, ("cmds_err", "warning", "none")),
        ({}, {"cmds_err": 4}, 30, None),
        ({}, {"cmds_err": 4}, 0.5, None),
        ({}, {"submitted_cmds": 8}, 30, ("dead", "fatal", "reboot")),
        ({}, {"submitted_cmds": 8, "completed_cmds": 7}, 30, ("keep_alive", "warning", "none")),
        ({}, {"submitted_cmds": 8, "completed_cmds": 8, "keep_alive_rcvd": 30}, 30, None),
        ({}, {"submitted_cmds": 8, "keep_alive_rcvd": 1}, 30, None),
        # near misses: it had no command; too short a time; a driver that never had keep-alives
        ({}, {}, 300, None),
        ({}, {"submitted_cmds": 1}, 5, None),
        ({"keep_alive_rcvd": 0}, {"submitted_cmds": 8}, 30, None),
        # a reloaded driver starts at zero, and its first failures are its baseline
        ({}, {"submitted_cmds": -40, "no_completion_cmds": 3}, 30, None),
    ],
)
def test_admin(
    before: dict[str, int], more: dict[str, int], seconds: float, wanted: tuple[str, str, str] | None
) -> None:
    start = {**REST, **before}
    now = {name: value + more.get(name, 0) for name, value in start.items()}
    (result,) = efa_admin.judge(change(start, now, seconds))
    assert (result.code, result.severity, result.remedy) == (wanted or ("", None, "none"))
    assert result.verdict == ("ok" if wanted is None else "failed" if wanted[1] == "fatal" else "degraded")
    assert result.sticky is (result.code != "no_completion_cmds")


def test_admin_first_look_is_the_baseline_and_silence_is_unknown() -> None:
    (result,) = efa_admin.judge(change(None, {**REST, "no_completion_cmds": 5}))
    assert result.verdict == "ok"
    (result,) = efa_admin.judge(change(REST, {}))
    assert result.verdict == "unknown"


@pytest.mark.parametrize(
    ("counter", "more", "seconds", "code"),
    [
        ("rx_drops", 3000, 30, "rx_drops"),
        ("rx_drops", 2999, 30, ""),
        ("rx_drops", 49, 0.1, ""),
        ("unresponsive_remote_events", 30, 30, "unresponsive_remote_events"),
        ("unresponsive_remote_events", 29, 30, ""),
        ("impaired_remote_conn_events", 30, 30, "impaired_remote_conn_events"),
        ("retrans_timeout_events", 3000, 30, "retrans_timeout_events"),
        ("rdma_read_wr_err", 2999, 30, ""),
        ("create_cq_err", 1, 30, "create_cq_err"),
        ("reg_mr_err", 1, 30, "reg_mr_err"),
        ("keep_alive_rcvd", 100000, 30, ""),
    ],
)
def test_counters(counter: str, more: int, seconds: float, code: str) -> None:
    (result,) = efa_counters.judge(change({counter: 10}, {counter: 10 + more}, seconds))
    assert (result.code, result.severity) == (code, "warning" if code else None)


def test_counters_that_an_old_driver_lacks_are_passed_over() -> None:
    (result,) = efa_counters.judge(change({"rx_drops": 1}, {"rx_drops": 1, "retrans_timeout_events": 10**9}))
    assert result.verdict == "ok"
    (result,) = efa_counters.judge(change({}, {}))
    assert result.verdict == "unknown"


def test_counters_of_a_tree_and_one_device_that_comes_later(tmp_path: Path) -> None:
    sysfs = captured(tmp_path, "network/p4d.tree")
    samples = Samples()
    assert bad(run(efa_counters.CHECK, Context(CheckSettings(sysfs=sysfs)), samples)) == set()
    (sysfs / "class/infiniband/efa_1/ports/1/hw_counters/rx_drops").write_text("500000\n")
    found = run(efa_counters.CHECK, Context(CheckSettings(sysfs=sysfs)), samples)
    assert bad(found) == {("efa_1", "rx_drops", "warning", "none")}
    assert {one.pci for one in found} == {"0000:10:1b.0", "0000:20:1b.0"}


@pytest.mark.parametrize(
    ("links", "verdict"),
    [
        ((), "skipped"),
        ((NetworkDevice("ens32", wanted=True, carrier=True, losses=1),), "ok"),
        ((NetworkDevice("ens32", wanted=True, carrier=False, losses=1),), "degraded"),
        ((NetworkDevice("ens32", wanted=False, carrier=None, losses=1),), "skipped"),
        ((NetworkDevice("ens32", wanted=False, carrier=False, losses=1),), "skipped"),
        ((NetworkDevice("ens32", wanted=True, carrier=None, losses=1),), "unknown"),
    ],
)
def test_carrier(links: tuple[NetworkDevice, ...], verdict: str) -> None:
    (result,) = efa_carrier.judge(efa_carrier.EfaCarrierFacts(((devices(16)[0], links),)))
    assert result.verdict == verdict
    assert result.code == ("no_carrier" if verdict == "degraded" else "")


def test_carrier_of_a_tree(tmp_path: Path) -> None:
    sysfs = captured(tmp_path, "network/p4d.tree")
    found = {one.component: one.verdict.value for one in run(efa_carrier.CHECK, Context(CheckSettings(sysfs=sysfs)))}
    assert found == {"efa_1": "skipped", "rdmap16s27": "ok"}


FI_INFO = (CAPTURED / "network/fi_info").read_text()
TWO = ("rdmap16s27", "rdmap32s27")


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        (efa_provider.EfaProviderFacts(TWO, 0, FI_INFO), set()),
        (
            efa_provider.EfaProviderFacts((*TWO, "rdmap47s27"), 0, FI_INFO),
            {("rdmap47s27", "left_out", "degraded", "reboot")},
        ),
        (
            efa_provider.EfaProviderFacts(TWO, 61, "", "fi_getinfo: -61 (No data available) (exit status 61)"),
            {("node", "none", "degraded", "reboot")},
        ),
        (efa_provider.EfaProviderFacts(TWO, 0, ""), {("node", "none", "degraded", "reboot")}),
        # near misses: devices under other names, and a command that fails for another reason
        (efa_provider.EfaProviderFacts(("efa_0", "efa_1"), 0, FI_INFO), set()),
        (efa_provider.EfaProviderFacts(TWO, 127, "", "error while loading shared libraries (exit status 127)"), set()),
    ],
)
def test_provider(facts: efa_provider.EfaProviderFacts, wanted: Found) -> None:
    assert bad(efa_provider.judge(facts)) == wanted


def test_provider_asks_the_command(tmp_path: Path) -> None:
    sysfs = captured(tmp_path / "sys", "network/p4d.tree")
    script = tmp_path / "fi_info"
    script.write_text(f"#!{sys.executable}\nprint('    domain: efa_1-rdm')\n")
    script.chmod(0o755)
    settings = CheckSettings(sysfs=sysfs, network=NetworkSettings(fi_info=str(script)))
    assert bad(run(efa_provider.CHECK, Context(settings))) == {("rdmap16s27", "left_out", "degraded", "reboot")}
    missing = replace(settings, network=NetworkSettings(fi_info=str(tmp_path / "none")))
    (result,) = run(efa_provider.CHECK, Context(missing))
    assert (result.verdict, "not installed" in result.summary) == ("skipped", True)


def looks(
    *rates_mb: float, jobs: frozenset[int] | None = frozenset({7}), step_s: float = 30.0
) -> efa_silence.RdmaTraffic:
    """The last of a series of samples with these rates between them."""
    at = efa_silence.RdmaTraffic(
        {"a/1/tx_bytes": 0, "b/1/tx_bytes": 7}, 0.0, jobs, busy_after_s=300, silent_after_s=600
    )
    for rate in rates_mb:
        counts = {**at.counts, "a/1/tx_bytes": at.counts["a/1/tx_bytes"] + round(rate * 1e6 * step_s)}
        at = efa_silence.follow(at, replace(at, counts=counts, at_s=at.at_s + step_s, **FRESH))
    return at


FRESH: Any = {"rate": None, "busy_s": 0.0, "silent_since_s": None, "moved_at_s": None}
"""What a sample alone does not contain."""


BUSY, QUIET = [5000.0] * 11, [0.001] * 20


@pytest.mark.parametrize(
    ("look", "silent"),
    [
        (looks(*BUSY, *QUIET), True),
        (looks(*BUSY, *QUIET[1:]), False),
        (looks(*BUSY[2:], *QUIET), False),
        (looks(*QUIET, *QUIET), False),
        (looks(*BUSY, *QUIET, 5000.0), False),
        # a little traffic is no silence, and an evaluation in between none either
        (looks(*BUSY, *[1.0] * 30), False),
        (looks(*BUSY, *QUIET[:10], 1.0, *QUIET[:10]), False),
        # no job, or unknown
        (looks(*BUSY, *QUIET, jobs=frozenset()), False),
        (looks(*BUSY, *QUIET, jobs=None), False),
        (looks(), False),
    ],
)
def test_silence(look: efa_silence.RdmaTraffic, silent: bool) -> None:
    (result,) = efa_silence.judge(SampleChange(None, Sample(look, 0.0)))
    assert (result.code, result.severity, result.remedy) == (
        ("silent", "warning", "none") if silent else ("", None, "none")
    )
    assert ("bytes_per_s" in result.evidence) is (look.rate is not None)


def test_another_job_or_device_begins_anew() -> None:
    quiet = looks(*BUSY, *QUIET)
    for other in (
        {"jobs": frozenset({8})},
        {"counts": {"a/1/tx_bytes": 10**12}},
        {"counts": dict.fromkeys(quiet.counts, 0)},
    ):
        now = replace(quiet, at_s=quiet.at_s + 30, **{**FRESH, **other})
        assert efa_silence.follow(quiet, now).silent_since_s is None


def said_s(look: efa_silence.RdmaTraffic) -> float | None:
    return efa_silence.fabric_silent_s(efa_silence.judge(SampleChange(None, Sample(look, 0.0))))


@pytest.mark.parametrize(
    ("look", "silent_s"),
    [
        (looks(), None),
        (looks(*QUIET), None),  # no traffic yet is no silence
        (looks(0.2), 0.0),
        (looks(0.2, *QUIET), 600.0),
        (looks(5000.0, 0.09, 0.09), 60.0),  # a fabric at rest is not dead quiet
        (looks(5000.0, 0.09, 0.11), 0.0),
        (looks(5000.0, *QUIET, jobs=None), 600.0),  # the controller knows whose bytes they were
    ],
)
def test_the_controller_is_told_how_long_the_fabric_has_been_silent(
    look: efa_silence.RdmaTraffic, silent_s: float | None
) -> None:
    assert said_s(look) == silent_s


def test_counters_that_come_go_or_are_set_back_are_neither_silence_nor_traffic() -> None:
    quiet = looks(5000.0, *QUIET)
    counts = dict(quiet.counts)
    first, second = counts
    for other in (
        {first: counts[first]},
        {**counts, "c/1/tx_bytes": 0},
        {**counts, "c/1/tx_bytes": 10**12},
        {first: counts[first] + 10**12, second: counts[second] - 1},
    ):
        anew = efa_silence.follow(quiet, replace(quiet, counts=other, at_s=quiet.at_s + 30, **FRESH))
        assert said_s(anew) is None
        later = efa_silence.follow(anew, replace(anew, at_s=anew.at_s + 6000, **FRESH))
        assert said_s(later) is None


def test_silence_counts_every_kind_of_device(tmp_path: Path) -> None:
    p4d = captured(tmp_path / "p4d", "network/p4d.tree")
    assert efa_silence.gather(Context(CheckSettings(sysfs=p4d))).counts == {
        "rdmap16s27/1/tx_bytes": 2000,
        "rdmap16s27/1/rx_bytes": 1000,
    }
    hgx = captured(tmp_path / "hgx", "network/hgx.tree")
    assert efa_silence.gather(Context(CheckSettings(sysfs=hgx))).counts == {
        "mlx5_0/1/port_xmit_data": 4000,
        "mlx5_0/1/port_rcv_data": 2000,
    }
    with pytest.raises(NotApplicable):
        efa_silence.gather(Context(CheckSettings(sysfs=tmp_path / "none")))


def test_modules(tmp_path: Path) -> None:
    sysfs = captured(tmp_path / "sys", "network/p4d.tree")
    found = run(net_modules.CHECK, Context(CheckSettings(sysfs=sysfs)))
    assert bad(found) == {("ib_uverbs", "missing", "degraded", "reboot")}
    (sysfs / "module/ib_uverbs").mkdir()
    assert bad(run(net_modules.CHECK, Context(CheckSettings(sysfs=sysfs)))) == set()
    (result,) = run(net_modules.CHECK, Context(CheckSettings(sysfs=tmp_path / "none")))
    assert result.verdict == "skipped"


_GIB = 1 << 30
LIMITS = (CAPTURED / "network/limits").read_text()


@pytest.mark.parametrize(
    ("soft", "hard", "code", "severity"),
    [
        ("unlimited", "unlimited", "", None),
        (str(16 * _GIB), str(16 * _GIB), "", None),
        (str(16 * _GIB - 1), "unlimited", "soft", "warning"),
        ("8388608", "8388608", "hard", "degraded"),
    ],
)
def test_memlock(soft: str, hard: str, code: str, severity: str | None) -> None:
    row = f"Max locked memory         {soft:21}{hard:21}bytes"
    text = "\n".join(row if line.startswith("Max locked") else line for line in LIMITS.splitlines())
    limits = net_memlock.parse(text)
    assert limits is not None
    (result,) = net_memlock.judge(net_memlock.NetMemlockFacts(*limits, wanted_gib=16))
    assert (result.code, result.severity) == (code, severity)


def test_memlock_reads_slurmds_limits_and_says_why_not(tmp_path: Path) -> None:
    assert net_memlock.parse("Limit  Soft\n") is None
    sysfs = captured(tmp_path / "sys", "network/p4d.tree")
    process = tmp_path / "proc/42"
    process.mkdir(parents=True)
    (process / "stat").write_text("42 (slurmd) S 1 42 42 0 -1 0\n")
    (process / "cmdline").write_bytes(b"/usr/sbin/slurmd\0-D\0")
    (process / "limits").write_text(LIMITS)
    (tmp_path / "slurmd.pid").write_text("42\n")
    settings = CheckSettings(sysfs=sysfs, proc=tmp_path / "proc", slurmd_pid_file=tmp_path / "slurmd.pid")
    (result,) = run(net_memlock.CHECK, Context(settings))
    assert (result.verdict, result.component) == ("ok", "slurmd")
    (process / "stat").write_text("42 (slurmd) Z 1 42 42 0 -1 0\n")
    (result,) = run(net_memlock.CHECK, Context(settings))
    assert result.verdict == "unknown"
    (result,) = run(net_memlock.CHECK, Context(replace(settings, network=NetworkSettings(memlock_gib=0))))
    assert result.verdict == "skipped"
