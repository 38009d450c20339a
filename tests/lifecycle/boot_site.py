"""A head node that is its own only compute node: Slurm, Holdfast from its packages, and the settings of the how-to pages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lifecycle.booted import Booted
from lifecycle.lifecycle_support import SCRIPTS, write

SOURCE = SCRIPTS.parent
MIRROR = "http://deb.debian.org/debian"
PACKAGES = "python3,systemd,dbus,iproute2,openssl,munge,slurmctld,slurmd,slurm-client"
SERVICES = ("holdfast-quorum", "holdfast-controller", "holdfast-actor", "holdfast-agent")
KMSG = "var/lib/kmsg"
"""Stands for /dev/kmsg, which systemd-nspawn does not give."""
MACHINE_CHECK = "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400"

SLURM_CONF = """ClusterName=boot
SlurmctldHost=head
SlurmUser=slurm
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ReturnToService=1
MpiDefault=none
RequeueExit=85
NodeName=head CPUs=2 RealMemory=100
PartitionName=gpu Nodes=head Default=YES State=UP
"""
ADDRESS = """[Unit]
Description=An address in addition to 127.0.0.1, without which Slurm looks up no name
DefaultDependencies=no
Before=munge.service slurmctld.service slurmd.service
[Service]
Type=oneshot
ExecStart=/usr/sbin/ip address add 10.77.0.1/32 dev lo
[Install]
WantedBy=sysinit.target
"""
FOR_THE_TEST = """state_dir = "/var/lib/holdfast-agent"
kmsg_path = "/var/lib/kmsg"
act_on = ["kernel.machine_check"]
heartbeat_s = 2
not_reporting_after_s = 5
"""
"""What agent.toml has in addition to the page's own lines."""
HANGS_ARE_TOLD = """
[hangs]
act = "tell"  # word: a value
floor_s = 5
"""
"""What controller.toml has in addition to the page's own lines."""
JOBS = "/usr/local/lib/jobs"
RANKS = f"""[ "$SLURM_PROCID" = 0 ] && exec /usr/bin/python3 {JOBS}/boot_hang.py
exec unshare --user --map-root-user --mount \\
  sh -c "mount -t tmpfs none /mnt && cp /usr/bin/python3 /mnt && exec /mnt/python3 {JOBS}/boot_hang.py"
"""
"""Rank 0 as it is; any other in a container with an interpreter that is invisible from outside, as rootless containers have it."""
STUCK = """import signal, sys, time
PLACES = (
    ("holdfast.controller.observing.observe", "Observer", "world"),
    ("holdfast.actor.actor", "Actor", "_hand_out"),
    ("holdfast.agent.timing.loop", "Loop", "turn"),
    ("holdfast.quorum.control", "Control", "stay"),
)
def hang(*_):
    for module, name, method in PLACES:
        if module in sys.modules:
            setattr(getattr(sys.modules[module], name), method, lambda *a: time.sleep(3600))
signal.signal(signal.SIGUSR2, hang)
"""
"""From SIGUSR2 on, the next cycle never ends; everything else of the process lives on."""


def _call(*command: str | Path, **environ: str) -> None:
    done = subprocess.run(
        command,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"} | environ,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


@dataclass(frozen=True, slots=True)
class Debian:
    """A release of Debian, and how Holdfast's packages are built for it."""

    suite: str
    number: int
    built_here: bool
    """With this machine's own interpreter; False: inside that release."""

    def root(self, purpose: str, packages: str) -> Path:
        """As ``debootstrap`` makes it with these packages; kept in .cache."""
        cache = SOURCE / f".cache/debian-{self.number}-{purpose}"
        if not (cache / "complete").exists():
            shutil.rmtree(cache, ignore_errors=True)
            _call("debootstrap", "--variant=minbase", f"--include={packages}", self.suite, cache, MIRROR)
            (cache / "complete").touch()
        return cache

    def build_packages(self, out: Path) -> None:
        """Holdfast's own packages, as files in this folder."""
        if self.built_here:
            _call("sh", SCRIPTS / "build_deb.sh", "--out", out, PYTHON=sys.executable)
            return
        tree = self.root("build", BUILD_PACKAGES)
        _call("unshare", "--mount", "sh", "-ec", _BUILD_INSIDE, "sh", tree, SOURCE, out)


BOOKWORM = Debian("bookworm", 12, built_here=True)
"""Slurm 22.05 and Python 3.11."""
TRIXIE = Debian("trixie", 13, built_here=False)
"""Slurm 24.11, whose unit runs ``slurmd --systemd``, and Python 3.13."""
BUILD_PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
_BUILD_INSIDE = """
tree=$1
show() {
  [ -e "$1" ] || return 0
  if [ -d "$1" ]; then mkdir -p "$tree$2"; else touch "$tree$2"; fi
  mount --rbind "$1" "$tree$2"
}
mount --make-rprivate /
for path in /proc /dev /etc/resolv.conf /etc/ssl /etc/pip.conf /opt/wheels /opt/pypi /opt/pypi-more; do show "$path" "$path"; done
show "$2" /src
show "$3" /out
exec chroot "$tree" sh /src/lifecycle-scripts/build_deb.sh --out /out
"""
"""As a site builds them on a machine of that release, with this machine's network and pip configuration."""


def page_blocks(page: str, language: str, *sections: str) -> list[str]:
    """The blocks of a page under the headings that begin so, in their order."""
    found: list[str] = []
    for part in re.split(r"^## ", (SCRIPTS.parent / "docs" / page).read_text(), flags=re.MULTILINE)[1:]:
        if part.startswith(sections):
            found += re.findall(rf"^```{language}\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
    return found


def head_node(folder: Path, debian: Debian = BOOKWORM) -> Path:
    """The root of a machine with Slurm, and the packages of Holdfast as files in /root: nothing of it is installed."""
    root = folder / "root"
    _call("cp", "-a", debian.root("site", PACKAGES), root)
    debian.build_packages(root / "root")
    write(root / "etc/hosts", "127.0.0.1 localhost\n10.77.0.1 head\n")
    write(root / "etc/hostname", "head\n")
    write(root / "etc/slurm/slurm.conf", SLURM_CONF)
    write(root / "etc/systemd/system/address.service", ADDRESS)
    write(root / "etc/apt/apt.conf.d/yes", 'APT::Get::Assume-Yes "true";\n')
    write(root / KMSG, "")
    write(root / "usr/local/lib/drill/sitecustomize.py", STUCK)
    write(root / f"{JOBS[1:]}/ranks.sh", RANKS)
    for script in ("boot_group.py", "boot_hang.py"):
        write(root / JOBS[1:] / script, (Path(__file__).parent / script).read_text())
    for service in SERVICES:
        drill = "[Service]\nWatchdogSec=4\nEnvironment=PYTHONPATH=/usr/local/lib/drill\n"
        write(root / f"etc/systemd/system/{service}.service.d/drill.conf", drill)
    _call("systemctl", f"--root={root}", "enable", "address.service")
    _call("chroot", root, "useradd", "--create-home", "alice")
    return root


_KEY_USAGE = " -addext keyUsage=critical,keyCertSign,cRLSign"
"""Python 3.13 refuses an authority without it, which the page's lines make."""


def follow_the_page(machine: Booted, agent_more: str = FOR_THE_TEST) -> None:
    """docs/how-to-on-premises.md, its commands verbatim, on one machine that is head node and node: here n1 is called head."""
    page = "how-to-on-premises.md"
    controller, agent = page_blocks(page, "toml", "2.", "3.")
    write(machine.root / "etc/holdfast/controller.toml", controller + HANGS_ARE_TOLD)
    write(machine.root / "etc/holdfast/agent.toml", agent.replace("n1", "head") + agent_more)
    install, *head = page_blocks(page, "sh", "2.")
    (authority,) = page_blocks("install.md", "sh", "TLS with")
    authority = authority.replace(" -keyout ca.key", f"{_KEY_USAGE} -keyout ca.key")
    for block in (install, authority, *head, *page_blocks(page, "sh", "3.", "6.")):
        machine.call(f"cd /root; {block.replace('n1', 'head')}", 300.0)
