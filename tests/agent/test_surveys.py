"""Surveys of checkpoint directories by the agent: when, how many at a time, and what a user can do to them."""

from __future__ import annotations

import json
import os
import pwd
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.jobs.questions import Answers
from holdfast.agent.node.readers import ReaderPool
from holdfast.agent.orders import surveys as surveys_module
from holdfast.agent.orders.orders import ReceivedOrder
from holdfast.agent.orders.survey_plan import MOST, SurveyPlan, SurveyTarget
from holdfast.agent.orders.surveys import CheckpointSurveys, SurveyedDirectory, look
from holdfast.agent.orders.surveys import parse as parse_answer
from holdfast.agent.sending.outbox import OutboxItem
from holdfast.agent.sending.statements import Malformed, parse
from holdfast.model.errors import Rejected
from holdfast.model.jobs.surveys import SURVEYED, CheckpointSurvey, Written, dump_written, survey_of
from holdfast_checks.probes.child import Children

UID = os.geteuid()


def raw(
    job_id: int = 7, *, directory: str = "/ckpt", every_s: object = 600.0, restarts: int = 0, uid: int = UID
) -> dict[str, Any]:
    return {"job_id": job_id, "uid": uid, "restarts": restarts, "dir": directory, "every_s": every_s}


def target(job_id: int = 7, directory: str = "/ckpt", restarts: int = 0, uid: int = UID) -> SurveyTarget:
    return SurveyTarget(job_id, uid, restarts, directory)


def _least(low: float, _high: float) -> float:
    return low


# The plan


def test_a_directory_is_read_soon_then_now_and_then() -> None:
    plan = SurveyPlan(lambda low, high: (low + high) / 2)
    plan.told([raw()], 0.0)
    assert plan.due(0.0) == []
    assert plan.due(1.0) == [target()]
    assert plan.due(2.0) == [], "it is being read"
    plan.read(target(), 0.2, 2.0, hung=False)
    plan.told([raw()], 300.0)
    assert plan.due(601.0) == []
    assert plan.due(602.0) == [target()]


def test_the_next_run_is_read_at_once_and_an_ended_job_no_more() -> None:
    plan = SurveyPlan(_least)
    plan.told([raw()], 0.0)
    plan.due(0.0)
    plan.read(target(), 0.1, 0.1, hung=False)
    plan.told([raw(restarts=1)], 5.0)
    assert plan.due(5.0) == [target(restarts=1)]
    plan.told([], 6.0)
    assert plan.next_s() is None


def test_a_shorter_pause_counts_at_once() -> None:
    plan = SurveyPlan(_least)
    plan.told([raw()], 0.0)
    plan.due(0.0)
    plan.read(target(), 0.1, 0.1, hung=False)
    plan.told([raw(every_s=60.0)], 10.0)
    assert plan.due(39.0) == []
    assert plan.due(40.0) == [target()]


def test_a_slow_file_system_is_read_ever_more_seldom() -> None:
    plan = SurveyPlan(lambda low, high: (low + high) / 2)
    plan.told([raw()], 0.0)
    now_s, pauses = 1.0, []
    for _ in range(9):
        assert plan.due(now_s) == [target()]
        plan.read(target(), 4.0, now_s, hung=False)
        next_s = plan.next_s()
        assert next_s is not None
        pauses.append(next_s - now_s)
        now_s = next_s
    assert pauses == [600.0 * 2**n for n in (1, 2, 3, 4, 5, 6, 6, 6, 6)]
    plan.due(now_s)
    plan.read(target(), 0.1, now_s, hung=False)
    assert plan.next_s() == now_s + 600.0


def test_a_user_whose_directory_hung_is_left_alone_by_every_way() -> None:
    """A user with a hanging file system has any number of names in it, and any number of jobs."""
    plan = SurveyPlan(_least)
    plan.told([raw(every_s=1.0)], 0.0)
    plan.due(0.0)
    plan.read(target(), 25.0, 25.0, hung=True)
    mine = [raw(8, every_s=1.0), raw(9, directory="/hangs/too", every_s=1.0)]
    plan.told([*mine, raw(10, every_s=1.0, uid=UID + 1)], 26.0)
    assert plan.due(500.0) == [target(10, uid=UID + 1)], "the job of which it was known is over; its user's others wait"
    assert not plan.may_read(target(9, "/hangs/too"), 500.0)
    assert plan.may_read(target(11, uid=UID + 1), 500.0)
    plan.read(target(10, uid=UID + 1), 0.1, 501.0, hung=False)
    assert plan.due(624.0) == [target(10, uid=UID + 1)]
    assert plan.due(625.0) == [target(8), target(9, "/hangs/too")]


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        "x",
        {"job_id": 7},
        [7],
        [raw(every_s=0)],
        [raw(every_s=1e9)],
        [raw(every_s="600")],
        [raw(every_s=True)],
        [raw(0)],
        [raw(uid=-1)],
        [raw(uid=2**32)],
        [raw(directory="ckpt")],
        [raw(directory="/ck\npt")],
        [raw(directory="/" + "x" * 5000)],
        [raw(restarts=-1)],
        [raw() | {"job_id": 10**30}],
    ],
)
def test_what_is_no_target_is_none(nonsense: object) -> None:
    plan = SurveyPlan(_least)
    plan.told(nonsense, 0.0)
    assert plan.next_s() is None


def test_the_number_of_targets_is_bounded() -> None:
    plan = SurveyPlan(_least)
    plan.told([raw(n + 1) for n in range(500)], 0.0)
    assert len(plan.due(1.0)) == MOST


# The threads


class Looks:
    """Directories that answer on the test's signal."""

    def __init__(self) -> None:
        self.began: list[tuple[SurveyTarget, float]] = []
        self.answer = threading.Event()
        self.reported: list[OutboxItem] = []

    def __call__(self, target: SurveyTarget, within_s: float) -> SurveyedDirectory:
        self.began.append((target, within_s))
        self.answer.wait(20.0)
        return SurveyedDirectory(known=True, complete=(Written(60, 3.2),), layout="dcp")


def eventually(true: Callable[[], bool], within_s: float = 20.0) -> None:
    end_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def order(**args: object) -> ReceivedOrder:
    return ReceivedOrder("o1", "survey_checkpoints", args, "", "", time.monotonic() + 60)


def test_an_order_is_done_at_once_and_its_answer_is_a_statement() -> None:
    looks = Looks()
    surveys = CheckpointSurveys(looks.reported.append, looks)
    done = surveys.handler()(order(job_id=7, uid=1000, restarts=2, dir="/ckpt"))
    assert done.ok
    assert looks.reported == []
    looks.answer.set()
    eventually(lambda: len(looks.reported) == 1)
    (item,) = looks.reported
    assert item.key == "survey/7/2"
    assert item.body == {
        "kind": "statement",
        "statement": SURVEYED,
        "job_id": 7,
        "uid": 1000,
        "restarts": 2,
        "step": 60,
        "path": "/ckpt",
        "detail": {"known": True, "layout": "dcp", "complete": "60:3.2", "problem": ""},
    }
    assert looks.began == [(target(restarts=2, uid=1000), 5.0)]


def test_a_users_directory_that_hangs_holds_up_no_other_user() -> None:
    looks = Looks()
    surveys = CheckpointSurveys(looks.reported.append, looks)
    ask = surveys.handler()
    for job_id in (7, 8, 9):
        assert ask(order(job_id=job_id, uid=1000, dir="/hangs")).ok
    assert ask(order(job_id=10, uid=1001, dir="/other")).ok
    assert [t.job_id for t, _ in looks.began] == [7, 10], "one at a time for each user"
    ask(order(job_id=11, uid=1002, dir="/other"))
    ask(order(job_id=12, uid=1003, dir="/other"))
    assert not ask(order(job_id=13, uid=1004, dir="/other")).ok, "four in all"
    looks.answer.set()
    eventually(lambda: [t.job_id for t, _ in looks.began][-1:] == [9] and len(looks.reported) == 5)


def test_an_order_without_a_directory_is_refused() -> None:
    with pytest.raises(Rejected):
        CheckpointSurveys(lambda _item: None, Looks()).handler()(order(job_id=7, uid=1000))


@pytest.mark.slow
def test_named_directories_are_read_in_their_turns() -> None:
    looks = Looks()
    looks.answer.set()
    surveys = CheckpointSurveys(looks.reported.append, looks)
    surveys.start()
    surveys.told([raw(every_s=1.0)])
    eventually(lambda: len(looks.reported) >= 2)
    surveys.stop()
    assert {t for t, _ in looks.began} == {target()}


def test_no_job_can_speak_as_the_agent() -> None:
    with pytest.raises(Malformed):
        parse(json.dumps({"kind": SURVEYED, "job_id": 7, "path": "/ckpt", "step": 60}).encode())


# What the child says


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"[" * 100_000,
        b'{"known": 1}',
        b'{"known": true, "complete": ' + b" " * (1 << 17) + b"[]}",
    ],
)
def test_no_answer_is_no_knowledge(answer: bytes) -> None:
    assert not parse_answer(answer).known


def test_steps_out_of_all_bounds_are_left_out() -> None:
    complete = [[10**30, 1.0], [-1, 1.0], [True, 1.0], "x", [5], [60, "x"], [50, True], [40, 2.5]]
    seen = [parse_answer(json.dumps({"known": True, "complete": [each]}).encode()).complete for each in complete]
    assert seen == [(), (), (), (), (), (Written(60, None),), (Written(50, None),), (Written(40, 2.5),)]


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("60:3.2 40:43.1", (Written(60, 3.2), Written(40, 43.1))),
        ("-:3.2", (Written(None, 3.2),)),
        ("60:-", (Written(60, None),)),
        ("60:-2.5", (Written(60, -2.5),)),
        ("60:nan 60:inf 60:1e300 60:x", (Written(60, None),) * 4),
        (f"{10**30}:1 {2**63}:1 -5:1 ٣:1", (Written(None, 1.0),) * 4),
        ("60", (Written(60, None),)),
        ("1:1 " * 1000, (Written(1, 1.0),) * 8),
        ("", ()),
        (7, ()),
        (None, ()),
    ],
)
def test_the_controller_believes_nothing_but_bounded_numbers(text: object, complete: tuple[Written, ...]) -> None:
    survey = survey_of("/ckpt", 0, {"known": True, "complete": text})
    assert survey == CheckpointSurvey("/ckpt", 0, known=True, complete=complete)


def test_what_is_dumped_is_read_again() -> None:
    complete = (Written(60, 3.2), Written(None, None), Written(2**63 - 1, -0.5))
    assert survey_of("/", 1, {"complete": dump_written(complete)}).complete == complete


# A real directory, read by the real child


def _archive(path: Path, written_s: float = 0.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as whole:
        whole.writestr("archive/data.pkl", b"x" * 100)
    at_s = time.time() - written_s
    os.utime(path, (at_s, at_s))


def _look(folder: Path, within_s: float = 10.0) -> SurveyedDirectory:
    return look(SurveyTarget(7, UID, 0, str(folder)), within_s)


@pytest.mark.slow
def test_the_newest_three_with_their_ages(tmp_path: Path) -> None:
    for step in (20, 40, 60, 80):
        _archive(tmp_path / f"ckpt_{step}.pt", 100 - step)
    (tmp_path / "ckpt_100.pt").write_bytes(b"PK\x03\x04cut short")
    seen = _look(tmp_path)
    assert (seen.known, seen.layout, seen.problem) == (True, "torch", "")
    assert [w.step for w in seen.complete] == [80, 60, 40]
    assert [round(w.age_s or 0.0, -1) for w in seen.complete] == [20, 40, 60]


@pytest.mark.slow
def test_none_unreadable_and_missing_are_three_things(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("hello")
    assert _look(tmp_path) == SurveyedDirectory(known=True)
    missing = _look(tmp_path / "there-is-none")
    assert not missing.known
    assert "no such directory" in missing.problem
    _archive(tmp_path / "ckpt_20.pt")
    (tmp_path / "step_40").mkdir()
    _archive(tmp_path / "step_40" / "model.pt")
    _archive(tmp_path / "step_40" / "optim.pt")
    unclear = _look(tmp_path)
    assert (unclear.known, [w.step for w in unclear.complete]) == (False, [20])
    assert "step_40" in unclear.problem
    nested = tmp_path / "nested"
    _archive(nested / "version_0" / "checkpoints" / "epoch=0-step=20.ckpt")
    assert not _look(nested).known


@pytest.mark.slow
def test_from_what_is_not_understood_nothing_is_concluded(tmp_path: Path) -> None:
    """A job that advances was held: its saves had an unknown name or form, and counted as nothing saved."""
    (tmp_path / "state.xyz").write_bytes(b"x" * 1000)
    unknown = _look(tmp_path)
    assert (unknown.known, unknown.problem) == (False, "state.xyz: a file of which nothing is known")
    for step in (10, 20):
        _archive(tmp_path / f"ckpt_{step}.tar", 100 - step)
    assert [w.step for w in _look(tmp_path).complete] == [20, 10]
    _archive(tmp_path / "last.pt", 50)
    rolling = _look(tmp_path)
    assert [w.step for w in rolling.complete] == [None, 20, 10]
    assert (rolling.known, rolling.problem) == (False, "state.xyz: a file of which nothing is known"), (
        "it is newer, and as large"
    )
    (tmp_path / "state.xyz").unlink()
    assert _look(tmp_path).known
    (tmp_path / "step_30.npz").write_bytes(b"x" * 1000)
    assert not _look(tmp_path).known
    (tmp_path / "step_30.npz").unlink()
    (tmp_path / "ckpt_30.pt").symlink_to("/elsewhere/ckpt_30.pt")
    assert not _look(tmp_path).known


@pytest.mark.slow
def test_from_an_older_runs_higher_number_nothing_is_concluded(tmp_path: Path) -> None:
    """A job that advanced in the directory of an older run was held: its steps were lower than what was there."""
    _archive(tmp_path / "step_100000" / "state.pt", 864_000)
    assert _look(tmp_path).known
    _archive(tmp_path / "step_80" / "state.pt", 60)
    seen = _look(tmp_path)
    assert not seen.known
    assert "step_80 may be newer than step_100000" in seen.problem


@pytest.mark.slow
def test_a_large_metadata_file_is_no_torn_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step_10").mkdir()
    (tmp_path / "step_10" / ".metadata").write_bytes(b"\x80\x04" + bytes(17 << 20) + b".")
    seen = _look(tmp_path)
    assert not seen.known
    assert "is larger than" in seen.problem


@pytest.mark.slow
def test_a_hostile_directory_costs_a_bounded_time_and_says_nothing(tmp_path: Path) -> None:
    began_s = time.monotonic()
    many = tmp_path / "many"
    many.mkdir()
    for number in range(25_000):
        (many / f"ckpt_{number}").touch()
    assert not _look(many).known
    strange = tmp_path / "strange"
    strange.mkdir()
    os.mkfifo(strange / "ckpt_20.pt")
    (strange / "checkpoint-40").symlink_to("/etc")
    (strange / "ckpt_60.pt").symlink_to("/dev/zero")
    _archive(strange / f"ckpt_{10**30}.pt")
    _archive(strange / "ckpt_-5.pt")
    _archive(strange / "ckpt_80\n99.pt")
    _archive(strange / "ckpt_10.pt")
    seen = _look(strange)
    assert [w.step for w in seen.complete] == [10]
    assert "\n" not in seen.problem
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert not _look(loop).known
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    if UID:
        assert not _look(closed).known
    assert time.monotonic() - began_s < 60.0


@pytest.mark.slow
@pytest.mark.skipif(UID != 0, reason="only root becomes another user")
def test_what_the_user_may_not_read_is_not_read(tmp_path: Path) -> None:
    _archive(tmp_path / "private" / "ckpt_20.pt")
    (tmp_path / "private").chmod(0o700)
    tmp_path.chmod(0o755)
    nobody = pwd.getpwnam("nobody").pw_uid
    assert not look(SurveyTarget(7, nobody, 0, str(tmp_path / "private")), 10.0).known


@pytest.mark.slow
def test_a_reader_that_cannot_be_ended_is_the_users_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    monkeypatch.setattr(surveys_module, "_LOOK", "open(sys.argv[1]).read()")
    monkeypatch.setattr(surveys_module, "_MARGIN_S", 0.5)
    children = Children(kill=lambda pid: None)
    readers = ReaderPool(children)
    for name in (gate, tmp_path / "another-name"):
        seen = look(SurveyTarget(7, UID, 0, str(name)), 0.5, readers)
        assert not seen.known
        assert "cannot be ended; nothing more is read for this user" in seen.problem
    assert len(children.left_behind()) == 1
    answers = Answers(readers=readers)
    for _ in range(8):
        assert "cannot be ended; nothing more is read" in json.loads(answers.latest(str(gate), UID, 1.0))["error"]
    assert len(children.left_behind()) == 1, "a question of that user starts none either"
    gate.write_text("it answers")
    eventually(lambda: not children.left_behind())


@pytest.mark.slow
def test_the_wait_for_another_read_of_the_user_is_no_hung_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a fault a job's output is read at the same time: its directory must answer at once."""
    monkeypatch.setattr(surveys_module, "ORDERED_WITHIN_S", 4.0)
    readers, reported = ReaderPool(), list[OutboxItem]()
    surveys = CheckpointSurveys(reported.append, lambda wanted, within_s: look(wanted, within_s, readers))
    slow = threading.Thread(target=readers.run, args=(UID, "import time; time.sleep(5)", (), 20.0))
    slow.start()
    eventually(lambda: UID in readers._reading)
    ask = surveys.handler()
    assert ask(order(job_id=7, uid=UID, dir=str(tmp_path))).ok
    eventually(lambda: len(reported) == 1)
    slow.join()
    assert ask(order(job_id=7, uid=UID, dir=str(tmp_path))).ok
    eventually(lambda: len(reported) == 2)


@pytest.mark.slow
def test_a_user_without_an_account_is_not_read(tmp_path: Path) -> None:
    assert not look(SurveyTarget(7, 3_999_999_999, 0, str(tmp_path)), 10.0).known
