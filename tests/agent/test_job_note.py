"""A note for a job's owner: written as that user, alongside the output, once, and never where a trap is set."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.node.readers import ReaderPool
from holdfast.agent.orders import job_note
from holdfast.agent.orders.job_note import leave_job_note
from holdfast.agent.orders.orders import OrderResult, Orders, ReceivedOrder
from holdfast.agent.sending.client import ControllerClient, Controllers
from holdfast.agent.sending.memory import AgentMemory
from holdfast.agent.sending.outbox import OutboxItem
from holdfast.agent.sending.sender import SenderIdentity
from holdfast.model.actions.action import Verb
from holdfast.model.errors import Rejected
from holdfast_checks.probes.child import Children

NOBODY = 65534
MARK = "job 7, run 0, incident a1"
TEXT = f"Holdfast: {MARK}\nrun 0 was stopped by node n1"

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user"), pytest.mark.slow]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of the user's, which root reaches it through too."""
    for each in (tmp_path, *tmp_path.parents):
        if each.stat().st_uid == os.geteuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o711)
    mine = tmp_path / "mine"
    mine.mkdir()
    os.chown(mine, NOBODY, NOBODY)
    return mine


def order(path: Path | str, **changed: Any) -> ReceivedOrder:
    args = {"job_id": 7, "uid": NOBODY, "path": str(path), "mark": MARK, "text": TEXT, **changed}
    return ReceivedOrder("o1", "leave_job_note", args, "", "", time.monotonic() + 60)


def write(path: Path | str, **changed: Any) -> OrderResult:
    return leave_job_note("host1.cluster")(order(path, **changed))


def test_the_note_is_the_users_file_and_each_recovery_is_in_it_once(folder: Path) -> None:
    first, again = write(folder / "slurm-%j.out"), write(folder / "slurm-%j.out")
    assert [(d.ok, d.detail["written"]) for d in (first, again)] == [(True, True), (True, False)]
    second = f"Holdfast: {MARK.replace('run 0', 'run 1')}"
    assert write(folder / "x", mark=second.removeprefix("Holdfast: "), text=second).detail["written"]
    note = folder / "holdfast-7.txt"
    assert first.detail["path"] == str(note)
    assert note.read_text() == f"{TEXT}\n\n{second}\n\n"
    seen = note.stat()
    assert (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)) == (NOBODY, NOBODY, 0o600)


def test_an_arrays_element_has_its_own_file(folder: Path) -> None:
    write(folder / "%A_%a.out", array_job_id=5, array_task_id=0)
    assert [each.name for each in folder.iterdir()] == ["holdfast-5_0.txt"]


def _link(note: Path, aside: Path) -> None:
    note.symlink_to(aside)


def _dangling(note: Path, aside: Path) -> None:
    note.symlink_to(aside.with_name("not-there"))


def _hard_link(note: Path, aside: Path) -> None:
    note.hardlink_to(aside)


def _fifo(note: Path, _aside: Path) -> None:
    os.mkfifo(note)
    os.chown(note, NOBODY, NOBODY)


def _directory(note: Path, _aside: Path) -> None:
    note.mkdir()


def _another_users(note: Path, _aside: Path) -> None:
    note.write_text("theirs")
    note.chmod(0o666)


def _full(note: Path, _aside: Path) -> None:
    note.write_bytes(b"x" * (64 << 10))
    os.chown(note, NOBODY, NOBODY)


def _read_only(note: Path, _aside: Path) -> None:
    note.write_text("mine")
    os.chown(note, NOBODY, NOBODY)
    note.chmod(0o400)


@pytest.mark.parametrize(
    "trap",
    [_link, _dangling, _hard_link, _fifo, _directory, _another_users, _full, _read_only],
    ids=lambda t: t.__name__,
)
def test_nothing_is_written_to_what_is_no_file_of_the_users_alone(
    folder: Path, trap: Callable[[Path, Path], None]
) -> None:
    """Links lead to a file that the user may write to: even that one is not written."""
    aside = folder / "aside"
    aside.write_text("as it was")
    os.chown(aside, NOBODY, NOBODY)
    note = folder / "holdfast-7.txt"
    trap(note, aside)
    before = {each.name: each.lstat().st_size for each in folder.iterdir()}
    done = write(folder / "out")
    assert not done.ok, done
    assert {each.name: each.lstat().st_size for each in folder.iterdir()} == before
    assert aside.read_text() == "as it was"


def test_it_has_no_more_rights_than_the_user(tmp_path: Path, folder: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o755)
    done = write(closed / "out")
    assert not done.ok
    assert "ermission" in done.summary
    assert list(closed.iterdir()) == []


def test_the_users_link_to_a_folder_of_theirs_is_followed_and_to_another_one_is_refused(
    tmp_path: Path, folder: Path
) -> None:
    """Homes are often links. What is behind one is opened with the user's rights."""
    there = folder / "there"
    there.mkdir()
    os.chown(there, NOBODY, NOBODY)
    (folder / "link").symlink_to(there)
    (folder / "trap").symlink_to("/etc")
    assert write(folder / "link" / "out").ok
    assert (there / "holdfast-7.txt").exists()
    assert not write(folder / "trap" / "out").ok
    assert not Path("/etc/holdfast-7.txt").exists()


def test_a_full_disk_leaves_no_part_and_a_missing_folder_is_no_error_of_the_agents(folder: Path) -> None:
    done = write(folder / "missing" / "out")
    assert not done.ok
    assert "No such file" in done.summary


@pytest.mark.parametrize(
    "changed",
    [
        {"uid": 0},
        {"uid": None},
        {"uid": True},
        {"path": "/dev/null"},
        {"path": "/proc/1/fd/x"},
        {"path": "/tmp/../dev/shm/out"},
        {"path": "relative"},
        {"text": ""},
        {"text": "x" * 2001},
        {"text": f"{MARK}\x1b[31m"},
        {"text": "without the mark"},
        {"mark": "two\nlines", "text": "two\nlines"},
        {"job_id": 0},
    ],
)
def test_an_order_that_is_none_is_refused(folder: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        write(changed.pop("path", folder / "out"), **changed)
    assert list(folder.iterdir()) == []


def test_a_file_system_that_does_not_answer_ends_the_order_in_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer is in state D, and SIGKILL has no effect: it is left behind, and nothing more is done for this user."""
    gate = folder / "gate"
    os.mkfifo(gate)
    monkeypatch.setattr(job_note, "_WRITE", "open(sys.argv[3] + '/gate').read()")
    monkeypatch.setattr(job_note, "_MARGIN_S", 0.5)
    children = Children(kill=lambda pid: None)
    verb, began_s = leave_job_note("host1", ReaderPool(children)), time.monotonic()
    for _ in range(3):
        done = verb(order(folder / "out", deadline_s=1))
        assert not done.ok
        assert "cannot be ended; nothing more is read for this user" in done.summary
    assert time.monotonic() - began_s < 4.0
    (left,) = children.left_behind()
    gate.write_text("it answers")
    while children.left_behind():
        time.sleep(0.02)
    assert not Path(f"/proc/{left}").exists()


def test_no_other_user_reads_the_text_from_the_list_of_processes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process's arguments are everyone's, its environment is not."""
    said = "import time\nopen(sys.argv[3] + '/args', 'wb').write(open('/proc/self/cmdline', 'rb').read())\n"
    monkeypatch.setattr(job_note, "_WRITE", said)
    write(folder / "out")
    assert MARK.encode() not in (folder / "args").read_bytes()


def test_writers_that_their_user_stops_keep_no_order_of_another_user_waiting(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may stop what runs with their uid. The controller has three such orders of a user at a node, an agent four places."""
    stopped = "become_user(int(sys.argv[1]), float(sys.argv[2]))\nos.kill(os.getpid(), 19)"
    monkeypatch.setattr(job_note, "_WRITE", stopped)
    monkeypatch.setattr(job_note, "_MARGIN_S", 1.0)
    done: dict[str, float] = {}
    began_s = time.monotonic()

    def report(item: OutboxItem) -> None:
        done[item.body["order_id"]] = time.monotonic() - began_s

    def save(_order: ReceivedOrder) -> OrderResult:
        return OrderResult(True, "asked")

    handlers = {Verb.JOB_NOTE.value: leave_job_note("host1"), Verb.SAVE.value: save}
    nowhere = ControllerClient(Controllers(("http://127.0.0.1:1",)), None, None)
    memory = AgentMemory(tmp_path / "memory")
    orders = Orders(nowhere, memory, SenderIdentity("n1", "i-1", "b1"), handlers, report)
    for number in range(3):
        args = dict(order(folder / "out", job_id=number + 1, deadline_s=5.0).args)
        orders.take({"id": f"note{number}", "verb": Verb.JOB_NOTE.value, "args": args, "expires_s": 60})
    time.sleep(0.5)
    orders.take({"id": "save", "verb": Verb.SAVE.value, "args": {}, "expires_s": 60})
    while len(done) < 4 and time.monotonic() - began_s < 30:
        time.sleep(0.02)
    assert done["save"] < min(done[f"note{n}"] for n in range(3))
    assert max(done.values()) < 12.0, "deadline and margin are for all of them together"
    assert list(folder.iterdir()) == []
