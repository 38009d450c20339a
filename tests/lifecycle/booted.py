"""A machine that systemd has really booted: a folder with a system in it, run by systemd-nspawn, with only a loopback."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

BOOT_S = 120.0
_RUNNING = {"running", "degraded"}
_SHOW_CGROUPS_V2 = """
[ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] || {
  mount --make-rprivate /
  umount -R /sys/fs/cgroup
  mount -t cgroup2 none /sys/fs/cgroup
}
cd /sys/fs/cgroup
"""
"""In a separate mount namespace, which ends with the machine."""
_BOOT_IN_CGROUP = """
mkdir "$1"
echo $$ >"$1/cgroup.procs"
shift
exec "$@"
"""
"""Two machines in one cgroup have the same units: ``systemctl kill`` in one ends those of the other."""
_REMOVE_CGROUP = """
find "$1" -depth -type d -exec rmdir {} +
"""


def can_boot() -> bool:
    """Root, and systemd-nspawn (Debian, Ubuntu: package systemd-container) that is allowed to run here."""
    if os.geteuid() != 0 or shutil.which("systemd-nspawn") is None:
        return False
    return subprocess.run(["unshare", "-nmpiu", "true"], capture_output=True, check=False).returncode == 0


class Booted:
    """One boot of the system in ``root``, whose name is ``head``. Use it as a context."""

    def __init__(self, root: Path, *, cgroups_v2: bool = False) -> None:
        """``cgroups_v2``: shown to it whatever this machine has mounted; systemd 256 and later does not boot without."""
        self.root = root
        self._cgroups_v2 = cgroups_v2
        self._console = root.parent / "console.log"
        self._cgroup = f"booted-{os.getpid()}-{root.parent.name}"

    def __enter__(self) -> Booted:
        command = self._in_cgroup(_BOOT_IN_CGROUP) if self._cgroups_v2 else []
        command += ["systemd-nspawn", f"--directory={self.root}", "--machine=head", "--register=no", "--keep-unit"]
        command += ["--private-network", "--link-journal=no", "--boot", "--console=pipe"]
        with self._console.open("wb") as console:
            self._nspawn = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
            )
        try:
            self._init = int(wait_for(self._child, BOOT_S, self.console))
            wait_for(lambda: self.call("systemctl is-system-running || true").strip() in _RUNNING, BOOT_S, self.console)
        except BaseException:
            self._nspawn.kill()
            self._nspawn.wait(30)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Power loss: process 1 is killed, and with it everything that it has started. Orderly ends are up to the tests."""
        os.kill(self._init, signal.SIGKILL)
        self._nspawn.wait(30)
        if self._cgroups_v2:
            subprocess.run(self._in_cgroup(_REMOVE_CGROUP), capture_output=True, timeout=30, check=False)

    def _in_cgroup(self, script: str) -> list[str]:
        return ["unshare", "--mount", "sh", "-ec", f"{_SHOW_CGROUPS_V2}{script}", "sh", self._cgroup]

    def console(self) -> str:
        """The console output of the boot."""
        return self._console.read_text(errors="replace")[-3000:]

    def _child(self) -> str:
        """nspawn's child, once it is the machine's process 1 in separate namespaces."""
        of = self._nspawn.pid
        children = Path(f"/proc/{of}/task/{of}/children").read_text().split()
        if not children or os.readlink(f"/proc/{children[0]}/ns/pid") == os.readlink("/proc/self/ns/pid"):
            return ""
        named = Path(f"/proc/{children[0]}/comm").read_text().strip()
        return children[0] if named == "systemd" else ""

    def run(self, script: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """A shell script inside, as root."""
        command = [
            "nsenter",
            "--target",
            str(self._init),
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--root",
            "--wd",
        ]
        environ = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
        return subprocess.run(
            [*command, "sh", "-ec", script], env=environ, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def call(self, script: str, timeout_s: float = 60.0) -> str:
        """Its output; a failure is the test's."""
        done = self.run(script, timeout_s)
        assert done.returncode == 0, f"{script}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
        return done.stdout

    def show(self, unit: str, key: str) -> str:
        """A property of a unit."""
        return self.call(f"systemctl show --value --property={key} {unit}").strip()

    def journal(self, unit: str) -> str:
        """What a unit has logged in this boot."""
        return self.call(f"journalctl --no-pager --output=cat --unit={unit}")

    def until(self, done: Callable[[], object], within_s: float, unit: str) -> None:
        """Wait for something; on a time-out, the unit's journal is shown."""
        wait_for(done, within_s, lambda: self.journal(unit)[-3000:])


def wait_for(done: Callable[[], object], within_s: float, why: Callable[[], str]) -> str:
    """Poll until it is true, and return that as text."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        found = done()
        if found:
            return str(found)
        time.sleep(0.2)
    raise AssertionError(f"it did not happen within {within_s:g} s\n{why()}")
