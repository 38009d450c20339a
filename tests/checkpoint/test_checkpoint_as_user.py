"""Checking with another user's rights: the child has become that user before it opens anything."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast_checkpoint import CheckpointError, Limits, Unreadable, Verdict, as_user
from holdfast_checkpoint.as_user import UserIdentity, identity_of, survey_as, verify_as
from holdfast_checkpoint.base.model import Survey
from holdfast_checkpoint.wire import dump_checkpoint, dump_survey, parse_checkpoint, parse_survey

pytestmark = pytest.mark.slow

Build = Any
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
NOBODY = UserIdentity(54321, 54321, (54322,))
ME = UserIdentity(os.geteuid(), os.getegid(), tuple(os.getgroups()))


def give_away(root: Path, uid: int = 54321) -> None:
    for path in [root, *root.rglob("*")]:
        os.chown(path, uid, uid, follow_symlinks=False)


def test_the_same_answer_as_in_process(build: Build) -> None:
    path = build.holdfast(10, 20)
    found = survey_as(str(build.root), ME, to_the_end=True)
    assert [c.step for c in found.candidates] == [20, 10]
    assert verify_as(str(path), ME).verdict is Verdict.COMPLETE
    with pytest.raises(FileNotFoundError):
        verify_as(str(build.root / "step-99"), ME)


@as_root
def test_a_users_private_directory_is_judged_with_the_users_rights(build: Build) -> None:
    build.holdfast(10)
    give_away(build.root)
    build.root.chmod(0o700)
    found = survey_as(str(build.root), NOBODY)
    assert found.latest is not None
    assert found.latest.step == 10


@as_root
def test_what_the_user_may_not_read_is_not_read(build: Build) -> None:
    build.holdfast(10)
    give_away(build.root, 0)
    build.root.chmod(0o700)
    with pytest.raises(Unreadable, match="Permission denied"):
        survey_as(str(build.root), NOBODY)


@as_root
def test_a_supplementary_group_counts(build: Build) -> None:
    build.dcp("step-10")
    give_away(build.root)
    os.chown(build.root, 0, 54322)
    build.root.chmod(0o750)
    assert survey_as(str(build.root), NOBODY).latest is not None
    with pytest.raises(Unreadable):
        survey_as(str(build.root), UserIdentity(54321, 54321))


@as_root
def test_nothing_of_roots_rights_is_left_in_the_child(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    start = (
        "import sys; sys.path.insert(0, sys.argv[1]); from holdfast_checkpoint import child; import os, json\n"
        "child.bound(5.0); child.become(54321, 54321, [54322])\n"
        "caps = [l.split()[1] for l in open('/proc/self/status') if l.startswith(('CapPrm', 'CapEff'))]\n"
        "fds = sorted(int(f) for f in os.listdir('/proc/self/fd'))\n"
        "try: os.fork(); forked = True\n"
        "except OSError: forked = False\n"
        "print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), caps, len(fds) <= 4, forked, dict(os.environ)]))"
    )
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setattr(as_user, "_START", start)
    answer = json.loads(as_user._run_child(b"", 10.0, 54321))
    none = "0" * 16
    assert answer[:6] == [[54321] * 3, [54321] * 3, [54322], [none, none], True, False]
    assert "SECRET_TOKEN" not in answer[6]


def test_a_judge_that_hangs_is_ended_at_its_deadline(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_user, "_START", "import time; time.sleep(60)")
    monkeypatch.setattr(as_user, "_MARGIN_S", 0.1)
    began = time.monotonic()
    with pytest.raises(Unreadable, match="deadline"):
        survey_as(str(build.root), ME, limits=Limits(deadline_s=0.1))
    assert time.monotonic() - began < 5.0


def test_a_judge_that_cannot_be_killed_is_left_behind_and_no_other_is_started_for_that_user(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file system answers no OPEN: it is in state D, holds its end of the pipe, and SIGKILL does nothing."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    monkeypatch.setattr(as_user, "_START", f"open({str(gate)!r}).read()")
    monkeypatch.setattr(as_user, "_MARGIN_S", 0.1)
    monkeypatch.setattr(as_user, "_REAP_S", 0.1)
    monkeypatch.setattr(as_user, "_kill", lambda child: None)
    began_s = time.monotonic()
    with pytest.raises(Unreadable, match="hangs in the kernel"):
        survey_as(str(build.root), ME, limits=Limits(deadline_s=0.5))
    left = as_user._LEFT[ME.uid]
    with pytest.raises(Unreadable, match=f"pid {left.pid}.*nothing more is read"):
        survey_as(str(build.root), ME, limits=Limits(deadline_s=0.5))
    assert time.monotonic() - began_s < 5.0
    assert as_user._LEFT[ME.uid] is left, "no second one"
    gate.write_text("now")
    assert left.wait(5.0) == 0
    monkeypatch.undo()
    assert survey_as(str(build.root), ME).directory == str(build.root)


@pytest.mark.parametrize(
    "answer", ["", "[]", "{", "{}", '{"candidates": [{}], "warnings": [], "directory": "/"}', "[" * 100_000]
)
def test_an_answer_that_was_made_up_is_refused(answer: str, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        as_user, "_START", f"import sys; sys.stdin.read(); print({answer[:10]!r} * {len(answer) > 10 or 1})"
    )
    if len(answer) < 200:
        monkeypatch.setattr(as_user, "_START", f"import sys; sys.stdin.read(); print({answer!r})")
    with pytest.raises(Unreadable):
        survey_as(str(build.root), ME)


def test_only_root_becomes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CheckpointError, match="only root"):
        survey_as("/", UserIdentity(1001, 1001))


def test_identities_come_from_the_user_database() -> None:
    assert identity_of(0).gid == 0
    with pytest.raises(CheckpointError, match="not in the user database"):
        identity_of(3_999_999_999)


def test_surveys_survive_the_wire(build: Build) -> None:
    build.holdfast(10)
    (build.dcp("step-20") / ".metadata").unlink()
    found = as_user.survey_as(str(build.root), ME, to_the_end=True)
    assert parse_survey(json.loads(json.dumps(dump_survey(found)))) == found
    assert isinstance(found, Survey)


@pytest.mark.parametrize(
    "change",
    [{"path": "/x\n"}, {"path": 3}, {"verdict": "fine"}, {"step": -1}, {"step": "1"}, {"bytes": 1 << 70},
     {"mtime": "2026-01-01"}, {"run": "j"}, {"layout": None}, {"reason": "\x1b[2J"}],
)  # fmt: skip
def test_a_made_up_checkpoint_is_refused(change: dict[str, object], build: Build) -> None:
    build.holdfast(10)
    found = survey_as(str(build.root), ME).latest
    assert found is not None
    with pytest.raises(ValueError, match=r".*"):
        parse_checkpoint({**dump_checkpoint(found), **change})
