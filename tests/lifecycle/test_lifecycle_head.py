"""The head node's settings hold the database's password: they reach only the head, by no bundle."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from lifecycle.lifecycle_support import SCRIPTS, write
from lifecycle.small_bundle import bundle, machine, on_create

pytestmark = pytest.mark.slow

SETTINGS = '[store]\nurl = "postgresql://holdfast:hunter2@db/holdfast"\n'
FROM = "HOLDFAST_HEAD_FROM=secretsmanager:holdfast-head/{cluster}\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("controller.toml", SETTINGS, "HOLDFAST_HEAD_FROM"),
        ("actor.toml", "", "HOLDFAST_HEAD_FROM"),
        ("agent.token", "t", "nothing else"),
        (".env", "A=b", "nothing else"),
        ("ca.pem", "-----BEGIN PRIVATE KEY-----\n", "private key or a password"),
        ("holdfast.conf", "HOLDFAST_CONTROLLERS=https://me:hunter2@head:8460\n", "private key or a password"),
        ("tokens/n1", "t", "nothing else"),
        ("agent.toml/x", "", "no plain file"),
    ],
)
def test_no_bundle_is_made_with_what_is_not_for_every_node(tmp_path: Path, name: str, text: str, said: str) -> None:
    """Before anything is fetched, so that no half of it is left either."""
    write(tmp_path / "site/holdfast.conf", "HOLDFAST_CONTROLLERS=https://head:8460\n")
    write(tmp_path / "site" / name, text)
    command = ["sh", str(SCRIPTS / "build_bundle.sh"), "--site", str(tmp_path / "site"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "hunter2" not in done.stderr
    assert not (tmp_path / "out").exists()


def kept(root: Path) -> list[Path]:
    """Files under it with the password."""
    return [file for file in root.rglob("*") if file.is_file() and b"hunter2" in file.read_bytes()]


def secret(tmp_path: Path) -> str:
    return f'case "$*" in *holdfast-head/c1*) cat {write(tmp_path / "secret", SETTINGS)} ;; *) exit 254 ;; esac'


def test_the_head_fetches_its_own(tmp_path: Path) -> None:
    root = machine(tmp_path, "head")
    said = on_create(bundle(tmp_path, FROM), root, secret(tmp_path))
    file = root / "etc/holdfast/controller.toml"
    assert file.read_text() == SETTINGS, said
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert kept(root) == [file]
    assert "hunter2" not in said + (tmp_path / "bin/aws.calls").read_text()
    assert "holdfast-controller.service" in (root / "up").read_text()


def test_a_worker_asks_for_none_of_it(tmp_path: Path) -> None:
    root = machine(tmp_path, "gpu")
    on_create(bundle(tmp_path, FROM), root, secret(tmp_path))
    assert kept(root) == []
    assert not (tmp_path / "bin/aws.calls").exists()


@pytest.mark.parametrize("group", ["gpu", "head"])
def test_settings_that_somebody_copied_into_the_bundle_are_not_left_there(tmp_path: Path, group: str) -> None:
    """By hand, past build_bundle.sh: removed on every machine, used on none."""
    made, root = bundle(tmp_path), machine(tmp_path, group)
    write(made / "controller.toml", SETTINGS)
    said = on_create(made, root)
    assert "controller.toml lay in the bundle, which goes to every node" in said
    assert kept(tmp_path) == []


def test_settings_that_are_there_stay(tmp_path: Path) -> None:
    root = machine(tmp_path, "head")
    file = write(root / "etc/holdfast/controller.toml", "[cluster]\n")
    said = on_create(bundle(tmp_path, FROM), root, secret(tmp_path))
    assert file.read_text() == "[cluster]\n"
    assert "controller: start" in said


@pytest.mark.parametrize(
    ("conf", "said", "status"),
    [
        ("", "holdfast config example controller", 0),
        (FROM, "holdfast config example controller", 1),
        ("HOLDFAST_HEAD_FROM=secretsmanager:holdfast/head\n", "where the nodes' role reads tokens", 1),
        ("HOLDFAST_HEAD_FROM=ssm:/holdfast/c1/head\n", "where the nodes' role reads tokens", 1),
        ("HOLDFAST_HEAD_FROM=file:/fsx/controller.toml\n", "neither ssm:NAME nor secretsmanager:NAME", 1),
    ],
)
def test_a_head_without_settings_starts_nothing_and_says_what_to_do(
    tmp_path: Path, conf: str, said: str, status: int
) -> None:
    root = machine(tmp_path, "head")
    log = on_create(bundle(tmp_path, conf), root, "echo None")
    assert said in log
    assert f"ends: status={status}" in log
    assert not (root / "etc/holdfast/controller.toml").exists()
    assert not (root / "up").exists()


def test_a_bundle_that_was_made_without_the_controller_sets_none_up(tmp_path: Path) -> None:
    said = on_create(bundle(tmp_path, FROM, controller=False), machine(tmp_path, "head"), secret(tmp_path))
    assert "nothing to do for role controller" in said
