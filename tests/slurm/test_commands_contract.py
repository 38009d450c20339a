"""The commands twin under the contract, and what only it can be asked."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.actor.adapters import Outside, prove_free
from holdfast.model.book import NodeMark
from holdfast.model.errors import NotFound, NotPermitted, Rejected, Unavailable
from holdfast.model.ids import slurm_reason
from holdfast.ports import Scheduler
from holdfast.practice import Practice
from holdfast.slurm.commands import SlurmCommands
from holdfast.slurm.holding import HeldByReservation
from holdfast.slurm.run import Commands
from holdfast.slurm.squeue import SQUEUE
from slurm.contract import OWNER, ROOT, SchedulerContract
from support.practice import eventually

INCIDENT = "0a1b2c3d4e5f"
RECORD = "NodeName=n1 NodeAddr=10.0.0.1 NodeHostName=n1 State=IDLE"


@pytest.mark.slurm
class TestCommands(SchedulerContract):
    def open(self, env: Mapping[str, str], deadline_s: float = 4.0) -> Scheduler:
        return SlurmCommands(env=env, deadline_s=deadline_s)

    @ROOT
    def test_no_permission(self, slurm: Scheduler, practice: Practice, tmp_path: Path) -> None:
        job_id = practice.sbatch("sleep 60")
        scontrol = _wrapper(tmp_path, "scontrol", OWNER)
        env = practice.command_env()
        twin = SlurmCommands(env={**env, "PATH": f"{scontrol.parent}:{env['PATH']}"})
        with pytest.raises(NotPermitted):
            twin.drain("n1", "x")
        with pytest.raises(NotPermitted):
            twin.create_reservation("r", ("n1",), users=("root",), duration_s=60)
        with pytest.raises(NotPermitted):
            twin.reboot("n1", "x")
        with pytest.raises(NotPermitted):
            twin.requeue(job_id)
        assert not slurm.node("n1").draining
        assert len(twin.view().nodes) == 5

    def test_how_many_commands_a_step_costs(self, make_practice: Callable[..., Practice]) -> None:
        """The proof that a node is free took five commands, four of which printed the whole cluster; it takes two of one node.

        On a separate cluster: jobs of other tests with doubtful texts are read one by one."""
        practice = make_practice(nodes=4, gpus=1)
        practice.up()
        twin = SlurmCommands(env=practice.command_env())
        leader = practice.sbatch("#!/bin/sh\n#SBATCH -N1 -w n3\n#SBATCH hetjob\n#SBATCH -N1 -w n4\nexec sleep 60\n")
        eventually(lambda: twin.job(leader).state == "RUNNING")
        ran = _count(twin)
        twin.drain("n1", slurm_reason(INCIDENT, "gpu.xid: bad"))
        out = twin.node("n1")
        mark = NodeMark("n1", INCIDENT, out.reason, out.reason_user, out.reason_time)
        del ran[:]
        prove_free("n1", _outside(twin, mark))
        assert ran == ["scontrol show node n1", "squeue -w n1"]
        for node, number in (("n1", 1), ("n3", 2)):
            del ran[:]
            twin.jobs_on(node)
            assert len(ran) == number, "one for the node, and one for each job there"
        del ran[:]
        twin.components(leader)
        assert ran == [f"scontrol show job {leader}", f"squeue -j {leader}"]
        del ran[:]
        twin.view()
        assert ran == ["scontrol show node", "scontrol show reservation", "scontrol show job", "squeue"]
        del ran[:]
        twin.view()
        assert ran == ["scontrol show node", "scontrol show reservation", "scontrol show job", "squeue"]
        twin.view()
        listed_nodes = _requests(practice, twin.view)
        assert listed_nodes == {"NODE_INFO": 1, "JOB_INFO": 1}, "a job runs, and nothing changes"
        assert twin.view().jobs == SlurmCommands(env=practice.command_env()).view().jobs
        held = HeldByReservation(twin)
        del ran[:]
        held.node("n2")
        assert ran == ["scontrol show node n2", "scontrol show reservation"]
        twin.undrain("n1")
        del ran[:]
        twin.delete_reservation("holdfast-none")
        assert ran == ["squeue -R holdfast-none", "scontrol delete ReservationName=holdfast-none"]

    def test_undrain_leaves_down_what_is_set_down_after_it_was_read(
        self, practice: Practice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        twin, other = SlurmCommands(env=practice.command_env()), SlurmCommands(env=practice.command_env())
        other.drain("n1", "holdfast[x]: bad")
        before = other.node("n1")
        other.set_down("n1", "Not responding", drain=False)
        monkeypatch.setattr(twin, "node", lambda _: before)
        try:
            twin.undrain("n1")
            assert (other.node("n1").down, other.node("n1").draining) == (True, False)
        finally:
            other.undrain("n1")
        assert not other.node("n1").out_of_service

    def test_a_port_that_slurm_conf_sets_for_all_nodes(self, make_practice: Callable[..., Practice]) -> None:
        """scontrol prints none for a node whose port is SlurmdPort: it was taken for 6818."""
        practice = make_practice(nodes=2, gpus=1)
        conf = practice.slurm_conf
        conf.write_text(f"{conf.read_text()}\nSlurmdPort={practice.spec.slurmd_port('n1')}\n")
        practice.up()
        assert " Port=" not in practice.command("scontrol", "show", "node", "n1")
        ports = {name: practice.spec.slurmd_port(name) for name in practice.nodes}
        assert {n: node.port for n, node in SlurmCommands(env=practice.command_env()).view().nodes.items()} == ports
        assert SlurmCommands(env=practice.command_env()).node("n1").port == ports["n1"]

    def test_a_node_that_slurm_conf_does_not_name(self, make_practice: Callable[..., Practice]) -> None:
        """squeue calls a dynamic node invalid: its jobs are found in the list of all."""
        practice = make_practice(nodes=2, gpus=1, extra_slurm_conf="MaxNodeCount=10\nPrivateData=cloud\n")
        practice.up()
        twin = SlurmCommands(env=practice.command_env())
        practice.command("scontrol", "create", "NodeName=dyn1", "CPUs=2", "State=CLOUD")
        assert twin.jobs_on("dyn1") == ()
        with pytest.raises(NotFound):
            twin.jobs_on("n99")


def _requests(practice: Practice, ask: Callable[[], object]) -> dict[str, int]:
    """How often slurmctld is asked for all nodes and for all jobs meanwhile."""
    practice.command("sdiag", "-r")
    ask()
    told = practice.command("sdiag").partition("by user")[0]
    found = re.findall(r"^\tREQUEST_(NODE_INFO|JOB_INFO) .*count:(\d+)", told, re.MULTILINE)
    return {kind: int(count) for kind, count in found}


def _count(twin: SlurmCommands) -> list[str]:
    """What the twin runs from now on: command and what it is about."""
    ran: list[str] = []
    plain = twin._commands.run

    def run(*argv: str, env: Mapping[str, str] | None = None) -> str:
        told = [word for word in argv if word not in (*SQUEUE[1:], "-r", "-o", "-d") and "%" not in word]
        ran.append(" ".join(told))
        return plain(*argv, env=env)

    twin._commands.run = run  # type: ignore[method-assign]
    return ran


def _outside(slurm: Scheduler, mark: NodeMark) -> Outside:
    """The actor's connections, of which only Slurm exists, and the mark of a drain."""
    nothing = cast(Any, None)
    return Outside(slurm, nothing, nothing, nothing, nothing, lambda: {mark.node: mark}, nothing, frozenset)


def _wrapper(folder: Path, command: str, uid: int) -> Path:
    """A command of the same name that runs the real one as another user."""
    script = folder / command
    script.write_text(f'#!/bin/sh\nexec setpriv --reuid={uid} --clear-groups /usr/bin/{command} "$@"\n')
    script.chmod(0o755)
    return script


def test_signatures_are_the_ports() -> None:
    wanted = {name: member for name, member in inspect.getmembers(Scheduler, inspect.isfunction) if name[0] != "_"}
    for name, member in wanted.items():
        assert inspect.signature(getattr(SlurmCommands, name)) == inspect.signature(member), name


def test_a_command_that_hangs_is_unavailable(tmp_path: Path) -> None:
    script = tmp_path / "scontrol"
    script.write_text("#!/bin/sh\nexec sleep 30\n")
    script.chmod(0o755)
    slurm = SlurmCommands(env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, deadline_s=0.2)
    with pytest.raises(Unavailable, match=r"within 0\.2 s"):
        slurm.config()


def test_a_command_that_is_missing_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be run"):
        SlurmCommands(env={"PATH": str(tmp_path)}).config()


def test_the_port_of_nodes_without_one_is_slurmd_port_as_it_is_set_now() -> None:
    """Also of a record that reads as it did before; another port needs a restart of slurmctld, and none of Holdfast."""
    twin, port = SlurmCommands(), "7003"

    def answers(*argv: str, **_more: object) -> str:
        return (
            f"ClusterName = c\nSlurmdPort = {port}\n"
            if "config" in argv
            else f"{RECORD} Port=7".replace("n1", "n2") * (argv[-2] == "n2") or RECORD
        )

    twin._commands.run = answers  # type: ignore[method-assign]
    assert (twin.all_nodes()["n1"].port, twin.node("n1").port, twin.node("n2").port) == (7003, 7003, 7)
    port = "7004"
    twin.config()
    assert (twin.all_nodes()["n1"].port, twin.node("n1").port) == (7004, 7004)


@pytest.mark.parametrize(("known", "wanted"), [(False, NotFound), (True, Rejected)])
def test_26_05_says_the_same_of_an_unknown_node_and_of_one_that_saves_no_power(
    tmp_path: Path, known: bool, wanted: type[Exception]
) -> None:
    shown = "echo NodeName=n9 State=IDLE CPUTot=1" if known else "echo Node n9 not found; exit 1"
    script = tmp_path / "scontrol"
    refused = 'echo "slurm_update error: Invalid power action" >&2; exit 1'
    script.write_text(f'#!/bin/sh\ncase "$*" in *update*) {refused} ;; *) {shown} ;; esac\n')
    script.chmod(0o755)
    slurm = SlurmCommands(env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    with pytest.raises(wanted):
        slurm.power_down("n9", "x")
    with pytest.raises(wanted):
        slurm.power_up("n9")


def test_a_login_shells_variables_change_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """squeue and scontrol take options from the environment, also of an operator who starts the controller by hand."""
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    monkeypatch.setenv("SCONTROL_FUTURE", "1")
    script = tmp_path / "squeue"
    script.write_text("#!/bin/sh\nenv\n")
    script.chmod(0o755)
    commands = Commands({"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    told = commands.run("squeue", env={"SQUEUE_FORMAT2": "x"})
    assert [line for line in told.splitlines() if line.startswith(("SQUEUE_", "SCONTROL_"))] == ["SQUEUE_FORMAT2=x"]
    assert "SQUEUE_" not in commands.run("squeue")
