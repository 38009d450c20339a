"""The instance metadata is closed to users of nodes on EC2: what on_create.sh decides, what is written, and what the rules do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from lifecycle.lifecycle_support import SCRIPTS, amazon_root, fake_command, run_script, write
from lifecycle.small_bundle import SHARE, bundle, machine, on_create

pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[2]
in_a_network_of_its_own = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nftables"
)
RULES = "etc/holdfast/metadata.nft"
UNIT = "holdfast-metadata.service"
SCRIPT = r"""
ip link set lo up && ip addr add 169.254.169.254/32 dev lo
cd "$3" && /usr/bin/python3 -m http.server -b 169.254.169.254 80 >/dev/null 2>&1 &
server=$! python=$2 site=$3
ask='import urllib.request; print(urllib.request.urlopen("http://169.254.169.254/", timeout=5).status)'
tries() {
	/usr/bin/python3 -c "$ask" 2>/dev/null || echo refused
	for user in 1 65534; do setpriv --reuid=$user --clear-groups /usr/bin/python3 -c "$ask" 2>/dev/null || echo refused; done
	"$python" -m holdfast_checks run -v --config "$site/agent.toml" cloud.metadata |
		grep -o 'do not reach\|any user of this node' || echo unknown
}
for _ in 1 2 3 4 5 6 7 8 9 10; do /usr/bin/python3 -c "$ask" >/dev/null 2>&1 && break; sleep 0.2; done
tries
nft -f "$1" && nft -f "$1"
tries
kill "$server"
"""


def close(root: Path, *arguments: str) -> str:
    """metadata.sh in a separate root with these two users: ``daemon`` and CloudWatch's agent."""
    ids = 'case "$2" in daemon) echo 1 ;; cwagent) echo 990 ;; *) exit 1 ;; esac'
    path = fake_command(root / "bin", "id", ids)
    fake_command(path, "nft", "exit 0")
    fake_command(path, "systemctl", f'echo "$*" >>{root}/systemctl')
    done = run_script(SCRIPTS / "metadata.sh", root, *arguments, path=path)
    assert done.returncode == 0, done.stderr
    return done.stderr


def allowed(root: Path) -> str:
    found = re.search(r"^define metadata_users = \{ (.*) \}$", (root / RULES).read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def test_it_is_written_for_this_boot_and_each_that_comes(tmp_path: Path) -> None:
    """With the users that need the role and are here; in an image that is not booted, too."""
    said = close(tmp_path, "close", "--user", "daemon", "--user", "gone")
    assert allowed(tmp_path) == "0, 990, 1"
    assert "no user gone here" in said
    assert "ec2-instance-connect" not in said, "those known to need it are reported nowhere"
    assert (tmp_path / "etc/systemd/system" / UNIT).read_bytes() == (SCRIPTS / UNIT).read_bytes()
    assert f"enable {UNIT}" in (tmp_path / "systemctl").read_text()
    close(tmp_path, "open")
    assert not (tmp_path / RULES).exists()
    assert not (tmp_path / "etc/systemd/system" / UNIT).exists()


@pytest.mark.parametrize(
    "arguments", [(), ("closed",), ("close", "--user"), ("close", "--user", "a b"), ("close", "x")]
)
def test_what_it_does_not_know_changes_nothing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert run_script(SCRIPTS / "metadata.sh", tmp_path, *arguments).returncode == 2
    assert not (tmp_path / RULES).exists()


@pytest.mark.parametrize(
    ("group", "conf", "closed", "called"),
    [
        ("gpu", "", False, "close"),
        ("gpu", "HOLDFAST_METADATA_USERS=monitor ops\n", False, "close --user monitor --user ops"),
        ("gpu", "HOLDFAST_METADATA=open\n", False, ""),
        ("gpu", "HOLDFAST_METADATA=open\n", True, "open"),
        ("gpu", "HOLDFAST_METADATA=shut\n", False, ""),
        ("head", "HOLDFAST_ROLES=compute controller\n", False, "head"),
        ("head", "HOLDFAST_METADATA=open\n", False, "head"),
        ("head", "HOLDFAST_HEAD_METADATA=open\nHOLDFAST_METADATA_USERS=ops\n", False, "head open ops"),
    ],
)
def test_on_create_closes_it_unless_it_is_told_otherwise(
    tmp_path: Path, group: str, conf: str, closed: bool, called: str
) -> None:
    root = machine(tmp_path, group)
    write(
        root / SHARE[1:] / "metadata.sh",
        f"echo $* $HOLDFAST_HEAD_METADATA $HOLDFAST_METADATA_USERS >>{root}/called\nexit 1\n",
    )
    if closed:
        write(root / RULES, "")
    log = on_create(bundle(tmp_path, conf), root)
    done = "".join(sorted({*(root / "called").read_text().splitlines()})) if (root / "called").exists() else ""
    assert done == called, log
    assert "ends: status=0" in log, "a node is no worse for it"
    assert ("neither closed nor open" in log) is ("shut" in conf)


def test_away_from_ec2_nothing_is_closed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root / "proc/driver/nvidia", "")
    write(root / SHARE[1:] / "metadata.sh", f"touch {root}/called\n")
    assert "kind=plain role=compute" in on_create(bundle(tmp_path), root)
    assert not (root / "called").exists()


def test_on_plain_ec2_and_parallelcluster_it_is(tmp_path: Path) -> None:
    root = amazon_root(tmp_path / "root")
    write(root / SHARE[1:] / "metadata.sh", f"touch {root}/called\n")
    assert "kind=parallelcluster role=compute" in on_create(bundle(tmp_path), root)
    assert (root / "called").exists()


def head(
    root: Path,
    *,
    vendor: str = "Amazon EC2",
    environ: Mapping[str, str] | None = None,
    conf: str = "",
    names: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """``metadata.sh head`` on a machine of this make, with the actor, SlurmUser, and two more users."""
    write(root / "sys/class/dmi/id/sys_vendor", f"{vendor}\n")
    if conf:
        write(root / "etc/holdfast/enrol.conf", conf)
    ids = 'case "$2" in holdfast-actor) echo 800 ;; slurm) echo 64030 ;; batch) echo 64031 ;; ops) echo 7 ;; *) exit 1 ;; esac'
    path = fake_command(root / "bin", "id", ids)
    fake_command(path, "systemctl", f'echo "$*" >>{root}/systemctl')
    if not (path / "nft").exists():
        fake_command(path, "nft", f"echo loaded >>{root}/loaded")
    users = [word for name in names for word in ("--user", name)]
    return run_script(SCRIPTS / "metadata.sh", root, "head", *users, path=path, settings=environ)


def test_on_a_head_node_the_actor_slurm_and_who_was_named_before_reach_it(tmp_path: Path) -> None:
    write(tmp_path / "etc/slurm/slurm.conf", "ClusterName=c\nSlurmUser=batch # ours\n")
    for _ in range(2):
        done = head(tmp_path, conf="HOLDFAST_METADATA_USERS=ops\n")
        assert (done.returncode, "passed over" in done.stderr) == (0, False), done.stderr
        assert set(allowed(tmp_path).split(", ")) == {"0", "800", "64030", "64031", "7"}
        assert len(allowed(tmp_path).split(", ")) == 5, "each once"
    assert not (tmp_path / "loaded").exists(), "in an image that is being made, for the next boot"
    head(tmp_path, conf="HOLDFAST_METADATA_USERS=\n")
    assert set(allowed(tmp_path).split(", ")) == {"0", "800", "64030", "64031"}, "and can be taken back"


def test_names_given_by_hand_stay_over_an_upgrade_and_can_be_taken_back(tmp_path: Path) -> None:
    head(tmp_path, names=("ops",))
    head(tmp_path)
    assert "7" in allowed(tmp_path).split(", "), "an upgrade locks no user out"
    head(tmp_path, names=("batch",))
    assert set(allowed(tmp_path).split(", ")) == {"0", "800", "64030", "64031"}


def test_a_head_that_was_opened_by_hand_stays_open_over_an_upgrade(tmp_path: Path) -> None:
    head(tmp_path)
    close(tmp_path, "open")
    for _ in range(2):
        assert "stays open" in head(tmp_path).stderr
        assert not (tmp_path / RULES).exists()
    head(tmp_path, environ={"HOLDFAST_HEAD_METADATA": "closed"})
    assert (tmp_path / RULES).exists()
    head(tmp_path)
    assert (tmp_path / RULES).exists()


@pytest.mark.parametrize("how", ["environment", "file"])
def test_a_head_node_is_left_open_where_that_is_said(tmp_path: Path, how: str) -> None:
    said = "HOLDFAST_HEAD_METADATA=open\n"
    head(tmp_path)
    assert (tmp_path / RULES).exists()
    environ = {"HOLDFAST_HEAD_METADATA": "open"} if how == "environment" else None
    for _ in range(2):
        done = head(tmp_path, environ=environ, conf="" if environ else said)
        assert done.returncode == 0
        assert "open to users" in done.stderr
        assert not (tmp_path / RULES).exists()


def test_a_head_node_with_a_word_that_is_neither_is_left_as_it_is(tmp_path: Path) -> None:
    done = head(tmp_path, environ={"HOLDFAST_HEAD_METADATA": "shut"})
    assert done.returncode == 1
    assert "neither closed nor open" in done.stderr
    assert not (tmp_path / RULES).exists()


def test_a_head_node_away_from_ec2_is_left_as_it_is(tmp_path: Path) -> None:
    done = head(tmp_path, vendor="Dell Inc.")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / RULES).exists()


def test_each_way_of_installing_a_controller_closes_the_head(tmp_path: Path) -> None:
    """The bundle's is tried above. Each continues where the metadata cannot be closed."""
    for name in ("install.sh", "build_deb.sh"):
        (line,) = [
            each for each in (SCRIPTS / name).read_text().splitlines() if "metadata.sh" in each and "head" in each
        ]
        assert "|| true" in line


@pytest.mark.slow
@in_a_network_of_its_own
def test_users_are_refused_and_root_and_the_named_are_not(tmp_path: Path) -> None:
    """Loaded twice, as after a change; and the agent's own check says the same, before and after."""
    close(tmp_path, "close", "--user", "daemon")
    write(tmp_path / "latest/meta-data/index.html", "")
    write(tmp_path / "agent.toml", 'node = "n1"\n[cloud]\nimds = "http://169.254.169.254"\n')
    environ = os.environ | {"PYTHONPATH": f"{HERE}/daemon:{HERE}/healthchecks"}
    command = ["unshare", "-n", "sh", "-c", SCRIPT, "sh", str(tmp_path / RULES), sys.executable, str(tmp_path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == [
        *("200", "200", "200", "any user of this node"),
        *("200", "200", "refused", "do not reach"),
    ], done.stdout + done.stderr
