"""`holdfast restore`: the backup replaces the store completely, with the daemons proved stopped; else nothing is changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.cli.app import run
from holdfast.controller.wakeup import Alone
from holdfast.model.book import Change
from holdfast.model.errors import ConfigError, Rejected
from holdfast.store import open_store
from holdfast.store.restore import restore
from support.small_disk import small_disk
from support.store_nouns import incident

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a store of one incident, and a backup of the time before it."""
    store = open_store(f"sqlite:///{tmp_path}/holdfast.db")
    store.commit(Change(incidents=(incident("old"),)), fence=0)
    store.backup(tmp_path / "backup.db")
    store.commit(Change(incidents=(incident("new"),)), fence=0)
    store.close()
    (tmp_path / "controller.toml").write_text(
        f'[store]\nurl = "sqlite:///{tmp_path}/holdfast.db"\n[run]\ndir = "{tmp_path}/run"\n'
    )
    return tmp_path


def known(path: Path) -> set[str]:
    store = open_store(f"sqlite:///{path}")
    try:
        return {i.id for i in store.incidents()}
    finally:
        store.close()


def put_back(site: Path, name: str = "backup.db") -> object:
    return restore(f"sqlite:///{site}/holdfast.db", site / name, AT)


def test_the_backup_takes_its_place_and_the_former_store_is_kept_whole(site: Path) -> None:
    (site / "holdfast.db").chmod(0o640)
    done = restore(f"sqlite:///{site}/holdfast.db", site / "backup.db", AT)
    assert known(site / "holdfast.db") == {"old"}
    assert (site / "holdfast.db").stat().st_mode & 0o777 == 0o640
    assert done.replaced == site / "holdfast.db.replaced-20260301T120000Z"
    assert known(done.replaced) == {"old", "new"}
    assert known(site / "backup.db") == {"old"}


def test_what_the_log_of_a_killed_daemon_holds_is_kept_too(site: Path) -> None:
    """As after kill -9: the log is next to the file."""
    live = sqlite3.connect(site / "holdfast.db")
    live.execute("INSERT INTO notes VALUES ('in', 'the log')")
    live.commit()
    for end in ("", "-wal"):
        shutil.copy(site / f"holdfast.db{end}", site / f"killed.db{end}")
    live.close()
    done = restore(f"sqlite:///{site}/killed.db", site / "backup.db", AT)
    assert done.replaced is not None
    with closing(sqlite3.connect(done.replaced)) as connection:
        assert connection.execute("SELECT value FROM notes WHERE key = 'in'").fetchall() == [("the log",)]
    assert known(site / "killed.db") == {"old"}


def test_without_a_store_the_backup_is_the_store(site: Path) -> None:
    (site / "holdfast.db").unlink()
    assert restore(f"sqlite:///{site}/holdfast.db", site / "backup.db", AT).replaced is None
    assert known(site / "holdfast.db") == {"old"}


def test_a_damaged_store_does_not_stand_in_the_way(site: Path) -> None:
    (site / "holdfast.db").write_bytes(b"no database" * 1000)
    put_back(site)
    assert known(site / "holdfast.db") == {"old"}
    assert (site / "holdfast.db.replaced-20260301T120000Z").read_bytes().startswith(b"no database")


def _damage(site: Path) -> None:
    data = bytearray((site / "backup.db").read_bytes())
    for page in range(4096, len(data), 4096):
        data[page : page + 64] = b"\xff" * 64
    (site / "backup.db").write_bytes(data)


def _newer(site: Path) -> None:
    with closing(sqlite3.connect(site / "backup.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()


def _foreign(site: Path) -> None:
    (site / "backup.db").unlink()
    with closing(sqlite3.connect(site / "backup.db")) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.commit()


def _text(site: Path) -> None:
    (site / "backup.db").write_text("no database at all" * 1000)


def _gone(site: Path) -> None:
    (site / "backup.db").unlink()


def _itself(site: Path) -> None:
    (site / "backup.db").unlink()
    (site / "backup.db").symlink_to(site / "holdfast.db")


@pytest.mark.parametrize("spoil", [_damage, _newer, _foreign, _text, _gone, _itself])
def test_what_is_no_backup_changes_nothing(site: Path, spoil: Callable[[Path], None]) -> None:
    spoil(site)
    before = sorted(p.name for p in site.iterdir())
    with pytest.raises((Rejected, ConfigError)):
        put_back(site)
    assert sorted(p.name for p in site.iterdir()) == before
    assert known(site / "holdfast.db") == {"old", "new"}


def test_while_any_process_has_the_store_open_nothing_is_changed(site: Path) -> None:
    """A process that does nothing with it at the moment, as the quorum service."""
    store = open_store(f"sqlite:///{site}/holdfast.db")
    store.ping()
    with pytest.raises(Rejected, match="systemctl stop"):
        put_back(site)
    assert {i.id for i in store.incidents()} == {"old", "new"}
    store.close()
    put_back(site)
    assert known(site / "holdfast.db") == {"old"}


def test_without_room_nothing_is_changed(tmp_path: Path, site: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        shutil.copy(site / "holdfast.db", disk.path / "holdfast.db")
        disk.fill()
        with pytest.raises(Rejected):
            restore(f"sqlite:///{disk.path}/holdfast.db", site / "backup.db", AT)
        assert sorted(p.name for p in disk.path.iterdir()) == ["filler", "holdfast.db"]
        disk.free()
        assert known(disk.path / "holdfast.db") == {"old", "new"}


def test_who_owns_the_folder_cannot_lead_root_to_another_file(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The draft is exchanged for a link while it is written: only the name is lost."""
    victim = site / "victim"
    victim.write_text("root's")
    victim.chmod(0o600)
    plain = os.fchmod

    def exchanged(descriptor: int, mode: int) -> None:
        draft = site / ".holdfast.db.restoring"
        draft.unlink()
        draft.symlink_to(victim)
        plain(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", exchanged)
    put_back(site)
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("root's", 0o600)


def test_postgresql_has_tools_of_its_own(site: Path) -> None:
    with pytest.raises(Rejected, match="pg_restore"):
        restore("postgresql://u@h/n", site / "backup.db", AT)


class TestVerb:
    @pytest.mark.parametrize("lock", ["controller/lock", "actor/lock"])
    def test_a_daemon_that_runs_is_not_disturbed(
        self, site: Path, lock: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        held = Alone(site / "run" / lock)
        assert run(["restore", str(site / "backup.db"), "-c", str(site / "controller.toml")]) == 2
        assert "another process of this kind runs here; stop it first" in capsys.readouterr().err
        assert known(site / "holdfast.db") == {"old", "new"}
        held.release()
        assert run(["restore", str(site / "backup.db"), "-c", str(site / "controller.toml")]) == 0
        assert known(site / "holdfast.db") == {"old"}

    def test_it_makes_no_lock_of_a_daemon_that_never_ran(self, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Root's file would keep the daemon's user out."""
        assert run(["restore", str(site / "backup.db"), "-c", str(site / "controller.toml")]) == 0
        assert not (site / "run").exists()
        out = capsys.readouterr().out
        assert "the store before is" in out
        assert "systemctl start" in out
