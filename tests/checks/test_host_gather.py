"""What the checks of the host read: from trees in a folder, with the real code; and a manifest, learned and compared."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.practice.hardware import host as emulated
from holdfast.practice.hardware.host import HUNG, MODULES, HostFiles
from holdfast_checks.checks import host_disk, host_mounts, host_munge, host_services, host_slurmd
from holdfast_checks.known import all_checks
from holdfast_checks.manifest import FILE, NodeManifest, learn_manifest, load_manifest, save_manifest
from holdfast_checks.probes.dstate import DstateWatch
from holdfast_checks.probes.procfs import scan
from holdfast_checks.registry import Context, NotApplicable, NotGathered
from holdfast_checks.result import Result, Verdict
from holdfast_checks.runner import run
from holdfast_checks.settings import CheckSettings, HostSettings

HOST = sorted(name for name in all_checks() if name.startswith("host.") and name not in ("host.slurmd", "host.disk"))


@pytest.fixture
def host(tmp_path: Path) -> HostFiles:
    emulated.install(tmp_path)
    return HostFiles(tmp_path)


def context(host: HostFiles, **changed: object) -> Context:
    raw = emulated.agent_settings(host.folder.parent)
    paths = {key: Path(raw[key]) for key in ("manifest", "munge_key", "proc", "clock_file", "volumes_file")}
    settings = HostSettings(**{**raw, **paths, **changed})
    return Context(CheckSettings(sysfs=host.sys, state_dir=host.folder, host=settings))


def judged(host: HostFiles, check: str, **changed: object) -> dict[str, tuple[Verdict, str]]:
    results = run(all_checks()[check], context(host, **changed))
    return {result.component: (result.verdict, result.code) for result in results}


@pytest.mark.parametrize("check", HOST)
def test_an_emulated_host_is_all_right(host: HostFiles, check: str) -> None:
    results: tuple[Result, ...] = run(all_checks()[check], context(host))
    assert results
    assert {result.verdict for result in results} == {Verdict.OK}, results


@pytest.mark.parametrize("check", [name for name in HOST if name != "host.mounts"])
def test_a_host_that_shows_nothing_is_no_fault(tmp_path: Path, check: str) -> None:
    settings = HostSettings(
        proc=tmp_path,
        clock_file=tmp_path / "none",
        munge_key=tmp_path / "key",
        slurm_confs=(),
        systemctl=str(tmp_path / "x"),
    )
    (tmp_path / "key").touch()
    results = run(all_checks()[check], Context(CheckSettings(sysfs=tmp_path, host=settings)))
    assert {result.verdict for result in results} <= {Verdict.UNKNOWN, Verdict.SKIPPED}, results


def test_a_process_that_ran_in_between_is_not_stuck(host: HostFiles) -> None:
    watch = DstateWatch()
    for look in range(1, 7):
        host.process(50, "reader", "D", switches=look, stack="[<0>] nfs_wait+0x1/0x2 [nfs]\n")
        host.process(51, "python", "D", stack="[<0>] x+0x1/0x2 [nvidia]\n[<0>] y+0x1/0x2\n")
        if look == 6:
            host.process(51, "python", "S")
        found = watch.look(host.proc, report_from=5)
        assert [(stuck.name, stuck.modules) for stuck in found] == ([("python", ("nvidia",))] if look == 5 else [])


def test_what_blocks_later_is_found_at_every_third_look(host: HostFiles) -> None:
    watch = DstateWatch()
    assert watch.look(host.proc, report_from=1) == ()
    host.process(52, "late", "D")
    found = [[(stuck.name, stuck.looks) for stuck in watch.look(host.proc, report_from=1)] for _ in range(4)]
    assert found == [[], [], [("late", 1)], [("late", 2)]]


@pytest.mark.parametrize(
    ("load", "looked"), [("0.49", False), ("0.50", True), ("191.07", True), ("", True), ("nonsense", True)]
)
def test_an_idle_node_is_not_searched_for_blocked_processes(host: HostFiles, load: str, looked: bool) -> None:
    """A blocked process counts as one of the load, and is found at the first sample that shows it."""
    watch = DstateWatch()
    host.write("proc/loadavg", f"{load} 0.10 0.10 1/3000 4321\n" if load else "")
    host.process(53, "late", "D")
    assert bool(watch.look(host.proc, report_from=1)) == looked
    host.write("proc/loadavg", "0.63 0.20 0.10 1/3000 4321\n")
    assert [stuck.name for stuck in watch.look(host.proc, report_from=1)] == ["late"]
    host.write("proc/loadavg", "0.10 0.20 0.10 1/3000 4321\n")
    looks = [watch.look(host.proc, report_from=1) for _ in range(4)]
    assert all(looks), "one that was found is followed, whatever the load"


def test_one_look_at_nvidia_smi_in_d_is_nothing_and_a_new_process_under_the_old_id_begins_anew(host: HostFiles) -> None:
    watch = DstateWatch()
    host.process(60, "nvidia-smi", "D")
    for _ in range(4):
        assert watch.look(host.proc, report_from=5) == ()
    stat = host.proc / "60/stat"
    stat.write_text(stat.read_text().replace(" 100 ", " 999 "))
    assert watch.look(host.proc, report_from=5) == ()


@pytest.mark.parametrize("name", ["a b", "evil) D 1 (x", "x) Z", "()", "ünï", "\n"])
def test_a_name_of_a_process_cannot_forge_its_state(host: HostFiles, name: str) -> None:
    host.process(70, name, "S")
    seen = scan(host.proc)
    assert (seen.total, seen.zombies, seen.blocked) == (3, 0, ())


def test_the_real_processes_are_seen() -> None:
    assert scan(Path("/proc")).total > 1


def test_a_mount_that_hangs_and_one_that_is_gone(host: HostFiles) -> None:
    assert judged(host, "host.mounts") == {"/fsx": (Verdict.OK, "")}
    host.write(HUNG, "")
    assert judged(host, "host.mounts", mount_deadline_s=0.2) == {"/fsx": (Verdict.DEGRADED, "hang")}
    host.mounted(there=False)
    assert judged(host, "host.mounts") == {"/fsx": (Verdict.DEGRADED, "missing")}


def test_network_mounts_that_nobody_named_are_asked_and_told_when_they_are_gone(host: HostFiles) -> None:
    unnamed: dict[str, object] = {"manifest": None, "mounts": {}}
    (host.folder / "manifest.json").unlink()
    line = "server:/e {} nfs4 rw 0 0\n"
    host.write("proc/self/mounts", "/dev/root / ext4 rw 0 0\n" + line.format("/home/long/er") + line.format("/home"))
    assert judged(host, "host.mounts", **unnamed) == {"/home": (Verdict.OK, "")}
    host.write(HUNG, "")
    assert judged(host, "host.mounts", mount_deadline_s=0.2, **unnamed) == {"/home": (Verdict.DEGRADED, "hang")}
    host.write("proc/self/mounts", "/dev/root / ext4 rw 0 0\n")
    for _ in range(host_mounts.N):
        assert judged(host, "host.mounts", **unnamed) == {"/home": (Verdict.OK, "")}
    assert judged(host, "host.mounts", **unnamed) == {"node": (Verdict.SKIPPED, "")}


THEIRS = "rw,nosuid,nodev,user_id=1000,group_id=1000 0 0\n"


def test_what_a_user_mounts_is_no_file_system_of_the_nodes(host: HostFiles) -> None:
    """A FUSE file system with a type and source of the user's choice, and a second one over its parent."""
    (host.folder / "manifest.json").unlink()
    root = "/dev/root / ext4 rw 0 0\n"
    first = root + f"weka01/fs /home/m/a/b fuse.weka {THEIRS}"
    host.write("proc/self/mounts", first)
    assert judged(host, "host.mounts", manifest=None) == {"node": (Verdict.SKIPPED, "")}
    assert learn_manifest(context(host)).mounts == {}
    automounted = "evil:/x /home/m/a/c nfs4 rw 0 0\n"
    host.write(HUNG, "")
    host.write("proc/self/mounts", first + automounted + f"x /home/m/a fuse.sshfs {THEIRS}")
    assert judged(host, "host.mounts", manifest=None) == {"node": (Verdict.SKIPPED, "")}
    assert learn_manifest(context(host)).mounts == {}


@pytest.mark.parametrize("place", ["/shared/fsx", "/shared"])
def test_a_named_mount_that_a_user_covers_is_told_and_not_asked(host: HostFiles, place: str) -> None:
    """Where every user may write to the root of a shared file system, any user may mount there."""
    (host.folder / "manifest.json").unlink()
    named: dict[str, object] = {"manifest": None, "mounts": {"/shared/fsx": "lustre"}}
    host.write(HUNG, "")
    lines = f"/dev/root / ext4 rw 0 0\na@tcp:/x /shared/fsx lustre rw 0 0\nx {place} fuse.sshfs {THEIRS}"
    host.write("proc/self/mounts", lines)
    assert judged(host, "host.mounts", **named) == {"/shared/fsx": (Verdict.DEGRADED, "covered")}


def test_a_mount_whose_name_is_no_utf_8_is_asked_and_told_of(host: HostFiles, tmp_path: Path) -> None:
    (host.folder / "manifest.json").unlink()
    place = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(place)
    (host.proc / "self/mounts").write_bytes(b"/dev/root / ext4 rw 0 0\na:/b " + place + b" nfs4 rw 0 0\n")
    shown = f"{tmp_path}/caf\\xe9"
    really = {"manifest": None, "stat": "/usr/bin/stat"}
    results = run(all_checks()["host.mounts"], context(host, **really))
    assert [(result.component, result.verdict) for result in results] == [(shown, Verdict.OK)]
    json.dumps(results[0].plain()).encode("utf-8")
    os.rmdir(place)
    (result,) = run(all_checks()["host.mounts"], context(host, **really))
    assert (result.component, result.code, result.evidence["named"]) == (shown, "error", False)
    f"{result.component} {result.summary}".encode()


def test_a_mount_is_written_only_where_the_site_says_so(host: HostFiles, tmp_path: Path) -> None:
    folder = tmp_path / "mnt"
    folder.mkdir()
    (host.folder / "manifest.json").unlink()
    host.write("proc/self/mounts", f"/dev/root / ext4 rw 0 0\na:/b {folder} nfs4 rw 0 0\n")
    assert judged(host, "host.mounts", manifest=None) == {str(folder): (Verdict.OK, "")}
    assert list(folder.iterdir()) == []
    writes: dict[str, object] = {"manifest": None, "writable_mounts": (str(folder),)}
    assert judged(host, "host.mounts", **writes) == {str(folder): (Verdict.OK, "")}
    assert list(folder.iterdir()) == [], "nothing is left"
    host.write("proc/self/mounts", "/dev/root / ext4 rw 0 0\na:/b /proc/sys nfs4 rw 0 0\n")
    refused: dict[str, object] = {"manifest": None, "writable_mounts": ("/proc/sys",)}
    assert judged(host, "host.mounts", **refused)["/proc/sys"] == (Verdict.DEGRADED, "not_writable")


def test_what_is_written_follows_no_link_of_a_users(
    host: HostFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if its name could be guessed: the agent is root."""
    folder, theirs = tmp_path / "mnt", tmp_path / "shadow"
    folder.mkdir()
    theirs.write_text("untouched")
    monkeypatch.setattr("secrets.token_hex", lambda _size: "guessed")
    (folder / ".holdfast-probe-guessed").symlink_to(theirs)
    host.write("proc/self/mounts", f"/dev/root / ext4 rw 0 0\na:/b {folder} nfs4 rw 0 0\n")
    writes: dict[str, object] = {"manifest": None, "writable_mounts": (str(folder),)}
    assert judged(host, "host.mounts", **writes)[str(folder)] == (Verdict.DEGRADED, "not_writable")
    assert theirs.read_text() == "untouched"


def test_services_by_their_processes_where_there_is_no_systemd(
    host: HostFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host_services, "_SYSTEMD", tmp_path / "none")
    asked = {"systemctl": "systemctl", "services": ("chronyd", "nvidia-persistenced")}
    host.process(900, "chronyd", "S")
    host.process(901, "nvidia-persiste", "Z")
    monkeypatch.setattr(host_services, "owner", lambda _proc, _pid: 0)
    wanted = {"chronyd.service": (Verdict.OK, ""), "nvidia-persistenced.service": (Verdict.DEGRADED, "down")}
    assert judged(host, "host.services", **asked) == wanted
    monkeypatch.setattr(host_services, "owner", lambda _proc, _pid: 1001)
    assert judged(host, "host.services", **asked)["chronyd.service"] == (Verdict.DEGRADED, "down")
    assert judged(host, "host.services", systemctl="systemctl", services=()) == {"node": (Verdict.SKIPPED, "")}


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("ClusterName=a\n", True),
        ("AuthType=auth/munge\n", True),
        ("authtype = AUTH/Munge\n", True),
        ("#AuthType=auth/none\n", True),
        ("AuthType=auth/slurm\n", False),
    ],
)
def test_munge_is_expected_where_slurm_uses_it(host: HostFiles, tmp_path: Path, text: str, used: bool) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(text)
    host.munge(listens=False)
    asked = context(host, slurm_confs=(tmp_path / "none", conf))
    if used:
        assert not host_munge.gather(asked).listens
    else:
        with pytest.raises(NotApplicable):
            host_munge.gather(asked)


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ('{"used_percent": 89.9, "inodes_used_percent": 89.9, "read_only": false}', ""),
        ('{"used_percent": 91, "inodes_used_percent": 0}', "filling"),
        ('{"inodes_used_percent": 96}', "full"),
        ('{"read_only": true}', "read_only"),
    ],
)
def test_a_rehearsal_says_how_full_a_disk_is(host: HostFiles, told: str, wanted: str) -> None:
    host.write("volumes.json", told)
    settings = replace(context(host).settings, disk_paths=(str(host.folder),), proc=Path("/proc"))
    settings = replace(settings, host=replace(settings.host, volumes_file=host.folder / "volumes.json"))
    (judged,) = host_disk.judge(host_disk.gather(Context(settings)))
    assert judged.code == wanted
    host.write("volumes.json", "[]")
    with pytest.raises(NotGathered):
        host_disk.gather(Context(settings))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_another_users_process_that_is_called_slurmd_is_none(host: HostFiles) -> None:
    host.process(80, "slurmd", "S")
    (host.proc / "80/cmdline").write_bytes(b"slurmd\0-N\0n1\0")
    asked = Context(CheckSettings(proc=host.proc, slurmd_node="n1", sysfs=host.sys))
    assert host_slurmd.gather(asked).pid == 80
    os.chown(host.proc / "80", 65534, 65534)
    assert host_slurmd.gather(asked).pid is None


def test_a_manifest_is_learned_saved_and_held_against(host: HostFiles, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(
        "Package: libnccl2\nStatus: install ok installed\nVersion: 2.27.3-1+cuda12.9\n\n"
        "Package: munge\nStatus: deinstall ok config-files\nVersion: 0.5\n\n"
        "Package: zlib1g\nStatus: install ok installed\nVersion: 1.3\n"
    )
    (root / "opt/amazon").mkdir(parents=True)
    (root / "opt/amazon/efa_installed_packages").write_text(
        "# EFA installer version: 1.43.0\n# Debug packages installed: no\n# Packages installed:\n"
        "efa-config_1.18_all libfabric1-aws_2.1.0amzn5.0_amd64 libnccl-ofi-1.16.0-1.amzn2023.x86_64\n"
    )
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/rpm").write_text(
        "#!/bin/sh\necho package libnccl is not installed\necho munge 0.5.15-2.el9\nexit 1\n"
    )
    (root / "usr/bin/rpm").chmod(0o755)
    learned = learn_manifest(context(host), root)
    assert learned.cpus == 192
    assert learned.modules == tuple(sorted(MODULES))
    assert learned.mounts == {"/fsx": "lustre"}
    assert learned.versions == {
        "kernel": "6.8.0-1021-aws",
        "module gdrdrv": "2.5",
        "module nvidia": "580.95.05",
        "package EFA installer": "1.43.0",
        "package libfabric1-aws": "2.1.0amzn5.0",
        "package libnccl-ofi": "1.16.0-1.amzn2023",
        "package munge": "0.5.15-2.el9",
        "package libnccl2": "2.27.3-1+cuda12.9",
    }
    save_manifest(learned, host.folder / FILE)
    assert load_manifest(host.folder / FILE) == learned
    host.write("proc/sys/kernel/osrelease", "6.8.0-1030-aws\n")
    host.modules("nvidia")
    found = judged(host, "host.manifest", manifest=None)
    assert found["kernel"] == (Verdict.DEGRADED, "drift")
    assert found["module gdrdrv"] == (Verdict.OK, "")
    assert found["package libnccl2"][0] in (Verdict.SKIPPED, Verdict.DEGRADED, Verdict.OK)
    assert judged(host, "host.modules", manifest=None)["efa"] == (Verdict.DEGRADED, "missing")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '"x"', "{}", '{"version": 2}', '{"version": 1, "cpus": "many"}', '{"version": 1, "cpus": -1}',
     '{"version": 1, "versions": []}', '{"version": 1, "modules": 5}', '{"version": 1, "cpus": true}'],
)  # fmt: skip
def test_what_is_no_manifest_is_unknown_and_no_fault(host: HostFiles, text: str) -> None:
    path = host.folder / "manifest.json"
    path.write_text(text)
    with pytest.raises(NotGathered):
        load_manifest(path)
    for check in ("host.memory", "host.cpu", "host.modules", "host.manifest", "host.mounts"):
        assert judged(host, check) == {"node": (Verdict.UNKNOWN, "")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "garbage",
    [b"", b"\0\xff\xfe", b"9" * 5000, b" \n \n\t", b"-1 -1 -1 -1/-1", b"nan inf 1e999 1/x", b"a=b\nId", b"[]"],
)
def test_files_that_make_no_sense_are_no_fault_and_no_bug(
    host: HostFiles, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for path in [*host.proc.rglob("*"), *host.sys.rglob("*"), host.folder / "units", host.folder / "clock.json"]:
        if path.is_file():
            good = path.read_bytes()
            path.write_bytes(garbage)
            for check in HOST:
                for result in run(all_checks()[check], context(host)):
                    assert not result.bad or path.name in ("osrelease", "version"), (
                        path,
                        result,
                    )
            path.write_bytes(good)
    assert "check_broken" not in caplog.text


def test_an_empty_manifest_demands_nothing(host: HostFiles) -> None:
    (host.folder / "manifest.json").write_text(json.dumps({"version": 1}))
    assert load_manifest(host.folder / "manifest.json") == NodeManifest()
    assert judged(host, "host.modules") == {"node": (Verdict.SKIPPED, "")}
    assert judged(host, "host.manifest") == {"node": (Verdict.SKIPPED, "")}
