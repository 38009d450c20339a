"""Debian 13 with its own Slurm 24.11, booted: its units as shipped, emulated GPUs, Holdfast in ``act`` by the how-to page."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.practice.cluster.host import PracticeHost
from holdfast.practice.faults.xids import kernel_line, mark_gpu
from holdfast.practice.nvml import state as nvml
from holdfast.practice.nvml.build import build, environment
from lifecycle.boot_site import MACHINE_CHECK, SLURM_CONF, TRIXIE, head_node
from lifecycle.booted import Booted, wait_for
from lifecycle.lifecycle_support import write

HARDWARE = "var/lib/hardware"
LIBRARY = "usr/local/lib/nvml/libnvidia-ml.so.1"
GPUS = 8
AGENT_MORE = f"""state_dir = "/var/lib/holdfast-agent"
kmsg_path = "/{HARDWARE}/kmsg"
nvml_library = "/{LIBRARY}"
act_on = ["kernel.machine_check", "host.munge"]
heartbeat_s = 2
disabled_checks = ["host.load"]
[intervals]
"host.munge" = 2
[nvml_env]
"""
"""What agent.toml has in addition to the page's own lines. Everything else is as shipped; ``host.slurmd`` acts without a setting.
``host.load`` would see the load of the machine around it."""
_API = """
import json, ssl, sys, urllib.request
token = open("/root/.config/holdfast/token").read().strip()
asked = urllib.request.Request("https://head:8460" + sys.argv[1], headers={"Authorization": f"Bearer {token}"})
context = ssl.create_default_context(cafile="/etc/holdfast/ca.pem")
print(urllib.request.urlopen(asked, context=context, timeout=10).read().decode())
"""
_AS_OPERATOR = "HOME=/root HOLDFAST_URL=https://head:8460 HOLDFAST_CA_FILE=/etc/holdfast/ca.pem"
_DID = frozenset({"action.planned", "action.started", "action.done", "action.failed"})


def slurm_conf() -> str:
    """Of a node with GPUs. No pid file is named: from 23.11 on ``--systemd`` writes none, whatever is configured."""
    lines = [line for line in SLURM_CONF.splitlines() if "PidFile" not in line]
    node = next(line for line in lines if line.startswith("NodeName="))
    lines[lines.index(node)] = f"GresTypes=gpu\n{node} Gres=gpu:{GPUS}"
    return "\n".join(lines) + "\n"


def trixie_node(folder: Path) -> Path:
    """The root of the machine, with the packages of Holdfast as files in /root."""
    root = head_node(folder, TRIXIE)
    write(root / "etc/slurm/slurm.conf", slurm_conf())
    write(root / "etc/slurm/gres.conf", f"AutoDetect=off\nName=gpu File=/{HARDWARE}/dev/nvidia[0-{GPUS - 1}]\n")
    # Slurm refuses a machine whose kernel has its controllers under cgroups v1, as this one may.
    write(root / "etc/slurm/cgroup.conf", "" if _all_in_v2() else "CgroupPlugin=disabled\n")
    hardware(root).create()
    for number in range(GPUS):
        write(root / HARDWARE / f"dev/nvidia{number}", "")
    with tempfile.TemporaryDirectory() as scratch:
        write(root / LIBRARY, "").write_bytes(build(Path(scratch)).read_bytes())
    write(root / "root/api.py", _API)
    return root


def _all_in_v2() -> bool:
    return len(Path("/proc/self/cgroup").read_text().splitlines()) == 1


def agent_more() -> str:
    """The site's lines for ``agent.toml``."""
    env = environment(Path(f"/{LIBRARY}"), Path(f"/{HARDWARE}/nvml.ini"))
    return AGENT_MORE + "".join(f'{name} = "{value}"\n' for name, value in env.items())


def hardware(root: Path) -> PracticeHost:
    """Its kernel log and its GPUs, as files."""
    return PracticeHost(root / HARDWARE, "head", GPUS)


class Site:
    """The machine with Slurm and Holdfast on it, as an administrator and a user see it."""

    def __init__(self, machine: Booted) -> None:
        self.machine = machine
        self.hardware = hardware(machine.root)

    def holdfast(self, verb: str) -> str:
        return self.machine.call(f"{_AS_OPERATOR} holdfast {verb}")

    def asked(self, path: str) -> str:
        """The API's answer."""
        return self.machine.call(f"/opt/holdfast/bin/python /root/api.py '{path}'")

    def incidents(self) -> list[dict[str, Any]]:
        """Those that are open."""
        found = json.loads(self.holdfast("incidents --json"))["incidents"]
        return [one for one in found if one["state"] != "closed"]

    def events(self, after_id: int = 0) -> list[dict[str, Any]]:
        """The record, oldest first."""
        found: list[dict[str, Any]] = []
        while True:
            page = json.loads(self.asked(f"/v1/events?after_id={after_id}"))["events"]
            if not page:
                return found
            found += page
            after_id = page[-1]["id"]

    def actions(self, after_id: int = 0) -> list[str]:
        """Steps outside Holdfast that were started or are about to be; a notification is none."""
        steps = [event for event in self.events(after_id) if event["kind"] in _DID]
        return [json.dumps(event) for event in steps if '"Notify"' not in json.dumps(event)]

    def drained_for(self) -> str:
        """Reason of a drain; empty: the node is in service."""
        state, _, reason = self.machine.call("sinfo -h -o '%T|%E'").strip().partition("|")
        return reason if state.startswith(("drain", "down")) else ""

    def submit(self, command: str, *options: str) -> int:
        """As alice."""
        words = " ".join(options)
        said = self.machine.call(f"cd /home/alice && runuser -u alice -- sbatch --parsable {words} --wrap '{command}'")
        return int(said.strip())

    def job(self, job_id: int) -> str:
        """Its state and how often it was requeued, as ``RUNNING 0``; empty: Slurm has forgotten it."""
        return self.machine.run(f"squeue -h -t all -j {job_id} -o '%T %r'").stdout.strip()

    def slurmd(self) -> str:
        return self.machine.show("slurmd", "MainPID")

    def xid(self, code: int, gpu: int) -> None:
        """As the practice does it: kernel line, NVML's state and event."""
        state = nvml.read(self.hardware.nvml_state)
        index = nvml.index_of_minor(state, gpu)
        self.hardware.log_kernel(4, kernel_line(code, state.gpus[index].pci))
        mark_gpu(self.hardware.nvml_state, index, code)
        nvml.add_xid(self.hardware.nvml_state, index, code)

    def running(self) -> int:
        """A job of alice that holds all GPUs, once its task runs: Slurm says RUNNING before it has launched the step."""
        job = self.submit("srun sleep 900", f"--gres=gpu:{GPUS}", "--requeue", "--comment=holdfast")
        self.until(lambda: self.job(job).startswith("RUNNING"), 60, "the job does not run")
        self.until(lambda: self.machine.run("pgrep -x sleep").returncode == 0, 60, "the task does not run")
        return job

    def machine_check(self) -> None:
        self.hardware.log_kernel(2, MACHINE_CHECK)

    def until(self, done: Callable[[], object], within_s: float, what: str) -> None:
        """Wait; on a time-out, the logs of agent, controller and slurmd are shown."""

        def why() -> str:
            units = ("holdfast-agent", "holdfast-controller", "holdfast-actor", "slurmd")
            return what + "".join(f"\n--- {unit}\n{self.machine.journal(unit)[-2500:]}" for unit in units)

        wait_for(done, within_s, why)

    def heal(self) -> None:
        """Restore the site as an operator would: jobs ended, parts replaced, incidents closed, the node resumed."""
        self.machine.run("pkill -CONT -x sleep; pkill -CONT -f '^slurmstepd: .[0-9]'")
        self.machine.call("scancel --user=alice; systemctl start slurmd", 120.0)
        nvml.write(self.hardware.nvml_state, nvml.default_state("head", GPUS, 1))
        time.sleep(20)  # two readings of NVML
        self.machine.run("scontrol update nodename=head state=resume")  # refused where it is in service
        for incident in self.incidents():
            self.machine.run(f"{_AS_OPERATOR} holdfast incident close {incident['id']} --reason exchanged")
        for brake in ("drains", "job_stops"):
            self.machine.run(f"{_AS_OPERATOR} holdfast release {brake} --reason exchanged")  # refused: not tripped
        self.machine.run("scontrol update nodename=head state=resume")
        self.until(lambda: not self.drained_for() and "idle" in self.machine.call("sinfo -h -o %T"), 90, "not healed")
