"""What is read of sysfs, on trees written from the descriptions of real machines."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from holdfast_checks.probes import fabric, known, netdev, rdma, steps
from holdfast_checks.probes import sysfs as files
from holdfast_checks.registry import Context, NotApplicable
from holdfast_checks.settings import CheckSettings, NetworkSettings
from support.sysfs_tree import CAPTURED, captured, lay_out


def context(sysfs: Path, proc: Path = Path("/nowhere"), **network: object) -> Context:
    return Context(CheckSettings(sysfs=sysfs, proc=proc, network=NetworkSettings(**network)))  # type: ignore[arg-type]


def proc_with_route(folder: Path) -> Path:
    (folder / "net").mkdir(parents=True)
    shutil.copy(CAPTURED / "network/route", folder / "net/route")
    return folder


def test_only_what_the_efa_driver_holds_is_an_efa_device(tmp_path: Path) -> None:
    sysfs = captured(tmp_path, "network/p4d.tree")
    found = rdma.efa_devices(sysfs)
    assert [(one.name, one.driver, one.pci) for one in found] == [
        ("efa_1", "efa", "0000:20:1b.0"),
        ("rdmap16s27", "efa", "0000:10:1b.0"),
    ]
    assert rdma.efa_functions(sysfs) == {"0000:10:1b.0": "efa", "0000:20:1b.0": "efa", "0000:90:1b.0": ""}


def test_counters_of_the_device_are_found_in_both_places(tmp_path: Path) -> None:
    sysfs = captured(tmp_path, "network/p4d.tree")
    wanted = ("keep_alive_rcvd", "no_completion_cmds", "not_there")
    assert rdma.device_counters(sysfs, "rdmap16s27", wanted) == {"keep_alive_rcvd": 91, "no_completion_cmds": 0}
    assert rdma.device_counters(sysfs, "efa_1", wanted) == {"keep_alive_rcvd": 7, "no_completion_cmds": 0}
    assert rdma.device_counters(sysfs, "nobody", wanted) == {}
    assert rdma.port_counters(sysfs, "efa_1", 1, {"hw_counters": ("rx_drops",), "counters": ("x",)}) == {"rx_drops": 3}


@pytest.mark.parametrize(
    ("content", "wanted"),
    [("7\n", 7), ("0xefa0\n", 0xEFA0), ("12\n4\n", 12), ("", None), ("N/A (no PMA)\n", None), ("\xff\n", None)],
)
def test_a_number_or_nothing(tmp_path: Path, content: str, wanted: int | None) -> None:
    (tmp_path / "counter").write_text(content, encoding="latin-1")
    assert files.number(tmp_path / "counter") == wanted
    assert files.numbers(tmp_path, ("counter",)) == ({} if wanted is None else {"counter": wanted})


def test_what_is_not_there_or_not_answered_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert files.text(tmp_path / "folder") is None
    assert files.text(tmp_path / "none") is None
    assert files.names(tmp_path / "none") == ()
    assert files.link_name(tmp_path / "folder") is None
    assert files.numbers(tmp_path, ("folder", "none")) == {}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files that are opened from now on, by name."""
    names: list[str] = []
    really = os.open

    def counted(path: str, *args: int, **more: int) -> int:
        names.append(os.path.basename(path))
        return really(path, *args, **more)

    monkeypatch.setattr(os, "open", counted)
    return names


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_counters_that_are_kept_open_are_read_anew_each_time(tmp_path: Path, opened: list[str]) -> None:
    folder = tmp_path / "hw_counters"
    folder.mkdir()
    (folder / "rx").write_text("1\n")
    before = open_files()
    with files.kept_open(8):
        assert files.numbers(folder, ("rx", "tx")) == {"rx": 1}
        (folder / "rx").write_text("2\n")
        assert files.numbers(folder, ("rx",)) == {"rx": 2}
        assert opened == ["rx", "tx"], "the second sample opens nothing"
        (folder / "tx").write_text("7\n")
        assert files.numbers(folder, ("rx", "tx")) == {"rx": 2, "tx": 7}, "a counter that has come"
        (folder / "rx").unlink()
        assert files.numbers(folder, ("rx", "tx")) == {"tx": 7}, "a counter that has gone"
        shutil.rmtree(folder)
        assert files.numbers(folder, ("tx",)) == {}, "a device that has gone"
        assert open_files() == before
        folder.mkdir()
        (folder / "tx").write_text("0\n")
        assert files.numbers(folder, ("tx",)) == {"tx": 0}, "a driver that was reloaded"
    assert open_files() == before


def test_no_more_counters_than_allowed_are_kept_open(tmp_path: Path, opened: list[str]) -> None:
    for name in "abc":
        (tmp_path / name).write_text("5\n")
    before = open_files()
    with files.kept_open(2):
        for _ in range(3):
            assert files.numbers(tmp_path, "abc") == {"a": 5, "b": 5, "c": 5}
            assert open_files() == before + 2
    assert opened == ["a", "b", "c", "c", "c"]


def test_what_one_thread_keeps_open_no_other_one_reads(tmp_path: Path, opened: list[str]) -> None:
    (tmp_path / "a").write_text("5\n")
    with files.kept_open(2):
        files.numbers(tmp_path, "a")
        other = threading.Thread(target=files.numbers, args=(tmp_path, "a"))
        other.start()
        other.join()
    assert opened.count("a") == 2


def test_a_device_that_came_back_is_looked_at_anew(tmp_path: Path) -> None:
    sysfs = captured(tmp_path, "network/p4d.tree")
    entry = sysfs / "class/infiniband/efa_1"
    assert [one.name for one in rdma.efa_devices(sysfs)] == ["efa_1", "rdmap16s27"]
    entry.rename(entry.with_name("away"))
    (sysfs / "bus/pci/devices/0000:20:1b.0/driver").unlink()
    (sysfs / "bus/pci/devices/0000:20:1b.0/driver").symlink_to("../../drivers/other")
    shutil.copytree(entry.with_name("away"), entry, symlinks=True)
    shutil.rmtree(entry.with_name("away"))
    assert [one.name for one in rdma.efa_devices(sysfs)] == ["rdmap16s27"]


def test_the_fabric_leaves_out_bridges_and_the_management_network(tmp_path: Path) -> None:
    sysfs = captured(tmp_path / "sys", "network/hgx.tree")
    proc = proc_with_route(tmp_path / "proc")
    assert [one.name for one in fabric.fabric_ports(context(sysfs, proc))] == ["mlx5_0/1", "mlx5_1/1", "mlx5_4/1"]
    named = context(sysfs, proc, default_route_device="eth1", ignore_devices=("mlx5_[01]",))
    assert [one.name for one in fabric.fabric_ports(named)] == ["mlx5_3/1"]


def test_the_default_route_reaches_through_vlan_and_bond(tmp_path: Path) -> None:
    sysfs = captured(tmp_path / "sys", "network/hgx.tree")
    proc = proc_with_route(tmp_path / "proc")
    assert netdev.default_route(proc, sysfs) == {"bond0.100", "bond0", "eth0"}
    assert netdev.default_route(tmp_path / "no-proc", sysfs) == set()


def test_ec2_has_no_infiniband(tmp_path: Path) -> None:
    sysfs = captured(tmp_path, "network/p6_b300_without_efa.tree")
    with pytest.raises(NotApplicable, match="EC2 has no InfiniBand"):
        fabric.fabric_ports(context(sysfs))
    (sysfs / "class/dmi/id/sys_vendor").unlink()
    assert len(fabric.fabric_ports(context(sysfs))) == 2
    with pytest.raises(NotApplicable, match="EC2 has no InfiniBand"):
        fabric.fabric_ports(Context(CheckSettings(sysfs=sysfs, instance_type="p6-b200.48xlarge")))


def test_a_link_counts_its_losses_in_old_and_new_kernels(tmp_path: Path) -> None:
    lay_out(tmp_path, "class/net/a/flags = 0x1003\nclass/net/a/carrier_changes = 5\nclass/net/b/flags = 0x1002\n")
    assert netdev.link(tmp_path, "a") == netdev.NetworkDevice("a", wanted=True, carrier=None, losses=2)
    assert netdev.link(tmp_path, "b") == netdev.NetworkDevice("b", wanted=False, carrier=None, losses=None)
    assert netdev.link(tmp_path, "c") is None


def test_jobs_are_seen_by_sockets_and_by_cgroups(tmp_path: Path) -> None:
    spool, sysfs = tmp_path / "spool", tmp_path / "sys"
    assert steps.jobs_here(spool, sysfs) is None
    spool.mkdir()
    assert steps.jobs_here(spool, sysfs) == frozenset()
    for name in ("n1_17.0", "n-1_b_17.4294967291", "cred_state", "job00018", "n1_19.x"):
        (spool / name).touch()
    (sysfs / "fs/cgroup/system.slice/n1_slurmstepd.scope/job_23").mkdir(parents=True)
    (sysfs / "fs/cgroup/system.slice/slurmd.service/job_24").mkdir(parents=True)
    assert steps.jobs_here(spool, sysfs) == frozenset({17, 23})


def test_what_is_known_survives_and_rubbish_is_learned_anew(tmp_path: Path) -> None:
    known.save(tmp_path, "things", {"b": "2", "a": "1"})
    assert known.load(tmp_path, "things") == {"a": "1", "b": "2"}
    assert [path.name for path in tmp_path.iterdir()] == ["things.json"]
    assert known.load(None, "things") == {}
    known.save(None, "things", {"a": "1"})
    known.save(tmp_path / "not there", "things", {"a": "1"})
    for rubbish in ("", "[1]", "{"):
        (tmp_path / "things.json").write_text(rubbish)
        assert known.load(tmp_path, "things") == {}


def test_losses_are_the_ports_own_else_those_of_its_network_device(tmp_path: Path) -> None:
    sysfs = captured(tmp_path, "network/hgx.tree")
    (sysfs / "class/net/eth1/carrier_down_count").write_text("6\n")
    ports = {one.name: one for one in fabric.fabric_ports(context(sysfs, default_route_device="eth0"))}
    assert {name: fabric.losses(sysfs, one) for name, one in ports.items()} == {
        "mlx5_0/1": 1,
        "mlx5_1/1": None,
        "mlx5_4/1": 6,
    }
