"""On an installed head node root passes settings to the quorum service: the service may not read the controller's configuration."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.head import quorum_main

PASSWORD = "s3cret-of-the-store"
CONFIG = f"""
[store]
url = "postgresql://holdfast:{PASSWORD}@db/holdfast"
[notify]
urls = ["mailtos://bob:{PASSWORD}@example.org"]
[quorum]
bind = "127.0.0.1"
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As root of a head node would: the groups and users of the packages are this machine's own here."""
    monkeypatch.setattr(quorum_main, "getgrnam", lambda _name: SimpleNamespace(gr_gid=os.getgid()))
    me = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(pwd, "getpwnam", lambda _name: me)
    monkeypatch.setattr(quorum_main, "FORMER_KEY", tmp_path / "former.key")
    monkeypatch.setattr(os, "fchown", lambda *_: None)
    path = tmp_path / "controller.toml"
    path.write_text(f'{CONFIG}store = "sqlite:///{tmp_path}/quorum.db"\nkey = "own.key"\nsocket = "quorum.sock"\n')
    return path


def written(config: Path, target: Path) -> list[str]:
    assert quorum_main.write(config, ["bob"], target) == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    return target.read_text().splitlines()


def test_it_is_told_what_concerns_it_and_no_password(config: Path, tmp_path: Path) -> None:
    (tmp_path / "quorum.db").touch()
    arguments = written(config, tmp_path / "run.arguments")
    assert PASSWORD not in " ".join(arguments)
    pairs = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert pairs["--store"] == f"sqlite:///{tmp_path}/quorum.db"
    assert (pairs["--key"], pairs["--user"], pairs["--bind"]) == (str(tmp_path / "own.key"), "bob", "127.0.0.1")


@pytest.mark.parametrize(
    ("text", "said"),
    [("nonsense = 1\n", "unknown key 'nonsense'"), ("[quorum]\nenabled = false\n", "quorum.enabled is false")],
)
@pytest.mark.slow
def test_what_is_wrong_is_said_by_the_service_which_ends_with_2(
    config: Path, tmp_path: Path, text: str, said: str
) -> None:
    """So that systemd does not restart it (RestartPreventExitStatus=)."""
    config.write_text(text)
    written(config, tmp_path / "run.arguments")
    argv = [sys.executable, "-m", "holdfast.quorum", f"@{tmp_path}/run.arguments"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert said in done.stderr


def test_the_key_of_an_earlier_release_moves_once(config: Path, tmp_path: Path) -> None:
    (tmp_path / "quorum.db").touch()
    former, own = tmp_path / "former.key", tmp_path / "own.key"
    former.write_bytes(b"k" * 32)
    written(config, tmp_path / "run.arguments")
    assert (own.read_bytes(), former.exists()) == (b"k" * 32, False)
    former.write_bytes(b"x" * 32)
    written(config, tmp_path / "run.arguments")
    assert own.read_bytes() == b"k" * 32


def test_a_link_in_the_former_keys_place_is_not_followed(config: Path, tmp_path: Path) -> None:
    (tmp_path / "quorum.db").touch()
    (tmp_path / "former.key").symlink_to("/etc/shadow")
    written(config, tmp_path / "run.arguments")
    assert not (tmp_path / "own.key").exists()


def test_rooms_of_an_earlier_release_are_handed_over_where_the_database_is_new(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[str], object]] = []

    def run(argv: list[str], **named: object) -> SimpleNamespace:
        asked.append((argv, named["user"]))
        return SimpleNamespace(returncode=0, stdout='{"rooms": [], "events": []}', stderr="")  # word: JSON

    monkeypatch.setattr(subprocess, "run", run)
    assert "--adopt" in written(config, tmp_path / "run.arguments")
    ((argv, user),) = asked
    assert (argv[-1], user) == ("--export", "holdfast-controller"), (
        "not as root: its files would lock the controller out"
    )
    (tmp_path / "quorum.db").touch()
    assert "--adopt" not in written(config, tmp_path / "run.arguments")


def test_a_database_that_cannot_be_asked_keeps_no_service_from_starting(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for outcome in (SimpleNamespace(returncode=1, stdout="", stderr="no database"), OSError("no such user")):

        def run(*_argv: object, outcome: object = outcome, **_named: object) -> object:
            if isinstance(outcome, OSError):
                raise outcome
            return outcome

        monkeypatch.setattr(subprocess, "run", run)
        assert "--adopt" not in written(config, tmp_path / "run.arguments")
        assert "rendezvous of an earlier release are not read" in capsys.readouterr().err
