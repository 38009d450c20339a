"""The Debian packages, built, installed, upgraded and removed in a Debian 12 made by debootstrap (cached in .cache)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import __version__
from lifecycle.lifecycle_support import SCRIPTS
from lifecycle.strangers import strangers

ROOT = SCRIPTS.parent
CACHE = ROOT / ".cache/debian-12"
pytestmark = [
    pytest.mark.soak,  # about a minute and a half, and two minutes more for the first
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("debootstrap") is None, reason="needs root and debootstrap"),
    pytest.mark.skipif(not Path("/usr/bin/python3.11").exists(), reason="needs the distribution's Python 3.11"),
]


def call(*command: str | Path, **environ: str) -> str:
    done = subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A separate root with both packages' files in /root."""
    if not (CACHE / "complete").exists():
        shutil.rmtree(CACHE, ignore_errors=True)
        mirror = "http://deb.debian.org/debian"
        call("debootstrap", "--variant=minbase", "--include=python3,systemd", "bookworm", CACHE, mirror)
        (CACHE / "complete").touch()
    root = tmp_path_factory.mktemp("debian") / "root"
    call("cp", "-a", CACHE, root)
    with strangers() as index:  # offer higher versions under the names of ours
        call("sh", SCRIPTS / "build_deb.sh", "--out", root / "root", PYTHON=sys.executable, **index.environ)
        assert index.asked == []
    return root


def inside(root: Path, script: str) -> str:
    """In the root, without a network."""
    return call("unshare", "-nmp", "--fork", "chroot", root, "sh", "-ec", f"mount -t proc proc /proc; {script}")


def test_install_use_repeat_and_remove(debian: Path) -> None:
    inside(debian, "dpkg -i /root/holdfast-agent_*.deb")
    assert "heartbeat_s" in inside(debian, "/opt/holdfast/bin/python -m holdfast.agent --example")
    assert not (debian / "etc/systemd/system/multi-user.target.wants/holdfast-agent.service").exists()

    inside(debian, "dpkg -i /root/holdfast-controller_*.deb")
    assert "holdfast-actor" in inside(debian, "cat /etc/passwd")
    assert inside(debian, "stat -c %a:%U /var/lib/holdfast /etc/holdfast/actor").split() == [
        "2770:holdfast-controller",
        "700:root",
    ]
    example = "/usr/share/doc/holdfast-controller/examples/controller.toml"
    refused = 'controllers = ["http://head:8460"]'
    said = inside(
        debian,
        f"echo '{refused}' >/etc/holdfast/agent.toml; dpkg -i /root/holdfast-agent_*.deb 2>&1; rm /etc/holdfast/agent.toml",
    )
    assert "is not restarted" in said
    inside(debian, f"cp {example} /etc/holdfast/controller.toml && holdfast config check /etc/holdfast/controller.toml")
    inside(debian, "dpkg -i /root/*.deb")  # again, as an upgrade does
    assert inside(debian, "dpkg -V holdfast-agent holdfast-controller") == ""
    assert str(debian) not in inside(debian, "grep -rIl /tmp/ /opt/holdfast/bin /opt/holdfast/pyvenv.cfg || true")

    inside(debian, "dpkg -r holdfast-controller && holdfast-checks list >/dev/null && dpkg -P holdfast-agent")
    assert not (debian / "opt/holdfast/bin").exists()
    assert (debian / "etc/holdfast/controller.toml").exists()


def test_it_holds_ours_alone(debian: Path) -> None:
    """No package of a stranger under our names and no second copy; and each package lists its content."""
    (agent,) = debian.glob("root/holdfast-agent_*.deb")
    (controller,) = debian.glob("root/holdfast-controller_*.deb")
    listed = call("dpkg-deb", "-c", agent) + call("dpkg-deb", "-c", controller)
    assert {
        line for line in listed.split() if "/site-packages/holdfast" in line and line.endswith(".dist-info/METADATA")
    } == {line for line in listed.split() if line.endswith(f"/holdfast_slurm-{__version__}.dist-info/METADATA")}
    for file in ("prometheus/holdfast.rules.yml", "grafana/holdfast.json"):
        assert f"./usr/share/holdfast/{file}" in call("dpkg-deb", "-c", controller)
    for name, package in (("agent", agent), ("controller", controller)):
        assert f"./usr/share/doc/holdfast-{name}/sbom.cdx.json" in call("dpkg-deb", "-c", package)
    for page in ("holdfast", "holdfast-nodes", "holdfast-incident-show"):
        assert f"./usr/share/man/man1/{page}.1.gz" in call("dpkg-deb", "-c", controller)


def test_it_does_not_lay_itself_over_another_installation(debian: Path) -> None:
    inside(
        debian,
        "rm -rf /opt/holdfast && mkdir -p /opt/holdfast-releases/x/venv && ln -s holdfast-releases/x/venv /opt/holdfast",
    )
    refused = inside(debian, "dpkg -i /root/holdfast-agent_*.deb 2>&1 && exit 1 || true")
    assert "installed in another way" in refused
    assert not list((debian / "opt/holdfast-releases/x/venv").iterdir())
