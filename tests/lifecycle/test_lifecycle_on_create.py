"""on_create.sh out of a real bundle: from nothing, twice, without a network, and never a failed node."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from holdfast import __version__
from holdfast.config.agent import load_agent_config
from lifecycle.lifecycle_support import (
    PROVISIONING,
    SCRIPTS,
    amazon_root,
    fake_command,
    hyperpod_root,
    run_script,
    state,
    write,
)
from lifecycle.strangers import NAMES, Strangers, strangers, strangers_wheel

pytestmark = pytest.mark.slow
NO_NETWORK = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "-")
CONF = "HOLDFAST_TOKEN_FROM=file:/fsx/holdfast/tokens/{node}\nHOLDFAST_CONTROLLERS=https://head:8460\n"


def can_unshare() -> bool:
    command = ["unshare", "-n", "ip", "link", "set", "lo", "up"]
    return shutil.which("ip") is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="session")
def index() -> Iterator[Strangers]:
    with strangers() as made:
        yield made


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory, index: Strangers) -> Path:
    """As build_bundle.sh makes it, but without an interpreter: the tests' own is used. Strangers offer packages of our
    names meanwhile."""
    out = tmp_path_factory.mktemp("bundle")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(out / "probe"), "urllib3"]
    if subprocess.run(pip, capture_output=True, timeout=120, check=False).returncode != 0:
        pytest.skip("no package index can be reached from here")
    site = tmp_path_factory.mktemp("site")
    write(site / "holdfast.conf", CONF)
    write(site / "agent.toml", "heartbeat_s = 7\n")
    write(site / "provisioning_parameters.json", json.dumps(PROVISIONING))
    command = ["sh", str(SCRIPTS / "build_bundle.sh"), "--out", str(out), "--site", str(site), "--interpreter", "none"]
    environ = os.environ | index.environ | {"PYTHON": sys.executable}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return out / "holdfast-bundle"


def on_create(bundle: Path, root: Path) -> subprocess.CompletedProcess[str]:
    prefix = NO_NETWORK if can_unshare() else ()
    python = str(Path(sys.executable).resolve())
    return run_script(bundle / "on_create.sh", root, prefix=prefix, settings={"HOLDFAST_PYTHON": python})


@pytest.fixture(scope="session")
def installed(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = hyperpod_root(tmp_path_factory.mktemp("machine") / "root")
    done = on_create(bundle, root)
    assert done.returncode == 0
    assert "ends: status=0" in done.stderr, done.stderr
    return root


@pytest.fixture
def machine(installed: Path, tmp_path: Path) -> Path:
    """A copy of the installed machine, to be broken."""
    return shutil.copytree(installed, tmp_path / "root", symlinks=True)


def test_from_nothing_to_a_configured_agent(installed: Path) -> None:
    config = load_agent_config(installed / "etc/holdfast/agent.toml")
    assert (config.node, config.heartbeat_s, config.controllers) == ("ip-127-0-77-2", 7.0, ("https://head:8460",))
    assert (installed / "etc/holdfast/agent.token").read_text() == "token_of-gpu1\n"
    unit = installed / "etc/systemd/system/holdfast-agent.service"
    assert unit.read_bytes() == (SCRIPTS / "holdfast-agent.service").read_bytes()
    hook = installed / "etc/enroot/hooks.d/50-holdfast.sh"
    assert hook.read_bytes() == (SCRIPTS / "holdfast-enroot-hook.sh").read_bytes()
    assert hook.stat().st_mode & 0o777 == 0o755, "enroot runs no other"
    assert "d /run/holdfast 0755 root root" in (installed / "usr/lib/tmpfiles.d/run-holdfast.conf").read_text()
    python = installed / "opt/holdfast/bin/python"
    done = subprocess.run(
        [python, "-I", "-m", "holdfast.agent", "--example"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "# heartbeat_s =" in done.stdout
    assert "ends: status=0" in (installed / "var/log/provision/provisioning.log").read_text()


@pytest.mark.skipif(shutil.which("systemctl") is None, reason="no systemctl here")
class Controller(BaseHTTPRequestHandler):
    """Takes the first heartbeat."""

    heard: ClassVar[list[tuple[str, dict[str, object]]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/heartbeats":
            self.heard.append((self.headers["Authorization"], body))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_GET(self) -> None:
        self.send_error(503)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_what_was_installed_reports_as_this_node_with_its_token(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed interpreter, program and settings; only paths of the machine and the controller's address are the test's."""
    monkeypatch.setattr(Controller, "heard", [])
    etc = machine / "etc/holdfast"
    with HTTPServer(("127.0.0.1", 0), Controller) as server:
        told = (etc / "agent.toml").read_text().replace("https://head:8460", f"http://127.0.0.1:{server.server_port}")
        told = re.sub(r'(token_file|ca_file|instance_id_path) = "', rf'\1 = "{machine}', told)
        (machine / "var/lib").mkdir(parents=True, exist_ok=True)
        (machine / "kmsg").touch()
        own = f'state_dir = "{machine}/var/lib/holdfast"\nrun_dir = "{machine}/run"\nkmsg_path = "{machine}/kmsg"\n'
        (etc / "agent.toml").write_text(own + told)
        python = machine / "opt" / os.readlink(machine / "opt/holdfast") / "bin/python"
        command = [str(python), "-I", "-m", "holdfast.agent", "--config", str(etc / "agent.toml")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as agent:
            server.timeout = 1.0
            until_s = time.monotonic() + 30
            while not Controller.heard and agent.poll() is None and time.monotonic() < until_s:
                server.handle_request()
            agent.kill()
            said, _ = agent.communicate(timeout=10)
    assert Controller.heard, said
    token, heartbeat = Controller.heard[0]
    assert token == "Bearer token_of-gpu1"
    assert (heartbeat["node"], heartbeat["instance_id"]) == ("ip-127-0-77-2", "i-00000000000000002")


def test_the_services_start_with_the_machine(installed: Path) -> None:
    wants = installed / "etc/systemd/system/multi-user.target.wants"
    nft = {"holdfast-metadata.service"} if shutil.which("nft") else set()
    assert {path.name for path in wants.iterdir()} == {"holdfast-agent.service", "holdfast-enrol.service"} | nft


def test_twice_is_the_same(bundle: Path, machine: Path) -> None:
    before = state(machine)
    done = on_create(bundle, machine)
    assert "agent of ip-127-0-77-2: start" in done.stderr  # not restarted
    assert state(machine) == before


def test_amazon_linux_as_a_parallelcluster_node(bundle: Path, tmp_path: Path) -> None:
    root = amazon_root(tmp_path / "root")
    write(root / "fsx/holdfast/tokens/queue1-st-p5-1", "of_queue1")
    assert on_create(bundle, root).returncode == 0
    assert load_agent_config(root / "etc/holdfast/agent.toml").node == "queue1-st-p5-1"
    assert (root / "etc/holdfast/agent.token").read_text() == "of_queue1\n"


def changed(bundle: Path, tmp_path: Path, name: str, text: str) -> Path:
    """A copy of the bundle with one file that its list does not know in this form."""
    copy = shutil.copytree(bundle, tmp_path / "changed")
    write(copy / name, text)
    return copy


def test_a_damaged_bundle_leaves_what_runs(bundle: Path, machine: Path, tmp_path: Path) -> None:
    before = state(machine)
    done = on_create(changed(bundle, tmp_path, "holdfast.conf.example", "x"), machine)
    assert done.returncode == 0
    assert "the bundle is damaged" in done.stderr
    assert state(machine) == before


def listed(bundle: Path) -> Path:
    """The bundle with a list that fits it."""
    skip = {"SHA256SUMS", "provisioning_parameters.json"}
    names = [str(p.relative_to(bundle)) for p in sorted(bundle.rglob("*")) if p.is_file() and p.name not in skip]
    done = subprocess.run(["sha256sum", *names], cwd=bundle, capture_output=True, text=True, check=True)
    (bundle / "SHA256SUMS").write_text(done.stdout)
    return bundle


def test_a_new_release_that_does_not_install_leaves_the_old_one(bundle: Path, machine: Path, tmp_path: Path) -> None:
    broken = changed(bundle, tmp_path, "wheels/urllib3-broken.txt", "")
    for wheel in broken.glob("wheels/urllib3-*.whl"):
        wheel.unlink()
    link = os.readlink(machine / "opt/holdfast")
    done = on_create(listed(broken), machine)
    assert done.returncode == 0
    assert "not installed (status 1)" in done.stderr
    assert os.readlink(machine / "opt/holdfast") == link
    assert [path.name for path in (machine / "opt/holdfast-releases").iterdir()] == [link.split("/")[1]]


def test_a_new_release_takes_over_and_the_one_before_stays(bundle: Path, machine: Path, tmp_path: Path) -> None:
    link = os.readlink(machine / "opt/holdfast")
    newer = listed(changed(bundle, tmp_path, "agent.toml", "heartbeat_s = 8\n"))
    done = on_create(newer, machine)
    assert "agent of ip-127-0-77-2: restart" in done.stderr, done.stderr
    assert os.readlink(machine / "opt/holdfast") != link
    assert (machine / "opt" / link).is_dir()
    assert load_agent_config(machine / "etc/holdfast/agent.toml").heartbeat_s == 8


def test_a_login_node_gets_nothing(bundle: Path, tmp_path: Path) -> None:
    root = amazon_root(tmp_path / "root")
    write(root / "etc/parallelcluster/cfnconfig", "cfn_node_type=LoginNode\n")
    done = on_create(bundle, root)
    assert "nothing to do for role login" in done.stderr
    assert not (root / "opt").exists()


def test_what_hangs_is_let_go(bundle: Path, machine: Path, tmp_path: Path) -> None:
    hanging = fake_command(tmp_path / "bin", "timeout", "exec sleep 12")
    began_s = time.monotonic()
    done = run_script(bundle / "on_create.sh", machine, path=hanging, settings={"HOLDFAST_DEADLINE_S": "1"})
    assert done.returncode == 0
    assert "not done after 1 s" in done.stderr
    assert time.monotonic() - began_s < 10  # nor does it hold our output open


def test_half_a_bundle_fails_no_node(bundle: Path, tmp_path: Path) -> None:
    half = shutil.copytree(bundle, tmp_path / "half")
    (half / "lib/setup.sh").unlink()
    done = on_create(half, tmp_path / "root")
    assert done.returncode == 0
    assert "nothing installed" in done.stderr


def test_bootstrap_fetches_checks_and_runs(bundle: Path, tmp_path: Path) -> None:
    root = hyperpod_root(tmp_path / "root")
    shutil.copy(f"{bundle}.tar.gz", root / "fsx/b.tar.gz")
    sums = subprocess.run(["sha256sum", root / "fsx/b.tar.gz"], capture_output=True, text=True, check=True)
    python = str(Path(sys.executable).resolve())
    settings = {"HOLDFAST_PYTHON": python, "TMPDIR": str(tmp_path), "HOLDFAST_FETCH_TRIES": "1"}
    for digest, fits in (("0" * 64, False), (sums.stdout.split()[0], True)):
        done = run_script(SCRIPTS / "bootstrap.sh", root, "/fsx/b.tar.gz", digest, settings=settings)
        assert done.returncode == 0, done.stderr
        assert (root / "opt/holdfast").is_symlink() is fits, done.stderr
    done = run_script(SCRIPTS / "bootstrap.sh", root, "/fsx/none.tar.gz", "0" * 64, settings=settings)
    assert done.returncode == 0
    assert "could not fetch" in done.stderr


@pytest.mark.parametrize("digest", ["", "SHA256", "0" * 63])
def test_bootstrap_takes_no_bundle_without_its_digest(tmp_path: Path, digest: str) -> None:
    """Nothing of it is run: the bundle is a script."""
    inside = write(tmp_path / "holdfast-bundle/on_create.sh", f"touch {tmp_path}/ran\n").parent
    subprocess.run(["tar", "-C", tmp_path, "-czf", tmp_path / "b.tar.gz", inside.name], check=True)
    settings = {"HOLDFAST_ROOT": "", "TMPDIR": str(tmp_path), "HOLDFAST_FETCH_TRIES": "1"}
    done = run_script(SCRIPTS / "bootstrap.sh", tmp_path, str(tmp_path / "b.tar.gz"), digest, settings=settings)
    assert done.returncode == 0
    assert not (tmp_path / "ran").exists()
    assert "SHA-256" in done.stderr


def test_install_on_a_plain_machine_and_again(bundle: Path, index: Strangers, tmp_path: Path) -> None:
    (wheel,) = bundle.glob("wheels/holdfast_slurm-*.whl")
    arguments = ("agent", "--source", str(wheel), "--python", str(Path(sys.executable).resolve()))
    for _ in range(2):
        done = run_script(SCRIPTS / "install.sh", tmp_path, *arguments, settings=index.environ)
        assert done.returncode == 0, done.stderr
    python = tmp_path / "opt/holdfast/bin/python"
    assert (
        subprocess.run([python, "-I", "-m", "holdfast.agent", "--example"], capture_output=True, check=False).returncode
        == 0
    )
    assert (tmp_path / "etc/systemd/system/holdfast-agent.service").exists()
    assert os.readlink(tmp_path / "usr/local/bin/holdfast") == "/opt/holdfast/bin/holdfast"
    assert not (tmp_path / "etc/systemd/system/multi-user.target.wants").exists()  # nothing starts unconfigured


def test_a_package_of_a_strangers_is_neither_used_nor_replaced(bundle: Path, tmp_path: Path) -> None:
    python = tmp_path / "opt/holdfast/bin/python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "opt/holdfast"], check=True)
    name, content = strangers_wheel("holdfast")
    (tmp_path / name).write_bytes(content)
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", tmp_path / name], check=True)
    (ours,) = bundle.glob("wheels/holdfast_slurm-*.whl")
    arguments = ("agent", "--source", str(ours), "--python", str(Path(sys.executable).resolve()))
    done = run_script(SCRIPTS / "install.sh", tmp_path, *arguments)
    assert done.returncode != 0
    assert "has the package 'holdfast' 99.0, which is not this Holdfast" in done.stderr


def test_a_strangers_wheel_in_a_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    """Also where the same attacker has regenerated the list of digests."""
    own = shutil.copytree(bundle, tmp_path / "bundle")
    name, content = strangers_wheel("holdfast-slurm")
    (own / "wheels" / name).write_bytes(content)
    listed = subprocess.run(["sha256sum", own / "wheels" / name], capture_output=True, text=True, check=True).stdout
    with (own / "SHA256SUMS").open("a") as sums:
        sums.write(f"{listed.split()[0]}  ./wheels/{name}\n")
    root = hyperpod_root(tmp_path / "root")
    done = on_create(own, root)
    assert done.returncode == 0
    assert "two wheels of Holdfast" in done.stderr
    assert not (root / "opt/holdfast").exists()


def test_nobody_else_has_been_asked_for_ours(installed: Path, bundle: Path, index: Strangers, tmp_path: Path) -> None:
    """Bundle, on_create.sh and install.sh, with an index on which strangers offer higher versions under both names."""
    asked = list(index.asked)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(tmp_path), *NAMES]
    subprocess.run(command, env=os.environ | index.environ, check=True)
    assert sorted(p.name for p in tmp_path.glob("*.whl")) == sorted(strangers_wheel(n)[0] for n in NAMES), (
        "the index works"
    )
    assert asked == []
    assert [p.name for p in bundle.glob("wheels/[hH]oldfast*")] == [f"holdfast_slurm-{__version__}-py3-none-any.whl"]
    command = [str(installed / "opt/holdfast/bin/python"), "-I", "-c", "import holdfast; print(holdfast.__version__)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == __version__


def test_the_bundle_says_what_is_in_it(bundle: Path) -> None:
    listed = json.loads((bundle / "sbom.cdx.json").read_text())["components"]
    wheels = {p.name.partition("-")[0].lower() for p in bundle.glob("wheels/*.whl")}
    assert {c["name"].lower().replace("-", "_").replace(".", "_") for c in listed} == wheels
    (ours,) = (c for c in listed if c["name"] == "holdfast-slurm")
    assert "purl" not in ours
    assert ours["version"] == __version__


def test_install_keeps_off_what_a_bundle_made(bundle: Path, machine: Path) -> None:
    done = run_script(
        SCRIPTS / "install.sh", machine, "agent", "--source", str(next(bundle.glob("wheels/holdfast_slurm-*.whl")))
    )
    assert done.returncode == 1
    assert "was made by on_create.sh" in done.stderr
