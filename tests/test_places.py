"""Files and sockets of daemons in folders that another user may write to: no link is followed, no rights are given by a path."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from holdfast.agent.orders import checkpoint_verbs
from holdfast.agent.selfcheck import SelfcheckLevel, settings, state_dir, token
from holdfast.agent.sending.memory import only_agent, others_may_write
from holdfast.agent.sending.reporting import STATUS_FILE
from holdfast.config.agent import AgentConfig
from holdfast.controller.wakeup import Alone, Bell, Ringer
from holdfast.model.errors import ConfigError
from holdfast.unix_socket import bound
from holdfast_checks.whole_file import write_whole

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("root's")
    path.chmod(0o600)
    return path


def _untouched(victim: Path) -> bool:
    return (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == ("root's", 0o600)


@pytest.mark.parametrize("name", [STATUS_FILE, checkpoint_verbs.VERBS, "state"])
def test_a_link_in_a_drafts_place_is_not_followed(tmp_path: Path, victim: Path, name: str) -> None:
    path = tmp_path / "run" / name
    path.parent.mkdir()
    (path.parent / f".{name}.{os.getpid()}.{threading.get_native_id()}").symlink_to(victim)
    path.symlink_to(victim)
    write_whole(path, "new", 0o644)
    assert _untouched(victim)
    assert (path.is_symlink(), path.read_text(), stat.S_IMODE(path.stat().st_mode)) == (False, "new", 0o644)
    assert list(path.parent.iterdir()) == [path]


def test_a_draft_that_another_user_makes_in_the_meantime_is_not_taken(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    draft = tmp_path / f".state.{os.getpid()}.{threading.get_native_id()}"
    unlink = Path.unlink

    def too_late(self: Path, *, missing_ok: bool = False) -> None:
        unlink(self, missing_ok=missing_ok)
        if self == draft and not path.exists():
            draft.symlink_to(victim)

    monkeypatch.setattr(Path, "unlink", too_late)
    with pytest.raises(FileExistsError):
        write_whole(path, "new", 0o644)
    assert _untouched(victim)


def test_the_checkpoint_verbs_replace_a_link(tmp_path: Path, victim: Path) -> None:
    (tmp_path / checkpoint_verbs.VERBS).symlink_to(victim)
    checkpoint_verbs.place(tmp_path)
    assert _untouched(victim)
    assert not (tmp_path / checkpoint_verbs.VERBS).is_symlink()


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o660), (0o007, 0o660), (0, 0o600), (0o027, 0o666)])
def test_a_socket_has_its_mode_whatever_the_umask_and_never_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int, mode: int
) -> None:
    seen: list[int] = []
    opened = os.open

    def see(path: str | os.PathLike[str], flags: int, *more: int) -> int:
        descriptor = opened(path, flags, *more)
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    monkeypatch.setattr(os, "open", see)
    former = os.umask(umask)
    try:
        made = bound(tmp_path / "sock", mode, socket.SOCK_STREAM)
    finally:
        os.umask(former)
    made.close()
    assert stat.S_IMODE((tmp_path / "sock").stat().st_mode) == mode
    assert seen == [mode & ~umask], "from the moment on in which it is there"


def test_a_link_in_a_sockets_place_is_replaced(tmp_path: Path, victim: Path) -> None:
    for name in ("bell", f".{os.getpid()}.sock"):
        (tmp_path / name).symlink_to(victim)
    bell = Bell(tmp_path / "bell")
    ringer = Ringer(tmp_path / "bell")
    ringer.ring()
    assert bell.wait(5.0)
    assert not bell.wait(0.0)
    bell.close()
    ringer.close()
    assert _untouched(victim)


def test_a_socket_that_is_exchanged_for_a_link_gives_no_rights(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Exchanged(socket.socket):
        def bind(self, address: str) -> None:  # type: ignore[override]
            super().bind(address)
            Path(address).unlink()
            Path(address).symlink_to(victim)

    monkeypatch.setattr(socket, "socket", Exchanged)
    with pytest.raises(OSError, match="not the socket that was just made"):
        bound(tmp_path / "sock", 0o666, socket.SOCK_STREAM)
    assert _untouched(victim)


def test_a_lock_is_a_plain_file(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "link").symlink_to(victim)
    os.mkfifo(tmp_path / "fifo")
    for name, why in (("link", "cannot be locked"), ("fifo", "is no plain file")):
        with pytest.raises(ConfigError, match=why):
            Alone(tmp_path / name)
    assert _untouched(victim)
    lock = Alone(tmp_path / "run" / "controller" / "lock")
    assert stat.S_IMODE((tmp_path / "run" / "controller").stat().st_mode) & 0o027 == 0
    lock.release()


@pytest.mark.parametrize(
    ("mode", "uid", "others"),
    [
        (0o700, 0, ""),
        (0o755, None, ""),
        (0o2770, None, "gid"),
        (0o777, None, "everybody"),
        pytest.param(0o700, 65534, "uid 65534", marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root")),
    ],
)
def test_an_agents_folder_that_another_user_may_write_to_is_said(
    tmp_path: Path, mode: int, uid: int | None, others: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a head node where the agent has no separate folder: that is the controller's."""
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    if uid:
        os.chown(folder, uid, -1)
    assert others_may_write(folder).startswith(others)
    assert state_dir(folder).level is (SelfcheckLevel.WARNING if others else SelfcheckLevel.OK)
    os.close(only_agent(folder))
    assert ("event=state_dir_shared" in caplog.text) is bool(others)
    assert others_may_write(tmp_path / "missing") == ""


@pytest.mark.parametrize(
    ("opened", "uid", "said"),
    [
        ("", 0, ""),
        ("agent.toml", 0, "agent.toml may be written to by everybody"),
        (".", 0, "may be written to by everybody"),
        pytest.param("", 65534, "agent.toml may be written to by uid 65534", marks=needs_root),
    ],
)
def test_settings_of_root_that_others_may_change_are_told(tmp_path: Path, opened: str, uid: int, said: str) -> None:
    file = tmp_path / "agent.toml"
    file.touch(mode=0o644)
    if opened:
        (tmp_path / opened).chmod(0o666 if opened == file.name else 0o777)
    if uid:
        os.chown(file, uid, -1)
    line = settings(file)
    assert line.level is (SelfcheckLevel.WARNING if said else SelfcheckLevel.OK)
    assert said in line.text


@needs_root
def test_a_token_that_is_another_users_is_told(tmp_path: Path) -> None:
    file = tmp_path / "agent.token"
    file.write_text("secret")
    file.chmod(0o600)
    config = AgentConfig(node="n1", controllers=("http://127.0.0.1:1",), token_file=file)
    assert token(config).level is SelfcheckLevel.OK
    os.chown(file, 65534, -1)
    line = token(config)
    assert (line.level, "belongs to uid 65534" in line.text) == (SelfcheckLevel.WARNING, True)
    assert "secret" not in line.text


def test_the_agents_lock_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "agent.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"agent\.lock cannot be opened"):
        only_agent(tmp_path)
    assert not (tmp_path / "elsewhere").exists()
