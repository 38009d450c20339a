"""Fault injection into a practice cluster, only by files and processes: agent, controller and Slurm are not aware of it.

Each injection is one line of ``injections.jsonl`` with the time at which it took effect: the ground truth for metrics."""

from __future__ import annotations

import fcntl
import glob
import json
import os
import pwd
import signal
import time
from datetime import UTC, datetime
from typing import Literal

from holdfast.model.errors import Rejected
from holdfast.practice.cluster.cluster import Practice
from holdfast.practice.cluster.processes import signal_all
from holdfast.practice.faults import all_faults
from holdfast.practice.faults.xids import kernel_line, mark_gpu
from holdfast.practice.nvml import state as nvml

_FAKETIME = "/usr/lib/*/faketime/libfaketime.so.1"
_SKEWED = "skewed"
"""File in a node's folder that makes its agent run with a wrong clock."""
_OTHER_USER = "daemon"


class Injector:
    """Injector of faults into one practice cluster. Every method returns after the fault has taken effect."""

    def __init__(self, practice: Practice) -> None:
        self._practice = practice

    def xid(self, node: str, code: int, gpu: int) -> None:
        """An Xid of the GPU with that device minor: kernel line, NVML event, and NVML state where the code has one."""
        host = self._practice.machine(node).host
        state = nvml.read(host.nvml_state)
        if gpu not in {one.minor for one in state.gpus}:
            raise Rejected(f"{node} has no GPU {gpu}")
        index = nvml.index_of_minor(state, gpu)
        moment = _Moment()
        host.log_kernel(4, kernel_line(code, state.gpus[index].pci))
        mark_gpu(host.nvml_state, index, code)
        nvml.add_xid(host.nvml_state, index, code)
        self._record(moment, "xid", node, code=code, gpu=gpu)

    def kernel_message(self, node: str, text: str, *, facility: int = 0) -> None:
        """Any line in the node's kernel log; ``facility`` 1 is a user's write to /dev/kmsg."""
        moment = _Moment()
        self._practice.machine(node).host.log_kernel(4, text, facility=facility)
        self._record(moment, "kernel_message", node, text=text, facility=facility)

    def fault(self, name: str, node: str, value: str = "", gpu: int = 0) -> None:
        """A fault of the node's hardware or host (:mod:`holdfast.practice.faults`). Raises Rejected for an unknown one."""
        known = all_faults()
        if name not in known:
            raise Rejected(f"{name!r} is none of {', '.join(known)}")
        if known[name].value and not value:
            raise Rejected(f"{name} needs a value: {known[name].value}")
        moment = _Moment()
        known[name].apply(self._practice.machine(node), value, gpu)
        self._record(moment, name, node, value=value, gpu=gpu)

    def power_loss(self, node: str, *, shown_off: bool = False) -> None:
        """Kill slurmd, slurmstepd, tasks and agent at once; packets to the node are dropped without an answer.

        ``shown_off``: EC2 shows the instance ``stopping``, then ``stopped``, from then on; otherwise it still shows it running with
        passing checks, as the real one may for a while. Such a node only comes back by its replacement."""
        machine = self._practice.machine(node)
        moment = _Moment()
        machine.power_loss()
        if shown_off:
            from holdfast.practice.aws.seed import show_off  # noqa: PLC0415 - not every practice has the AWS client

            show_off(f"http://127.0.0.1:{self._practice.spec.aws_port}", machine.host.instance_id)
        self._record(moment, "power_loss", node, shown_off=shown_off)

    def cut_off(self, node: str, scope: Literal["controller", "all"] = "controller") -> None:
        """Drop packets while the node and its jobs continue.

        ``controller``: between its agent and Holdfast's controller. ``all``: slurmd does not answer either."""
        machine = self._practice.machine(node)
        moment = _Moment()
        machine.cut_file.touch()
        if scope == "all":
            machine.silence_slurmd()
        self._record(moment, "cut_off", node, scope=scope)

    def hang_nvml(self, node: str) -> None:
        """Make every NVML call block from now on."""
        moment = _Moment()
        nvml.set_hang(self._practice.machine(node).host.nvml_state, True)
        self._record(moment, "hang_nvml", node)

    def stuck_task(self, node: str) -> None:
        """Tasks and slurmstepd on the node stop and cannot be ended by slurmd, as in a driver that hangs after Xid
        119."""
        moment = _Moment()
        self._practice.machine(node).freeze_steps()
        self._record(moment, "stuck_task", node)

    def stuck_epilog(self, node: str) -> None:
        """The next epilog on the node does not end."""
        moment = _Moment()
        (self._practice.machine(node).host.folder / "epilog_stuck").touch()
        self._record(moment, "stuck_epilog", node)

    def clock_skew(self, node: str, seconds: float) -> None:
        """Shift the agent's wall clock by this much (it is restarted), but not its monotonic time. Raises Rejected without
        faketime."""
        found = glob.glob(_FAKETIME)
        if not found:
            raise Rejected("clock_skew needs the package faketime")
        machine = self._practice.machine(node)
        moment = _Moment()
        self._practice.processes.stop(machine.agent)
        (machine.host.folder / _SKEWED).touch()
        machine.start_agent({"LD_PRELOAD": found[0], "FAKETIME": f"{seconds:+g}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
        self._record(moment, "clock_skew", node, seconds=seconds)

    def kill_agent(self, node: str) -> None:
        """``kill -9`` of the agent alone; ``heal`` starts it again."""
        machine = self._practice.machine(node)
        moment = _Moment()
        self._practice.processes.kill(machine.agent)
        self._record(moment, "kill_agent", node)

    def kill_slurmd(self, node: str) -> None:
        """``kill -9`` of slurmd alone: its jobs continue. ``heal`` starts it again."""
        moment = _Moment()
        self._practice.processes.kill_main(self._practice.machine(node).slurmd)
        self._record(moment, "kill_slurmd", node)

    def fill_queue(self, count: int, *, nodes: int = 1, seconds: int = 600) -> list[int]:
        """Submit jobs of another user (of this one if not root), each for whole nodes. Returns their ids."""
        uid = pwd.getpwnam(_OTHER_USER).pw_uid if os.geteuid() == 0 else None
        moment = _Moment()
        script = f"exec sleep {seconds}"
        options = (f"--nodes={nodes}", "--exclusive", "--job-name=other")
        jobs = [self._practice.sbatch(script, *options, uid=uid) for _ in range(count)]
        self._record(moment, "fill_queue", "", count=count)
        return jobs

    def stop_slurmctld(self, *, kill: bool = False) -> None:
        """Stop slurmctld."""
        moment = _Moment()
        self._practice.stop_slurmctld(kill=kill)
        self._record(moment, "stop_slurmctld", "")

    def start_slurmctld(self) -> None:
        """Start slurmctld again."""
        self._practice.start_slurmctld()
        self._record(_Moment(), "start_slurmctld", "")

    def heal(self, node: str) -> None:
        """Undo faults where possible: connections, stuck steps and epilogs, NVML hang, a dead slurmd or agent, its clock.

        A node without power is powered on and boots. Lost and broken GPUs stay so until reset, reboot or
        replacement."""
        machine = self._practice.machine(node)
        processes = self._practice.processes
        nvml.set_hang(machine.host.nvml_state, False)
        (machine.host.folder / "epilog_stuck").unlink(missing_ok=True)
        machine.cut_file.unlink(missing_ok=True)
        processes.stop(machine.ghost)
        for fault in all_faults().values():
            if fault.heal is not None:
                fault.heal(machine)
        if (machine.host.folder / _SKEWED).exists():
            processes.stop(machine.agent)
            (machine.host.folder / _SKEWED).unlink()
        if machine.tree():
            signal_all(machine.tree(), signal.SIGCONT)
            machine.power_on()
        else:
            machine.reboot()
        self._record(_Moment(), "heal", node)

    def _record(self, moment: _Moment, fault: str, node: str, **what: str | float) -> None:
        line = {
            "wall": moment.wall.isoformat(),
            "monotonic_s": moment.monotonic_s,
            "fault": fault,
            "node": node,
            **what,
        }
        with (self._practice.folder / "injections.jsonl").open("a") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            log.write(json.dumps(line) + "\n")


class _Moment:
    """The present time, on both clocks."""

    def __init__(self) -> None:
        self.monotonic_s = time.monotonic()
        self.wall = datetime.now(UTC)
