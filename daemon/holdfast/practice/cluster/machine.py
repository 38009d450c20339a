"""One node as a machine that can be powered on and off: slurmd and everything below it, its agent, and its silent
sockets after a power loss."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.model.errors import Unavailable
from holdfast.practice.cluster import cut_off
from holdfast.practice.cluster.host import PracticeHost
from holdfast.practice.cluster.processes import Processes, signal_all
from holdfast.practice.cluster.slurmconf import NODE_VARIABLE
from holdfast.practice.cluster.spec import Spec
from holdfast.practice.nvml import state as nvml
from holdfast_checks.whole_file import write_whole

_GHOST_READY_S = 5.0
_BOOT_KNOWN_S = 3.0


class PracticeMachine:
    """Power switch of a node: starts and stops its processes. Knows no named faults."""

    def __init__(self, spec: Spec, folder: Path, name: str, processes: Processes, env: Mapping[str, str]) -> None:
        self.name = name
        self.host = PracticeHost(folder / "nodes" / name, name, spec.gpus)
        self.address = spec.address(name)
        self.port = spec.slurmd_port(name)
        self._spool = folder / "spool" / name
        self._processes = processes
        self._env = {**env, NODE_VARIABLE: name}

    @property
    def slurmd(self) -> str:
        """Name of slurmd's record; its process tree is the whole node except the agent."""
        return f"slurmd.{self.name}"

    @property
    def steps(self) -> str:
        """Name of the record of processes left by a stopped slurmd: slurmstepd and tasks."""
        return f"steps.{self.name}"

    def tree(self) -> list[int]:
        """Pids of the whole node except the agent."""
        return [*self._processes.tree(self.slurmd), *self._processes.tree(self.steps)]

    @property
    def agent(self) -> str:
        """Name of the agent's record."""
        return f"agent.{self.name}"

    @property
    def ghost(self) -> str:
        """Name of the record of the process that keeps a dead or cut-off node's sockets silent."""
        return f"ghost.{self.name}"

    @property
    def cut_file(self) -> Path:
        """While it exists the relay drops everything between this node's agent and the controller."""
        return self.host.folder / "cut"

    def power_on(self, *, rebooted: bool = False) -> None:
        """Start slurmd (``rebooted``: it reports a fresh boot to slurmctld) and the agent, if one is set."""
        self._processes.kill(self.ghost)
        self.cut_file.unlink(missing_ok=True)
        self._spool.mkdir(parents=True, exist_ok=True)
        if not self._processes.alive(self.slurmd) and self._processes.tree(self.slurmd):
            self._processes.rename(self.slurmd, self.steps)
        began = time.time()
        self._start_slurmd("-b" if rebooted else "")
        self.start_agent()
        if rebooted and self._boot_is_known(since=began):
            # slurmd -b counts its uptime in whole seconds from its own start: a later registration may seem one second newer
            # than the first, like another boot, and slurmctld sets a node DOWN that was resumed in between.
            self._processes.kill_main(self.slurmd)
            if len(self._processes.tree(self.slurmd)) > 1:  # a job has started already, below the adopting parent
                self._processes.rename(self.slurmd, self.steps)
            self._processes.kill(self.slurmd)
            self._start_slurmd()

    def _start_slurmd(self, option: str = "") -> None:
        argv = ["slurmd", "-D", "-N", self.name, *([option] if option else [])]
        self._processes.start(self.slurmd, argv, env=self._env, reaper=True)

    def _boot_is_known(self, since: float) -> bool:
        """Wait until slurmctld has registered the boot; False: it does not answer, or not in time."""
        deadline = time.monotonic() + _BOOT_KNOWN_S
        while self._processes.alive("slurmctld") and time.monotonic() < deadline:
            if self._boot_time() >= int(since):
                return True
            time.sleep(0.02)
        return False

    def _boot_time(self) -> int:
        """Boot time of the node in slurmctld (seconds since 1970); 0: not known."""
        env = {**os.environ, **self._env, "SLURM_TIME_FORMAT": "%s"}
        with contextlib.suppress(subprocess.TimeoutExpired):
            argv = ["scontrol", "show", "node", "-o", self.name]
            shown = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=_BOOT_KNOWN_S, check=False)
            for word in shown.stdout.split():
                key, _, value = word.partition("=")
                if key == "BootTime" and value.isdigit():
                    return int(value)
        return 0

    def power_off(self) -> None:
        """Kill everything on the node at once; peers see closed connections, as after a crash of the processes. A node that is
        silent already, without power or cut off, stays so until it is powered on."""
        self._kill_all()

    def power_loss(self) -> None:
        """Kill everything without any answer to peers: no FIN, no RST, packets to slurmd's port are dropped, the agent's
        connections stay silent."""
        self.cut_file.touch()
        # Frozen first: from here on nothing leaves the node. The sockets are taken over before their owners are killed.
        self.freeze_all()
        self.silence([*self.tree(), *self._processes.tree(self.agent)])
        self._kill_all()

    def _kill_all(self) -> None:
        for name in (self.slurmd, self.steps, self.agent):
            self._processes.kill(name)

    def freeze_all(self) -> None:
        """SIGSTOP slurmd, slurmstepd, tasks and agent."""
        signal_all([*self.tree(), *self._processes.tree(self.agent)], signal.SIGSTOP)

    def freeze_steps(self) -> None:
        """SIGSTOP slurmstepd and tasks: they stop working and slurmd cannot end them."""
        signal_all([pid for pid in self.tree()[1:] if pid != self._processes.main_pid(self.slurmd)], signal.SIGSTOP)

    def silence_slurmd(self) -> None:
        """Make slurmd unreachable while its jobs continue: it is frozen, and its port drops packets."""
        pid = self._processes.main_pid(self.slurmd)
        if pid is None:
            raise Unavailable(f"slurmd of {self.name} is not running")
        signal_all([pid], signal.SIGSTOP)
        self.silence([pid])

    def silence(self, pids: Sequence[int]) -> None:
        """Take over the processes' TCP sockets (``cut_off.py``): listeners drop SYNs, the others stay open and silent."""
        ready = self.host.folder / "ghost.ready"
        ready.unlink(missing_ok=True)
        argv = [sys.executable, "-I", "-S", str(cut_off.__file__), str(ready), str(self.port), *map(str, pids)]
        self._processes.start(self.ghost, argv)
        deadline = time.monotonic() + _GHOST_READY_S
        while not ready.exists():
            if time.monotonic() > deadline:
                raise Unavailable(f"the sockets of {self.name} could not be silenced, see log/{self.ghost}.log")
            time.sleep(0.005)

    def reboot(self, *, rebooted: bool = True) -> None:
        """Power cycle under a new boot id. GPU faults that a reboot clears are cleared (``practice/nvml``); the hardware
        stays."""
        self.power_off()
        nvml.reboot(self.host.nvml_state)
        self.host.boot()
        self.forget_old_run()
        self.power_on(rebooted=rebooted)

    def replace(self, instance_id: str | None = None) -> None:
        """Replace the hardware under the same name: new GPU UUIDs, instance id and boot id; slurmd and agent start on it."""
        self.power_off()
        self.host.replace_hardware(instance_id)
        self.forget_old_run()
        shutil.rmtree(self.host.folder / "agent", ignore_errors=True)
        (self.host.folder / "agent").mkdir()
        self.power_on(rebooted=True)

    def forget_old_run(self) -> None:
        """Empty slurmd's spool, as a boot empties /run."""
        # slurmd's spool holds the sockets of dead slurmstepd; a machine's /run is empty after a boot.
        shutil.rmtree(self._spool, ignore_errors=True)

    def set_agent(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Set the command of this node's agent; it is started now if the node is up, and at every boot."""
        write_whole(self._agent_file, json.dumps({"argv": list(argv), "env": dict(env or {})}, indent=1) + "\n")
        if self._processes.alive(self.slurmd):
            self.start_agent()

    def forget_agent(self) -> None:
        """Stop the agent and do not start it again."""
        self._processes.kill(self.agent)
        self._agent_file.unlink(missing_ok=True)

    def start_agent(self, extra_env: Mapping[str, str] | None = None) -> None:
        """Start the agent unless none is set or it runs."""
        with contextlib.suppress(FileNotFoundError):
            told = json.loads(self._agent_file.read_text())
            env = {**self._env, **told["env"], **(extra_env or {})}
            self._processes.start(self.agent, told["argv"], env=env, cwd=self.host.folder, reaper=True)

    @property
    def _agent_file(self) -> Path:
        return self.host.folder / "agent.json"
