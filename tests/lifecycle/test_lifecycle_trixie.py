"""A booted Debian 13 in ``act``, with the distribution's own units and Slurm 24.11: no action while nothing is wrong, and then each
fault of the demo is found. ``HOLDFAST_SOAK_QUIET_S`` says how long the quiet time is (an hour unless set),
``HOLDFAST_SOAK_LOG`` where its samples are kept."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.practice.nvml import state as nvml
from lifecycle.boot_site import follow_the_page
from lifecycle.boot_trixie import Site, agent_more, trixie_node
from lifecycle.boot_watch import EVERY_S, QuietWatch
from lifecycle.booted import Booted, can_boot

QUIET_S = float(os.environ.get("HOLDFAST_SOAK_QUIET_S", "3600"))
pytestmark = [
    pytest.mark.soak,  # the quiet time and about a quarter of an hour; some minutes more for the first
    pytest.mark.timeout(QUIET_S + 1800),
    pytest.mark.skipif(not can_boot(), reason="needs root and systemd-nspawn (package systemd-container)"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="needs debootstrap"),
]
EVERY_JOB_S = 20.0
SAMPLES_S = 150.0
"""``host.slurmd`` counts after two samples, 30 s apart; 60 s where the machine is short of CPU."""
ORDINARY = ("systemctl restart slurmd", "scontrol reconfigure", "systemctl restart slurmctld")
"""Routine actions of administrators. From 23.11 on a slurmd that is reconfigured replaces itself by another process."""
SPEAKS = """
import json, os, socket
with socket.socket(socket.AF_UNIX) as s:
    s.connect("/run/holdfast/agent.sock")
    s.settimeout(5)
    job = {"v": 1, "kind": "checkpoint.register", "job_id": int(os.environ["SLURM_JOB_ID"]), "dir": "/home/alice"}
    s.sendall(json.dumps(job).encode() + b"\\n")
    s.shutdown(socket.SHUT_WR)
    print("answer", s.recv(200))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = trixie_node(tmp_path_factory.mktemp("trixie"))
    (root / "usr/local/lib/speaks.py").write_text(SPEAKS)
    with Booted(root, cgroups_v2=True) as machine:
        follow_the_page(machine, agent_more())
        site = Site(machine)
        site.until(lambda: "idle" in machine.call("sinfo -h -o %T"), 60, "Slurm is not up")
        yield site


@pytest.fixture
def healed(site: Site) -> Iterator[Site]:
    """The same, as new again afterwards."""
    yield site
    site.heal()


def test_it_is_what_the_distribution_starts(site: Site) -> None:
    assert "24.11" in site.machine.call("slurmd -V")
    command = site.machine.call(f"tr '\\0' ' ' </proc/{site.slurmd()}/cmdline")
    assert command.startswith("/usr/sbin/slurmd --systemd")
    assert site.machine.run("ls /run/slurmd.pid").returncode != 0
    assert '"mode": "act"' in site.holdfast("nodes --json")
    site.until(lambda: "host.slurmd" in proofs(site), 60, "slurmd was not seen")


def proofs(site: Site) -> str:
    """What the agent has recorded as seen in place."""
    read = "import sqlite3; d = sqlite3.connect('file:/var/lib/holdfast-agent/agent.db?mode=ro', uri=True)"
    shown = "print(d.execute('SELECT value FROM meta WHERE key = ?', ('seen_right',)).fetchall())"
    return site.machine.call(f'/opt/holdfast/bin/python -c "{read}; {shown}"')


def test_while_nothing_is_wrong_nothing_is_done(site: Site, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Jobs come and go; slurmd is restarted, and replaces itself when Slurm is configured again."""
    watch = QuietWatch(site, Path(os.environ.get("HOLDFAST_SOAK_LOG") or tmp_path / "quiet.log"))
    begun_s, ordinary = time.monotonic(), list(ORDINARY)
    jobs, job_due_s = 0, 0.0
    while (passed_s := time.monotonic() - begun_s) < QUIET_S:
        if passed_s > QUIET_S * (len(ORDINARY) - len(ordinary) + 1) / (len(ORDINARY) + 1) and ordinary:
            watch.note(f"ordinary change: {ordinary[0]}")
            site.machine.call(ordinary.pop(0))
        if passed_s >= job_due_s:
            site.submit("srun sleep 12", "--gres=gpu:8")
            jobs, job_due_s = jobs + 1, passed_s + EVERY_JOB_S
        watch.sample()
        time.sleep(EVERY_S)
    said = f"{jobs} jobs ({len(watch.jobs)} seen), {len(ORDINARY) - len(ordinary)} ordinary changes, {watch.samples} samples"
    with capsys.disabled():
        sys.stderr.write(
            f"\nquiet for {passed_s:.0f} s: {said}, states {sorted(watch.states)}, failed parts {watch.failed}\n"
        )
        sys.stderr.write(f"recorded: {sorted(set(watch.recorded))}\n")
    assert len(watch.jobs) > jobs // 2
    assert site.actions() == []
    site.until(lambda: "idle" in site.machine.call("sinfo -h -o %T"), 90, "the last jobs have not ended")


def test_a_job_is_heard(site: Site) -> None:
    """slurmd's answer on which process belongs to which job."""
    job = site.submit("exec srun /opt/holdfast/bin/python /usr/local/lib/speaks.py")
    heard = f"kind=checkpoint.register job={job}"
    site.until(lambda: heard in site.machine.journal("holdfast-agent"), 60, "the agent did not log the job")


def test_an_administrator_may_stop_slurmd(healed: Site) -> None:
    last = last_event(healed)
    healed.machine.call("systemctl stop slurmd")
    words = "stopped in an orderly way"
    healed.until(lambda: words in json.dumps(healed.events(last)), SAMPLES_S, "not recorded")
    time.sleep(30)
    assert healed.drained_for() == ""
    assert healed.actions(last) == []


def test_a_place_that_a_roll_out_got_wrong_is_only_recorded(healed: Site) -> None:
    """munged listens where it always did; the settings say elsewhere."""
    last = last_event(healed)
    set_munge_socket(healed, '"/run/elsewhere/munge.socket.2"')
    healed.until(lambda: "host.munge" in json.dumps(healed.events(last)), 60, "nothing was recorded")
    time.sleep(20)
    assert healed.drained_for() == ""
    assert healed.actions(last) == []
    assert "never yet seen right on this node" in json.dumps(healed.incidents() + healed.events(last))
    set_munge_socket(healed, '"/run/munge/munge.socket.2"')


def set_munge_socket(site: Site, path: str) -> None:
    file = site.machine.root / "etc/holdfast/agent.toml"
    before = file.read_text().partition("[host]")[0]
    file.write_text(f"{before}[host]\nmunge_socket = {path}\n")
    site.machine.call("systemctl restart holdfast-agent")


def last_event(site: Site) -> int:
    return max((int(event["id"]) for event in site.events()), default=0)


def test_a_gpu_falls_off_the_bus_under_a_job_that_cannot_end(healed: Site) -> None:
    """Its processes are stopped, so slurmd cannot end them: the agent does, and finds slurmd and its steps without a pid file.

    One job only: a second one within the hour is held by the brake on stopped jobs, as the cluster is this node."""
    job = healed.submit("srun sleep 600", "--gres=gpu:8", "--requeue", "--comment=holdfast")
    healed.until(lambda: healed.machine.run("pgrep -x sleep").returncode == 0, 60, "the task does not run")
    time.sleep(3)
    stopped = healed.machine.run("pkill -STOP -x sleep; pkill -STOP -f '^slurmstepd: .[0-9]'")
    assert stopped.returncode == 0
    healed.xid(79, 3)
    healed.until(lambda: "gpu.xid 79" in healed.drained_for(), 30, "not drained")
    healed.until(lambda: healed.job(job).startswith("PENDING"), 120, "the job still holds the node")
    assert "end_stuck_job" in json.dumps(healed.events())
    assert healed.machine.run("pgrep -x sleep").returncode != 0


def test_slurmd_is_killed(healed: Site) -> None:
    healed.machine.call(f"kill -KILL {healed.slurmd()}")
    healed.until(lambda: "host.slurmd" in healed.drained_for(), SAMPLES_S + 60, "not drained")


def unharmed(site: Site, after_id: int, job: int) -> None:
    """In service, nothing done, and the job runs in its first attempt."""
    assert site.drained_for() == ""
    assert site.actions(after_id) == []
    assert site.job(job).startswith("RUNNING")
    assert "Restarts=0" in site.machine.call(f"scontrol show job {job}")


@pytest.mark.parametrize("unit", ["slurmctld", "holdfast-controller", "holdfast-actor"])
def test_a_head_service_is_away(healed: Site, unit: str) -> None:
    """Half a minute; from a minute on an operator is notified."""
    last, job = last_event(healed), healed.running()
    time.sleep(10)  # slurmctld forgets what it has not saved, which it does every 5 s
    healed.machine.call(f"systemctl kill --signal=KILL {unit}; systemctl stop {unit}")
    time.sleep(30)
    healed.machine.call(f"systemctl start {unit}", 120.0)
    time.sleep(30)
    unharmed(healed, last, job)


def test_the_agent_is_killed(healed: Site) -> None:
    last, job = last_event(healed), healed.running()
    before = healed.machine.show("holdfast-agent", "MainPID")
    healed.machine.call(f"kill -KILL {before}")
    healed.until(
        lambda: healed.machine.show("holdfast-agent", "MainPID") not in ("0", before), 60, "it does not come back"
    )
    time.sleep(30)
    unharmed(healed, last, job)


@pytest.mark.parametrize("code", [13, 31, 43])
def test_an_xid_of_the_jobs_own_making(healed: Site, code: int) -> None:
    last, job = last_event(healed), healed.running()
    healed.xid(code, 2)
    time.sleep(30)
    unharmed(healed, last, job)


def test_a_user_writes_an_xid_to_the_kernel_log(healed: Site) -> None:
    last, job = last_event(healed), healed.running()
    healed.hardware.log_kernel(
        4, "NVRM: Xid (PCI:0000:53:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", facility=1
    )
    time.sleep(30)
    unharmed(healed, last, job)


def test_slurmd_answers_no_one_for_a_while(healed: Site) -> None:
    """As behind a failed management network: the job trains on, and within SlurmdTimeout (300 s) Slurm takes no action."""
    last, job = last_event(healed), healed.running()
    healed.machine.call(f"kill -STOP {healed.slurmd()}")
    time.sleep(60)
    healed.machine.call(f"kill -CONT {healed.slurmd()}")
    time.sleep(20)
    unharmed(healed, last, job)


def test_a_gpu_is_lost_and_no_xid_tells(healed: Site) -> None:
    nvml.lose_gpu(healed.hardware.nvml_state, 5)
    healed.until(lambda: "gpu." in healed.drained_for(), 120, "not drained")


def test_nvml_hangs(healed: Site) -> None:
    nvml.set_hang(healed.hardware.nvml_state, True)
    healed.until(lambda: "gpu.nvml" in healed.drained_for(), 180, "not drained")


def test_a_machine_check(healed: Site) -> None:
    healed.machine_check()
    healed.until(lambda: "kernel.machine_check" in healed.drained_for(), 30, "not drained")
