"""The units out of the Debian packages on a machine that systemd has booted, with a real Slurm: they get ready, they can do their work
inside their confinement, and what is stuck or dead is restarted. Root and systemd-nspawn; the root is made once, by debootstrap."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lifecycle.boot_site import JOBS, KMSG, MACHINE_CHECK, SERVICES, follow_the_page, head_node
from lifecycle.booted import Booted, can_boot

pytestmark = [
    pytest.mark.soak,  # about three minutes; two more for the first
    pytest.mark.timeout(900),
    pytest.mark.skipif(not can_boot(), reason="needs root and systemd-nspawn (package systemd-container)"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="needs debootstrap"),
]
LATEST = """
import json, socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect("/run/holdfast/agent.sock")
    s.sendall(json.dumps({"v": 1, "kind": "ask.latest", "dir": sys.argv[1], "within_ms": 4000}).encode() + b"\\n")
    print(s.makefile().readline())
"""
STATUS = """
import socket
with socket.socket(socket.AF_UNIX) as s:
    s.connect("/run/holdfast-quorum/quorum.sock")
    print(s.makefile().readline())
"""
SAVE = """
import sys
from holdfast_checkpoint import Checkpointer
c = Checkpointer(sys.argv[1]); c.resume()
with c.save(5) as folder: (folder / "x").write_bytes(b"1")
"""
REPORTING = "holdfast-agent-reporting"
GROUPS = f"exec srun holdfast run -- /opt/holdfast/bin/python {JOBS}/boot_group.py /home/alice/steps"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    with Booted(head_node(tmp_path_factory.mktemp("boot"))) as machine:
        follow_the_page(machine)
        yield machine


def holdfast(machine: Booted, verb: str) -> str:
    url = "HOLDFAST_URL=https://head:8460 HOLDFAST_CA_FILE=/etc/holdfast/ca.pem"
    return machine.call(f"HOME=/root {url} holdfast {verb}")


def test_they_are_ready_once_they_work(machine: Booted) -> None:
    """The page's ``systemctl enable --now`` has returned, so each has sent READY=1; and the agent reports over TLS."""
    for service in SERVICES:
        assert (machine.show(service, "ActiveState"), machine.show(service, "NRestarts")) == ("active", "0")
    machine.until(lambda: "head" in holdfast(machine, "nodes --json"), 10, "holdfast-agent")
    assert "level=error" not in machine.journal("holdfast-controller") + machine.journal("holdfast-actor")


def test_the_doctor_has_the_rights_of_the_actor(machine: Booted) -> None:
    told = {
        one["id"] for one in json.loads(machine.run("runuser -u slurm -g holdfast -- holdfast doctor --json").stdout)
    }
    assert "slurm.gres_types" in told, "it speaks: this Slurm has no GPUs"
    assert not {"slurm.permission", "slurm.permission_reserve", "slurm.unreachable"} & told
    others = {
        one["id"] for one in json.loads(machine.run("runuser -u holdfast-actor -- holdfast doctor --json").stdout)
    }
    assert "slurm.permission" in others, "who is not SlurmUser may not"


@pytest.mark.parametrize(
    ("service", "user", "powers"),
    [
        ("holdfast-controller", "holdfast-controller", "0"),
        ("holdfast-actor", "slurm", "0"),
        ("holdfast-quorum", "holdfast-quorum", "0"),
        ("holdfast-agent", "root", None),
    ],
)
def test_rights_are_what_the_units_say(machine: Booted, service: str, user: str, powers: str | None) -> None:
    status = machine.call(f"cat /proc/{machine.show(service, 'MainPID')}/status")
    fields = dict(re.findall(r"^(\w+):\s*(\S+)", status, re.MULTILINE))
    assert machine.call(f"id -u {user}").strip() == fields["Uid"]
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert powers is None or int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0


def test_who_listens_cannot_read_the_providers_credentials(machine: Booted) -> None:
    machine.call(
        "install -m 0600 /dev/null /etc/holdfast/actor/environment && echo X=1 >/etc/holdfast/actor/environment"
    )
    for service in ("holdfast-controller", "holdfast-quorum"):
        listener = machine.show(service, "MainPID")
        assert machine.run(f"nsenter -t {listener} -m ls /etc/holdfast/actor/environment").returncode != 0
    machine.call("systemctl restart holdfast-actor")
    assert "X=1" in machine.call(f"tr '\\0' '\\n' </proc/{machine.show('holdfast-actor', 'MainPID')}/environ")


def test_the_rooms_secrets_are_the_quorum_services_alone(machine: Booted) -> None:
    key = machine.call("stat -c %a:%U:%G:%s /var/lib/holdfast-quorum/quorum.key").strip()
    assert key == "600:holdfast-quorum:holdfast-quorum:32"
    assert machine.call("stat -c %a:%U /var/lib/holdfast-quorum/quorum.db").strip() == "600:holdfast-quorum"
    refused = machine.call(f"runuser -u alice -- /opt/holdfast/bin/python -c '{STATUS}'")
    assert "may not speak" in json.loads(refused)["error"]


def test_the_quorum_service_reaches_neither_the_store_nor_the_settings(machine: Booted) -> None:
    """It listens to jobs. What it may read is what its own process would see: its view of the files, its user and its groups."""
    pid = machine.show("holdfast-quorum", "MainPID")
    groups = re.search(r"^Groups:(.*)$", machine.call(f"cat /proc/{pid}/status"), re.MULTILINE)
    assert groups is not None
    shared = machine.call("getent group holdfast").split(":")[2]
    assert shared not in groups[1].split()
    for path in ("/var/lib/holdfast/holdfast.db", "/etc/holdfast/controller.toml"):
        assert machine.run(f"head -c 1 {path}").returncode == 0
        seen = machine.run(
            f"nsenter -t {pid} -m -- setpriv --reuid holdfast-quorum --regid holdfast-quorum --clear-groups head -c 1 {path}"
        )
        assert seen.returncode != 0, path
    assert machine.call("stat -c %a:%U:%G /run/holdfast-quorum.arguments").strip() == "640:root:holdfast-quorum"
    assert machine.call("stat -c %a /var/lib/holdfast-actor").strip() == "700"


def test_a_job_finds_its_checkpoint_with_its_own_rights(machine: Booted) -> None:
    """The agent is root without the right to become any user: it becomes the asking user."""
    machine.call("mkdir -m 0700 /home/alice/ckpt && chown alice /home/alice/ckpt")
    machine.call(
        f"HOLDFAST_AGENT_SOCKET=/nowhere runuser -u alice -- /opt/holdfast/bin/python -c '{SAVE}' /home/alice/ckpt"
    )
    found = machine.call(f"runuser -u alice -- /opt/holdfast/bin/python -c '{LATEST}' /home/alice/ckpt")
    assert json.loads(found)["path"].startswith("/home/alice/ckpt/"), found
    machine.call("mkdir -m 0700 /root/ckpt")
    assert "error" in json.loads(machine.call(f"runuser -u alice -- /opt/holdfast/bin/python -c '{LATEST}' /root/ckpt"))


def as_alice(machine: Booted, command: str) -> None:
    machine.call(f"cd /home/alice && runuser -u alice -- {command}")


def steps(machine: Booted) -> list[list[int]]:
    """Of the groups 0 and 1: the steps that both took part in."""
    files = [machine.root / f"home/alice/steps/{group}.jsonl" for group in (0, 1)]
    lines = [file.read_text().splitlines() if file.exists() else [] for file in files]
    told = [[json.loads(line) for line in found if line.endswith("}")] for found in lines]
    return [[one["step"] for one in found if one["groups"] == 2] for found in told]


def train_on(machine: Booted) -> None:
    """Until each has made five more steps together with the other."""
    before = steps(machine)
    machine.until(
        lambda: all(len(now) >= len(then) + 5 for now, then in zip(steps(machine), before, strict=True)),
        60,
        "holdfast-quorum",
    )


def end_jobs(machine: Booted) -> None:
    machine.call("scancel --user=alice")
    machine.until(lambda: not machine.call("squeue --noheader"), 60, "slurmctld")


def test_an_elastic_job_trains_on_whatever_becomes_of_the_head_nodes_daemons(machine: Booted) -> None:
    """Its launchers ask the agent, the agent the controller, and the controller the quorum service: each in its confinement."""
    machine.call("install -d -o alice /home/alice/steps")
    as_alice(machine, f"sbatch --array=0-1 --requeue --comment='holdfast elastic=2:2' --wrap '{GROUPS}'")
    train_on(machine)
    machine.call("systemctl stop holdfast-controller")
    train_on(machine)
    before = machine.show("holdfast-quorum", "MainPID")
    machine.call(f"kill -KILL {before}")
    machine.until(lambda: machine.show("holdfast-quorum", "MainPID") not in (before, "0"), 20, "holdfast-quorum")
    train_on(machine)
    machine.call("systemctl start holdfast-controller")
    machine.call("systemctl restart holdfast-quorum")
    train_on(machine)
    end_jobs(machine)
    for made in steps(machine):
        assert made == sorted(set(made)), "a step was met for twice"


def test_the_stacks_of_a_job_that_hangs_are_read_also_in_a_container(machine: Booted) -> None:
    """By py-spy as the agent's child, with the agent's system call filter and what is left of root's capabilities."""
    as_alice(machine, f"sbatch --ntasks=2 --wrap 'exec srun sh {JOBS}/ranks.sh'")
    machine.until(lambda: "job.hung" in holdfast(machine, "incidents --json"), 90, "holdfast-controller")
    machine.until(lambda: "stacks:" in holdfast(machine, "incidents --json"), 30, "holdfast-agent")
    (note,) = {one["note"] for one in json.loads(holdfast(machine, "incidents --json"))["incidents"]}
    end_jobs(machine)
    for rank, where in enumerate(("waits_for_others", "reads_a_file")):
        assert f"rank {rank} on head: {where} (boot_hang.py:" in note


def test_no_short_lived_process_takes_the_record_from_the_daemons(machine: Booted) -> None:
    """The last process to close SQLite's files removes the log with everything not yet in the database: it must know of the daemons."""
    machine.call("runuser -u holdfast-controller -- holdfast token create agent n9")
    for service in ("holdfast-controller", "holdfast-actor"):
        held = machine.call(f"ls -l /proc/{machine.show(service, 'MainPID')}/fd")
        assert "holdfast.db-wal" in held
        assert "(deleted)" not in held


def test_an_agent_that_no_controller_hears_is_a_failed_unit_and_works_on(machine: Booted) -> None:
    """What `systemctl --failed` and monitoring see; the agent's own unit is not affected."""
    before = machine.show("holdfast-agent", "MainPID")
    machine.call("systemctl stop holdfast-controller")
    machine.until(lambda: machine.show(REPORTING, "ActiveState") == "failed", 60, "holdfast-agent")
    assert machine.show("holdfast-agent", "StatusText").startswith("NOT REPORTING")
    assert machine.run("holdfast-agent check").returncode == 1
    machine.call("systemctl start holdfast-controller")
    machine.until(lambda: machine.show(REPORTING, "ActiveState") == "inactive", 60, "holdfast-agent")
    assert machine.show("holdfast-agent", "StatusText").startswith("Reporting to https://head:8460")
    assert machine.show("holdfast-agent", "MainPID") == before
    machine.call("holdfast-agent check")


def test_a_renewed_certificate_is_served_after_a_reload(machine: Booted) -> None:
    before = machine.show("holdfast-controller", "MainPID")
    machine.call("holdfast tls renew --new-key && systemctl reload holdfast-controller")
    machine.until(lambda: "outcome=done" in machine.journal("holdfast-controller"), 20, "holdfast-controller")
    assert machine.show("holdfast-controller", "MainPID") == before
    assert "holdfast-controller" in machine.call("stat -c %U:%a /etc/holdfast/tls.key")
    machine.call("holdfast-agent check")


def test_a_node_that_is_no_head_node_lets_jobs_speak(machine: Booted) -> None:
    """Only the agent makes the folder of its socket there."""
    machine.call(f"systemctl stop {' '.join(SERVICES)} && rm -r /run/holdfast && systemctl start holdfast-agent")
    asked = machine.run(f"runuser -u alice -- /opt/holdfast/bin/python -c '{LATEST}' /home/alice")
    machine.call(f"systemd-tmpfiles --create holdfast.conf && systemctl start {' '.join(SERVICES)}")
    assert asked.returncode == 0, asked.stderr


def test_a_fault_goes_through_all_three(machine: Booted) -> None:
    """Kernel log → agent → controller → actor → drained in Slurm, each in its confinement."""
    machine.until(lambda: "idle" in machine.call("sinfo -h -o %t"), 20, "slurmctld")
    with (machine.root / KMSG).open("a") as kmsg:
        kmsg.write(f"2,1000,{int(time.monotonic() * 1e6)},-;{MACHINE_CHECK}\n")
    machine.until(lambda: "holdfast[" in machine.call("sinfo -R -h -o %E"), 20, "holdfast-controller")
    assert machine.call("sinfo -h -o %T").startswith("drain")
    assert "kernel.machine_check" in holdfast(machine, "incidents")


@pytest.mark.parametrize("service", SERVICES)
def test_a_stuck_cycle_is_ended_and_started_again(machine: Booted, service: str) -> None:
    before = machine.show(service, "MainPID")
    machine.call(f"kill -USR2 {before}")
    machine.until(lambda: machine.show(service, "MainPID") not in (before, "0"), 30, service)
    machine.until(lambda: machine.show(service, "ActiveState") == "active", 20, service)
    said = machine.journal(service)
    assert "Fatal Python error: Aborted" in said, "its stacks are in the journal"
    assert "in hang" in said or "in <lambda>" in said


@pytest.mark.parametrize("service", SERVICES)
def test_a_killed_one_comes_back(machine: Booted, service: str) -> None:
    before = machine.show(service, "MainPID")
    machine.call(f"kill -KILL {before}")
    machine.until(lambda: machine.show(service, "MainPID") not in (before, "0"), 20, service)
    machine.until(lambda: machine.show(service, "ActiveState") == "active", 20, service)


@pytest.mark.parametrize(
    ("service", "file", "status"),
    [
        ("holdfast-actor", "controller", 2),
        ("holdfast-quorum", "controller", 2),
        ("holdfast-agent", "agent", 78),
    ],
)
def test_wrong_settings_are_not_tried_for_ever(machine: Booted, service: str, file: str, status: int) -> None:
    path = f"/etc/holdfast/{file}.toml"
    machine.call(f"cp {path} /root/kept && sed -i '1i nonsense = 1' {path}")
    machine.run(f"systemctl restart {service}")
    machine.until(lambda: machine.show(service, "ActiveState") == "failed", 20, service)
    assert machine.show(service, "ExecMainStatus") == str(status)
    machine.call(f"cp /root/kept {path} && systemctl reset-failed {service} && systemctl start {service}")


def test_an_ordered_stop_is_quick_and_clean(machine: Booted) -> None:
    begun_s = time.monotonic()
    machine.call(f"systemctl stop {' '.join(SERVICES)}")
    assert time.monotonic() - begun_s < 10
    for service in SERVICES:
        assert (machine.show(service, "ActiveState"), machine.show(service, "Result")) == ("inactive", "success")
    machine.call(f"systemctl start {' '.join(SERVICES)}")


def test_removing_the_packages_stops_them_and_keeps_the_record(machine: Booted) -> None:
    machine.call("dpkg -r holdfast-controller holdfast-agent")
    for service in SERVICES:
        assert machine.show(service, "ActiveState") in ("inactive", "failed")
        assert machine.show(service, "UnitFileState") == "", "nothing of it is left to start"
    machine.call("! ls /run/holdfast-quorum/quorum.sock /run/holdfast/agent.sock | grep sock")
    assert Path(machine.root / "var/lib/holdfast/holdfast.db").stat().st_size > 0
    assert machine.call("cat /etc/holdfast/agent.token")
