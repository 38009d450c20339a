"""The last lines of a job's output: read as its user, bounded, and only the lines that name a cause are reported."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.node.readers import ReaderPool
from holdfast.agent.orders import output
from holdfast.agent.orders.orders import OrderResult, ReceivedOrder
from holdfast.agent.orders.output import path_of, read_output
from holdfast.model.agents.answers import output_read
from holdfast.model.errors import Rejected
from holdfast.model.jobs.job_ends import Sign
from holdfast_checks.probes.child import Children

NOBODY = 65534


def _read(path: Path | str, **changed: Any) -> OrderResult:
    args = {"job_id": 7, "uid": os.geteuid(), "path": str(path), **changed}
    raw = {"id": "o1", "verb": "read_job_output", "args": args, "incident": "", "expires_s": 9.0}
    return read_output("host1.cluster")(ReceivedOrder.from_wire({**raw, "boot_id": "b", "instance_id": "i"}, 0.0))


def test_the_lines_that_name_a_cause_are_told_and_no_others(tmp_path: Path) -> None:
    out = tmp_path / "slurm-7.out"
    out.write_text("password=1234\nstep 1\nKeyError: 'loss'\n")
    done = _read(tmp_path / "slurm-%j.out")
    assert done.ok, done.summary
    told = output_read(done.detail)
    assert told is not None
    assert [(c.sign, c.line) for c in told] == [(Sign.EXCEPTION, "KeyError: 'loss'")]
    assert "1234" not in str(done.detail)


def test_only_the_end_of_a_large_file_is_read(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("MemoryError\n" + "step\n" * 100_000 + "KeyError: 'x'\n")
    assert [c["sign"] for c in _read(out).detail["clues"]] == ["exception"]


@pytest.mark.slow
def test_what_an_earlier_run_had_written_is_not_read(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("OSError: [Errno 28] No space left on device\n")
    before = _read(out).detail["size_bytes"]
    with out.open("a") as again:
        again.write("run 1 trains\n")
    assert _read(out, from_byte=before).detail["clues"] == []
    assert [c["sign"] for c in _read(out).detail["clues"]] == ["disk"]


@pytest.mark.slow
def test_a_file_that_was_begun_again_is_read_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("MemoryError\n")
    assert [c["sign"] for c in _read(out, from_byte=5000).detail["clues"]] == ["memory"]
    assert [c["sign"] for c in _read(out, from_byte="x").detail["clues"]] == ["memory"]


def test_it_says_how_long_nothing_was_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("MemoryError\n")
    os.utime(out, (time.time() - 100, time.time() - 100))
    assert 99 < _read(out).detail["quiet_s"] < 130


@pytest.mark.slow
def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, "/dev/null", tmp_path / "missing"):
        done = _read(path)
        assert not done.ok
        assert output_read(done.detail) is None


@pytest.mark.slow
def test_an_output_on_a_file_system_that_does_not_answer_ends_the_order_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader is in state D, holds its end of the pipe, and SIGKILL has no effect."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    monkeypatch.setattr(output, "_READ", "open(sys.argv[1]).read()")
    monkeypatch.setattr(output, "_MARGIN_S", 0.5)
    children = Children(kill=lambda pid: None)
    verb = read_output("host1", ReaderPool(children))
    args = {"job_id": 7, "uid": os.geteuid(), "path": str(gate), "deadline_s": 1}
    began_s = time.monotonic()
    for _ in range(3):
        done = verb(ReceivedOrder("o1", "read_job_output", args, "", "", began_s + 9.0))
        assert (done.ok, output_read(done.detail)) == (False, None)
        assert "cannot be ended; nothing more is read for this user" in done.summary
    assert time.monotonic() - began_s < 4.0
    (left,) = children.left_behind()
    gate.write_text("it answers")
    while children.left_behind():
        time.sleep(0.02)
    assert not Path(f"/proc/{left}").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_it_is_read_with_the_users_rights(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("KeyError: 'x'\n")
    secret.chmod(0o600)
    done = _read(secret, uid=NOBODY)
    assert not done.ok
    assert "ermission" in done.summary


@pytest.mark.parametrize(
    "args", [{"path": ""}, {"path": "out"}, {"path": "/a\nb"}, {"uid": None}, {"uid": True}, {"job_id": 0}]
)
def test_nonsense_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        _read(args.pop("path", "/tmp/x"), **args)


def test_slurms_patterns_are_filled_in_with_the_machines_own_host_name() -> None:
    args = {"job_id": 7, "array_job_id": 5, "array_task_id": 3, "name": "train", "user": "ada", "restarts": 1}
    assert path_of({**args, "path": "/o/%A_%a/%x.%u.%N.%r"}, "host1.cluster") == "/o/5_3/train.ada.host1.1"
    assert path_of({"job_id": 7, "path": "/o/%A_%r"}, "host1") == "/o/7_0"
