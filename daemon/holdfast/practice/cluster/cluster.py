"""A practice cluster in one folder: create, up, down, status, and running commands against it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.model.errors import ConfigError, Rejected, Unavailable
from holdfast.practice.cluster import nursery, slurmconf
from holdfast.practice.cluster import spec as specs
from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.cluster.processes import Processes
from holdfast_checks.whole_file import write_whole

_UP_WITHIN_S = 30.0
_COMMAND_S = 30.0
_SLURMCTLD_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node as the practice sees it; ``slurm_state`` is empty when slurmctld does not answer."""

    name: str
    address: str
    slurmd: bool
    agent: bool
    instance_id: str
    slurm_state: str


@dataclass(frozen=True, slots=True)
class PracticeStatus:
    """A practice cluster now."""

    folder: Path
    slurmctld: bool
    processes: Mapping[str, bool]
    """Every recorded process, and whether it is alive."""
    nodes: tuple[NodeStatus, ...]


class Practice:
    """One practice cluster. All state is in its folder: any process may load it and continue."""

    def __init__(self, folder: Path, spec: specs.Spec) -> None:
        self.folder = folder
        self.spec = spec
        self.processes = Processes(folder)

    @classmethod
    def create(
        cls,
        folder: Path | str,
        *,
        nodes: int = 5,
        gpus: int = 8,
        gpu_type: str = "",
        cpus: int = 32,
        name: str = "practice",
        extra_slurm_conf: str = "",
        prefix: str = "n",
        elastic: bool = False,
    ) -> Practice:
        """Create a new cluster in a folder (created if missing); starts nothing.

        The folder and its parents must be open to other users (0755) if jobs are to be submitted as other users. ``elastic``: Slurm
        is set up for elastic jobs.
        Raises ConfigError when there is one already or the path is too long."""
        folder = Path(folder).absolute()
        if (folder / specs.FILE).exists():
            raise ConfigError(f"there is a practice cluster in {folder} already")
        spec = specs.new_spec(
            nodes=nodes,
            gpus=gpus,
            gpu_type=gpu_type,
            cpus=cpus,
            name=name,
            extra_slurm_conf=extra_slurm_conf,
            prefix=prefix,
            elastic=elastic,
        )
        specs.save(spec, folder)
        practice = cls(folder, spec)
        practice._lay_out()
        return practice

    @classmethod
    def load(cls, folder: Path | str) -> Practice:
        """The cluster that lives in a folder. Raises ConfigError when there is none."""
        folder = Path(folder).absolute()
        return cls(folder, specs.load(folder))

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.spec.nodes

    @property
    def slurm_conf(self) -> Path:
        return self.folder / "etc" / "slurm.conf"

    @property
    def controller_url(self) -> str:
        """Where ``holdfast controller`` of this cluster should listen."""
        return f"http://127.0.0.1:{self.spec.controller_port}"

    def relay_url(self, node: str) -> str:
        """URL for the node's agent: the controller through the node's own relay, which ``cut_off`` can
        block."""
        return f"http://{self.spec.address(node)}:{self.spec.relay_port(node)}"

    def machine(self, node: str) -> PracticeMachine:
        """The node's machine. Raises ConfigError for a name that the cluster does not have."""
        if node not in self.spec.nodes:
            raise ConfigError(f"no node {node} in this practice cluster, it has {', '.join(self.spec.nodes)}")
        return PracticeMachine(self.spec, self.folder, node, self.processes, self.command_env())

    def command_env(self) -> dict[str, str]:
        """Environment variables that make any Slurm or holdfast command work on this cluster: SLURM_CONF and PATH."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
        return {"SLURM_CONF": str(self.slurm_conf), "PATH": path}

    def _reboot_env(self) -> dict[str, str]:
        kept = ("PYTHONPATH", "VIRTUAL_ENV", "HOME", "LANG")
        return {name: os.environ[name] for name in kept if name in os.environ} | self.command_env()

    def up(self, *, wait: bool = True) -> None:
        """Start Slurm, the relay and each node's agent where one is set; a few seconds. Idempotent: only what is
        missing starts.

        Raises Unavailable when Slurm does not come up; what was started stays, for its logs, until ``down``."""
        if not set(self.processes.names()) - {nursery.NAME}:
            self._take_free_ports()
        self._start_munged()
        self.start_slurmctld()
        self.processes.start("relay", [sys.executable, "-m", "holdfast.practice.cluster.relay", str(self.folder)])
        for node in self.spec.nodes:
            machine = self.machine(node)
            if self.processes.alive(machine.slurmd):
                machine.start_agent()
            elif not self.processes.alive(machine.ghost):
                machine.power_on()
        if wait:
            self.wait_for_nodes()

    def down(self) -> None:
        """End every process of the cluster, recorded or not, even if the process that started it crashed. Idempotent; files
        stay."""
        names = self.processes.names()
        last = ("slurmctld", "munged")
        for name in [name for name in names if name not in last]:
            self.processes.kill(name)
        self.processes.stop("slurmctld", grace_s=_SLURMCTLD_STOP_S)
        self.processes.stop("munged")
        self.processes.kill_marked()
        for left in (*self.folder.glob("run/*.pid"), *self.folder.glob("nodes/*/cut")):
            left.unlink(missing_ok=True)

    def remove(self) -> None:
        """``down``, and the folder is gone."""
        self.down()
        shutil.rmtree(self.folder)

    def start_slurmctld(self, *, cold: bool = False) -> None:
        """Start slurmctld and wait until it answers; ``cold``: without its saved state. Raises Unavailable."""
        argv = ["slurmctld", "-D", "-i", *(["-c"] if cold else [])]
        self.processes.start("slurmctld", argv, env=self.command_env())
        self._wait("slurmctld", self._slurmctld_answers)

    def stop_slurmctld(self, *, kill: bool = False) -> None:
        """Stop slurmctld in good order, or with SIGKILL."""
        if kill:
            self.processes.kill("slurmctld")
        else:
            self.processes.stop("slurmctld", grace_s=_SLURMCTLD_STOP_S)

    def start_daemon(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start one more process of the cluster (controller, actor, AWS emulator) by name; ``down`` ends it. Log:
        log/NAME.log."""
        self.processes.start(name, argv, env={**self.command_env(), **(env or {})})

    def wait_for_nodes(self) -> None:
        """Wait until every node that should be up is registered with slurmctld. Raises Unavailable."""
        self._wait("all nodes", self._all_registered)

    def status(self) -> PracticeStatus:
        """Running processes, and Slurm's node states."""
        states = self._slurm_states()
        nodes = []
        for name in self.spec.nodes:
            machine = self.machine(name)
            alive = self.processes.alive(machine.slurmd), self.processes.alive(machine.agent)
            nodes.append(NodeStatus(name, machine.address, *alive, machine.host.instance_id, states.get(name, "")))
        processes = {name: self.processes.alive(name) for name in self.processes.names()}
        return PracticeStatus(self.folder, processes.get("slurmctld", False), processes, tuple(nodes))

    def command(self, *argv: str, uid: int | None = None, input_text: str | None = None) -> str:
        """Run a command against the cluster and return its standard output. Raises Rejected with its output when it
        fails."""
        gid = pwd.getpwuid(uid).pw_gid if uid is not None else None
        groups: list[int] | None = [] if uid is not None else None
        done = subprocess.run(
            argv,
            input=input_text,
            env={**os.environ, **self.command_env()},
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
            user=uid,
            group=gid,
            extra_groups=groups,
            cwd="/",
        )
        if done.returncode:
            raise Rejected(f"{argv[0]}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def sbatch(self, script: str, *args: str, uid: int | None = None) -> int:
        """Submit a batch script (text) and return its job id. ``uid``: as that user, who must exist; needs root.

        Output goes to ``jobs/%j.out`` in the folder unless ``args`` say otherwise. Raises Rejected."""
        text = script if script.startswith("#!") else f"#!/bin/sh\n{script}"
        output = ("--output", str(self.folder / "jobs" / "%j.out"), "--open-mode=append")
        answer = self.command("sbatch", "--parsable", *output, *args, uid=uid, input_text=text)
        return int(answer.strip().partition(";")[0])

    def _lay_out(self) -> None:
        for name in ("etc", "log", "run", "state", "spool", "munge", "gres", "bin", "nodes", "jobs"):
            (self.folder / name).mkdir(exist_ok=True)
        self.folder.chmod(0o755)
        (self.folder / "jobs").chmod(0o1777)
        (self.folder / "munge").chmod(0o755)
        key = self.folder / "munge" / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        for number in range(self.spec.gpus):
            (self.folder / "gres" / f"nvidia{number}").touch()
        for name in self.spec.nodes:
            self.machine(name).host.create()
        self._write_configuration()

    def _write_configuration(self) -> None:
        user, host = pwd.getpwuid(os.geteuid()).pw_name, socket.gethostname().partition(".")[0]
        write_whole(self.slurm_conf, slurmconf.slurm_conf(self.spec, self.folder, user=user, host=host))
        write_whole(self.folder / "etc" / "gres.conf", slurmconf.gres_conf(self.spec, self.folder))
        write_whole(self.folder / "etc" / "cgroup.conf", "CgroupPlugin=disabled\n" if _new_slurm() else "")
        for name, text in (
            ("epilog", slurmconf.epilog(self.folder)),
            ("reboot", slurmconf.reboot(self.folder, sys.executable, self._reboot_env())),
        ):
            script = self.folder / "bin" / name
            write_whole(script, text)
            script.chmod(0o755)

    def _take_free_ports(self) -> None:
        """Choose other ports if another process has taken one since ``create``."""
        mine = self.spec
        used = (mine.slurmctld_port, mine.controller_port, mine.aws_port, *mine.slurmd_ports, *mine.relay_ports)
        if all(specs.port_is_free(port) for port in used):
            return
        fresh = specs.new_spec(
            nodes=len(mine.nodes),
            gpus=mine.gpus,
            gpu_type=mine.gpu_type,
            cpus=mine.cpus,
            name=mine.name,
            extra_slurm_conf=mine.extra_slurm_conf,
            elastic=mine.elastic,
        )
        self.spec = replace(fresh, network=mine.network, nodes=mine.nodes)
        specs.save(self.spec, self.folder)
        self._write_configuration()

    def _start_munged(self) -> None:
        folder = self.folder / "munge"
        paths = {
            "key-file": "munge.key",
            "socket": "munge.socket",
            "pid-file": "munged.pid",
            "log-file": "munged.log",
            "seed-file": "munged.seed",
        }
        options = [f"--{option}={folder / name}" for option, name in paths.items()]
        self.processes.start("munged", ["munged", "--foreground", "--force", *options], env=self.command_env())
        self._wait("munged", (folder / "munge.socket").is_socket)

    def _slurmctld_answers(self) -> bool:
        if not self.processes.alive("slurmctld"):
            raise Unavailable(f"slurmctld ended at once: {self._last_words('slurmctld')}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.spec.slurmctld_port)) == 0

    def _all_registered(self) -> bool:
        states = self._slurm_states()
        here = [name for name in self.spec.nodes if self.processes.alive(self.machine(name).slurmd)]
        return len(here) > 0 and all(
            states.get(name, "unknown").rstrip("*") != "unknown" and not states[name].endswith("*") for name in here
        )

    def _slurm_states(self) -> dict[str, str]:
        if not self.processes.alive("slurmctld"):
            return {}  # sinfo would retry for some seconds
        try:
            lines = self.command("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
        except (Rejected, subprocess.TimeoutExpired):
            return {}
        return dict(line.split(maxsplit=1) for line in lines)

    def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _UP_WITHIN_S
        while not ready():
            if time.monotonic() > deadline:
                raise Unavailable(f"{what} not up after {_UP_WITHIN_S:.0f} s, see {self.folder}/log")
            time.sleep(0.02)

    def _last_words(self, name: str) -> str:
        log = self.folder / "log" / f"{name}.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return " | ".join(lines[-3:])


def _new_slurm() -> bool:
    """Whether Slurm is 24.11 or newer, whose slurmd does not start without mounted cgroups unless configured to."""
    answer = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, timeout=10, check=False).stdout.split()
    return len(answer) > 1 and tuple(int(part) for part in answer[1].split(".")[:2]) >= (24, 11)
