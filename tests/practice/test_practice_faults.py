"""Each fault has the documented effect."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.model.errors import Rejected
from holdfast.practice import Injector, Practice
from holdfast.practice.cluster.processes import start_ticks
from holdfast.practice.nvml import state as nvml
from support.practice import eventually

pytestmark = pytest.mark.slurm

_CLOCK = "import time; open('clock', 'w').write(f'{time.time()} {time.monotonic()}'); time.sleep(600)"


@pytest.fixture
def inject(practice: Practice) -> Injector:
    return Injector(practice)


def answers(address: str, port: int) -> str:
    """What a peer sees: open, refused, or silence."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        try:
            probe.connect((address, port))
        except TimeoutError:
            return "silence"
        except ConnectionRefusedError:
            return "refused"
    return "open"


def job_state(practice: Practice, job_id: int) -> str:
    return practice.command("squeue", "-h", "-t", "all", "-o", "%T", "-j", str(job_id)).strip()


def running(practice: Practice, script: str, *args: str) -> int:
    job_id = practice.sbatch(script, *args)
    eventually(lambda: job_state(practice, job_id) == "RUNNING")
    return job_id


def last_injection(practice: Practice) -> dict[str, object]:
    line: dict[str, object] = json.loads((practice.folder / "injections.jsonl").read_text().splitlines()[-1])
    return line


def test_xid(practice: Practice, inject: Injector) -> None:
    host = practice.machine("n1").host
    before = time.monotonic()
    inject.xid("n1", 79, 3)
    record = host.kmsg.read_text().splitlines()[-1]
    prefix, text = record.split(";", 1)
    priority, _sequence, microseconds, _flags = prefix.split(",")
    assert int(priority) >> 3 == 0
    assert before <= int(microseconds) / 1e6 <= time.monotonic()
    pci = nvml.read(host.nvml_state).gpus[3].pci
    assert text.startswith(f"NVRM: Xid (PCI:{pci[4:-2].lower()}): 79, ")
    assert [gpu.lost for gpu in nvml.read(host.nvml_state).gpus].index(True) == 3
    told = last_injection(practice)
    assert (told["fault"], told["node"], told["code"], told["gpu"]) == ("xid", "n1", 79, 3)
    assert before <= float(str(told["monotonic_s"])) <= int(microseconds) / 1e6
    with pytest.raises(Rejected, match="no GPU 8"):
        inject.xid("n1", 79, 8)


def test_a_users_line_has_the_users_facility(practice: Practice, inject: Injector) -> None:
    inject.kernel_message("n1", "NVRM: Xid (PCI:0000:10:00): 79, forged", facility=1)
    record = practice.machine("n1").host.kmsg.read_text().splitlines()[-1]
    assert int(record.split(",")[0]) >> 3 == 1


def test_power_loss_is_silent_and_heals_with_a_boot(practice: Practice, inject: Injector) -> None:
    machine = practice.machine("n2")
    job_id = running(practice, "srun sleep 300", "-N2", "-w", "n1,n2")
    boot_id, tree = machine.host.boot_id, practice.processes.tree(machine.slurmd)
    assert answers(machine.address, machine.port) == "open"
    inject.power_loss("n2")
    assert [pid for pid in tree if start_ticks(pid) is not None] == []
    assert answers(machine.address, machine.port) == "silence"
    time.sleep(1)
    # No process was notified: the survivors' job waits, as with a real power loss.
    assert job_state(practice, job_id) == "RUNNING"
    inject.heal("n2")
    assert machine.host.boot_id != boot_id
    eventually(lambda: answers(machine.address, machine.port) == "open")


def test_cut_off_from_all_leaves_the_job_training(practice: Practice, inject: Injector, short_folder: Path) -> None:
    machine = practice.machine("n3")
    ticks = short_folder / "ticks"
    running(practice, f"while :; do echo x >> {ticks}; sleep 0.05; done", "-w", "n3")
    eventually(ticks.exists)
    inject.cut_off("n3", "all")
    assert answers(machine.address, machine.port) == "silence"
    before = ticks.stat().st_size
    eventually(lambda: ticks.stat().st_size > before + 10)
    inject.heal("n3")
    eventually(lambda: answers(machine.address, machine.port) == "open")
    eventually(lambda: practice.command("sinfo", "-h", "-n", "n3", "-o", "%T").strip() in {"mixed", "allocated"})


@contextmanager
def echo_server(port: int) -> Iterator[None]:
    """Stands for the controller."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            while chunk := connection.recv(1024):
                connection.sendall(chunk)

    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield
        thread.join(timeout=5)


def test_cut_off_from_the_controller(practice: Practice, inject: Injector) -> None:
    address, port = practice.spec.address("n4"), practice.spec.relay_port("n4")
    with echo_server(practice.spec.controller_port), socket.create_connection((address, port), timeout=5) as agent:
        agent.sendall(b"one")
        assert agent.recv(16) == b"one"
        inject.cut_off("n4")
        agent.sendall(b"two")
        agent.settimeout(0.5)
        with pytest.raises(TimeoutError):
            agent.recv(16)
        assert answers(practice.machine("n4").address, practice.machine("n4").port) == "open"
        inject.heal("n4")
        agent.settimeout(5)
        assert agent.recv(16) == b"two"
    practice.machine("n4").cut_file.unlink(missing_ok=True)


def test_hang_nvml(practice: Practice, inject: Injector) -> None:
    inject.hang_nvml("n1")
    assert nvml.read(practice.machine("n1").host.nvml_state).hang
    inject.heal("n1")
    assert not nvml.read(practice.machine("n1").host.nvml_state).hang


def test_stuck_task_holds_its_job_completing(practice: Practice, inject: Injector) -> None:
    job_id = running(practice, "srun sleep 300", "-N2", "-w", "n1,n2")
    machine = practice.machine("n2")
    eventually(lambda: len(practice.processes.tree(machine.slurmd)) > 3)  # reaper, slurmd, slurmstepd, task
    inject.stuck_task("n2")
    practice.command("scancel", str(job_id))
    time.sleep(2)
    assert job_state(practice, job_id) == "COMPLETING"
    assert answers(practice.machine("n2").address, practice.machine("n2").port) == "open"
    inject.heal("n2")
    eventually(lambda: job_state(practice, job_id) == "CANCELLED", within_s=20)


def test_stuck_epilog_holds_its_job_completing(practice: Practice, inject: Injector) -> None:
    job_id = running(practice, "exec sleep 300", "-w", "n1")
    inject.stuck_epilog("n1")
    practice.command("scancel", str(job_id))
    time.sleep(1.5)
    assert job_state(practice, job_id) == "COMPLETING"
    inject.heal("n1")
    eventually(lambda: job_state(practice, job_id) == "CANCELLED", within_s=60)


def test_clock_skew_moves_the_agents_wall_clock_alone(practice: Practice, inject: Injector) -> None:
    machine = practice.machine("n5")
    clock = machine.host.folder / "clock"
    machine.set_agent([sys.executable, "-c", _CLOCK])
    eventually(clock.exists)
    try:
        clock.unlink()
        inject.clock_skew("n5", -3600)
        eventually(lambda: clock.exists() and len(clock.read_text().split()) == 2)
        wall, monotonic = map(float, clock.read_text().split())
        assert abs(time.time() - 3600 - wall) < 30
        assert abs(time.monotonic() - monotonic) < 30
        inject.kill_agent("n5")
        assert not practice.processes.alive(machine.agent)
        inject.heal("n5")
        assert practice.processes.alive(machine.agent)
    finally:
        machine.forget_agent()


def test_slurmd_killed_alone_leaves_its_job(practice: Practice, inject: Injector) -> None:
    machine = practice.machine("n1")
    begun = practice.folder / "jobs" / "begun"
    job_id = running(practice, f"touch {begun}; exec sleep 300", "-w", "n1")
    eventually(begun.exists)  # before that the step still takes its orders from slurmd, and goes with it
    inject.kill_slurmd("n1")
    assert answers(machine.address, machine.port) == "refused"
    assert len(machine.tree()) >= 3
    inject.heal("n1")
    eventually(lambda: answers(machine.address, machine.port) == "open")
    assert job_state(practice, job_id) == "RUNNING"
    assert len(machine.tree()) >= 5
    machine.power_off()
    assert machine.tree() == []


def test_fill_queue(practice: Practice, inject: Injector) -> None:
    jobs = inject.fill_queue(7)
    assert len(jobs) == 7
    eventually(lambda: practice.command("squeue", "-h", "-t", "running", "-o", "%A").count("\n") == 5)
    users = set(practice.command("squeue", "-h", "-o", "%u").split())
    assert users == ({"daemon"} if os.geteuid() == 0 else users)


def test_slurmctld_away_and_back(practice: Practice, inject: Injector) -> None:
    job_id = running(practice, "exec sleep 300", "-N1")
    inject.stop_slurmctld()
    assert not practice.status().slurmctld
    inject.start_slurmctld()
    assert job_state(practice, job_id) == "RUNNING"
    assert [last_injection(practice)[key] for key in ("fault", "node")] == ["start_slurmctld", ""]


def test_replaced_hardware_is_other_hardware(practice: Practice) -> None:
    host = practice.machine("n5").host
    before = host.boot_id, host.instance_id, {gpu.uuid for gpu in nvml.read(host.nvml_state).gpus}
    practice.machine("n5").replace("i-0123456789abcdef0")
    after = host.boot_id, host.instance_id, {gpu.uuid for gpu in nvml.read(host.nvml_state).gpus}
    assert before[0] != after[0]
    assert after[1] == "i-0123456789abcdef0"
    assert not before[2] & after[2]
    practice.wait_for_nodes()
