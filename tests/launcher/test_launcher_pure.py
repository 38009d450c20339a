"""The launcher's decisions, as tables: its place, its rendezvous, the environment of ranks, what their ends mean."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.launcher import main as command_line
from holdfast.launcher.environment import Start, rank_env, shared_port
from holdfast.launcher.finding import UNDECLARED_S, RendezvousRefused, Search, TooLong, Withdrawn
from holdfast.launcher.notices import notice_of_event
from holdfast.launcher.outcome import ExitReaction, ForcedEnd, at_once, by, group_code, may_restart, turn
from holdfast.launcher.place import LauncherPlace, WrongUse, first_host, place_from_env
from holdfast.launcher.room import GroupRendezvous, room_from_answer
from holdfast.launcher.slurm import comment_declares
from support.launching import ROOM

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
ENV_ROOM = GroupRendezvous("http://h:1", 0)
STEP = {"SLURM_JOB_ID": "73", "SLURM_ARRAY_TASK_ID": "2", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2"}


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ({}, LauncherPlace()),
        ({"HOLDFAST_GROUP": "3"}, LauncherPlace(group=3)),
        ({"SLURM_JOB_ID": "9", "SLURM_RESTART_COUNT": "2"}, LauncherPlace(9, 2)),
        ({"SLURM_JOB_ID": "9", "SLURM_NNODES": "4"}, LauncherPlace(9)),  # in the batch script: one launcher, one node
        ({"SLURM_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "0", "HOLDFAST_GROUP": "3"}, LauncherPlace(9, group=0, in_array=True)),
        (
            {**STEP, "SLURM_NODEID": "1", "SLURM_STEP_NODELIST": "n[2-3]", "SLURM_STEP_ID": "0"},
            LauncherPlace(73, 0, 2, True, 1, 2, "n2"),
        ),
    ],
)  # fmt: skip
def test_the_place(env: dict[str, str], place: LauncherPlace) -> None:
    assert place_from_env(env) == place


def test_two_launchers_on_a_node_are_one_too_many() -> None:
    with pytest.raises(WrongUse, match="srun started 8 launchers on 2 nodes"):
        place_from_env({**STEP, "SLURM_STEP_NUM_TASKS": "8"})


@pytest.mark.parametrize(
    ("node_list", "first"),
    [
        ("", None),
        ("n1", "n1"),
        ("n7,n2", "n7"),
        ("n[01-16,20]", "n01"),
        ("rack[2-3]n[5,7-9],login", "rack2n5"),
        ("a[3]-x", "a3-x"),
    ],
)
def test_the_first_host(node_list: str, first: str | None) -> None:
    assert first_host(node_list) == first


@pytest.mark.parametrize(
    ("changed", "room"),
    [
        ({}, GroupRendezvous(ROOM["url"], 2, "s3cret", sizes=(2, 4))),
        ({"sizes": None}, GroupRendezvous(ROOM["url"], 2, "s3cret", sizes=(2, 4))),
        ({"sizes": [4, 2, 2]}, GroupRendezvous(ROOM["url"], 2, "s3cret", sizes=(2, 4))),
        ({"sizes": [2, "4"]}, None),
        ({"sizes": [0, 4]}, None),
        ({"sizes": None, "max": None}, None),
        ({"url": ""}, None),
        ({"url": "http://h:1\nX=1"}, None),
        ({"token": None}, None),
        ({"group": True}, None),
        ({"group": -1}, None),
    ],
)  # fmt: skip
def test_the_agents_answer(changed: dict[str, Any], room: GroupRendezvous | None) -> None:
    assert room_from_answer({**ROOM, **changed}) == room


def test_a_rooms_token_is_in_no_log() -> None:
    assert "s3cret" not in repr(room_from_answer(ROOM))


def test_what_the_user_has_set_stays() -> None:
    start = Start("id", "73.0", 0, 4, "/agent", shared_port(73, 0), address="10.0.0.2")
    place = LauncherPlace(73, 0, 2, True, 1, 2, "n2")
    told = rank_env({}, place, ENV_ROOM, start, 3)
    assert (told["RANK"], told["LOCAL_RANK"], told["WORLD_SIZE"]) == ("7", "3", "8")
    assert (told["MASTER_ADDR"], told["MASTER_PORT"], told["HOLDFAST_ADDRESS"]) == (
        "n2",
        str(shared_port(73, 0)),
        "10.0.0.2",
    )
    mine = {
        "MASTER_ADDR": "h",
        "MASTER_PORT": "1",
        "HOLDFAST_ADDRESS": "a",
        "TORCHFT_QUORUM_RETRIES": "3",
        "HOLDFAST_RESUME_FROM": "/c",
    }
    assert mine.items() <= rank_env(mine, place, ENV_ROOM, start, 0).items()
    assert "HOLDFAST_GROUP" not in rank_env({}, place, None, start, 0)
    assert 15_000 <= shared_port(4_000_000_000, 77) < 32_000


@pytest.mark.parametrize(
    ("code", "leaving", "leavers", "what"),
    [
        (0, False, False, ExitReaction.GO_ON),
        (0, True, True, ExitReaction.GO_ON),
        (85, False, False, ExitReaction.LEAVE),
        (85, True, True, ExitReaction.GO_ON),
        (93, False, False, ExitReaction.END),
        (93, True, True, ExitReaction.END),
        (1, False, False, ExitReaction.END),
        (1, True, True, ExitReaction.END),
        (143, True, True, ExitReaction.GO_ON),
        (138, True, True, ExitReaction.GO_ON),
        (143, True, False, ExitReaction.END),
        (143, False, True, ExitReaction.END),
        (137, True, True, ExitReaction.END),
    ],
)
def test_what_the_end_of_a_rank_calls_for(code: int, leaving: bool, leavers: bool, what: ExitReaction) -> None:
    assert turn(code, leaving, leavers) is what


@pytest.mark.parametrize(
    ("codes", "leaving", "status"),
    [
        ([0, 0], False, 0),
        ([0, 0], True, 0),
        ([0, 85], False, 85),
        ([85, 85], True, 85),
        ([7, 143], False, 7),
        ([143, 7], False, 143),
        ([7, 93], False, 93),
        ([85, 93], True, 93),
        ([7], True, 85),
        ([137, 143], True, 85),
        ([], True, 0),
    ],
)
def test_the_exit_status_of_a_group(codes: list[int], leaving: bool, status: int) -> None:
    assert group_code(dict(enumerate(codes)), leaving) == status
    failed = [code for code in codes if code not in (0, 85, 93)]
    assert group_code(dict(enumerate(codes)), leaving, whole=False) == (
        failed[0] if failed and 93 not in codes else status
    )
    assert may_restart(status, leaving) == (not leaving and status in (7, 143))


def test_an_ending_is_only_brought_forward() -> None:
    asked = by(100.0)
    assert asked == ForcedEnd(100.0, 110.0)
    assert by(200.0).sooner(asked) == asked.sooner(None) == asked
    assert at_once(50.0).sooner(asked) == ForcedEnd(50.0, 52.0)
    assert by(99.0).sooner(at_once(98.0, 20.0)) == ForcedEnd(98.0, 109.0)


@pytest.mark.parametrize(
    ("said", "reason", "left_s", "target"),
    [
        ({"reason": "drain", "deadline": "2026-11-22T12:01:00Z", "target": 3}, "drain", 60, 3),
        ({"reason": "spot", "deadline": "2026-11-22T13:01:00+01:00"}, "spot", 60, None),
        ({"reason": "spot", "deadline": "2026-11-22T12:01:00"}, "spot", 300, None),
        ({"reason": "scale", "deadline": None, "target": True}, "scale", 300, None),
        ({"reason": "scale", "deadline": 7, "target": -1}, "scale", 300, None),
        ({"reason": "drain", "deadline": "2026-11-21T00:00:00Z"}, "drain", 1, None),
        ({"reason": "drain", "deadline": "2036-01-01T00:00:00Z"}, "drain", 86_400, None),
        ({"reason": "a\nb" * 90}, "event", 300, None),
        ({}, "event", 300, None),
    ],
)  # fmt: skip
def test_an_event(said: dict[str, Any], reason: str, left_s: float, target: int | None) -> None:
    notice = notice_of_event({"kind": "event", **said}, NOW, 300)
    assert notice is not None
    assert (notice.reason, notice.left_s(NOW), notice.target) == (reason, left_s, target)
    assert notice_of_event({**said, "kind": "room"}, NOW, 300) is None


@pytest.mark.parametrize(
    ("comment", "declared"),
    [
        ("   Comment=holdfast elastic=2:4", True),
        ("   Comment=elastic=4:2", True),
        ("   Comment=holdfast", False),
        ("   AdminComment=elastic=2:4", False),
    ],
)
def test_the_comment_that_scontrol_shows(comment: str, declared: bool) -> None:
    assert comment_declares(f"JobId=7 JobName=x\n   UserId=me(1)\n{comment}\n   WorkDir=/\n") is declared


@pytest.mark.parametrize(
    ("argv", "env", "word"),
    [
        ((), {}, "which command"),
        (("--",), {}, "which command"),
        (("--nproc", "0", "true"), {}, "--nproc"),
        (("--restarts", "-1", "true"), {}, "--restarts"),
        (("--deadline", "soon", "true"), {}, "--deadline"),
        (("--wait", "1e9", "true"), {}, "--wait"),
        (("--nope", "true"), {}, "--nope"),
        (("--restarts", "1", "true"), STEP, "--restarts is for groups of one node"),
        (("true",), {"SLURM_STEP_NUM_TASKS": "2"}, "srun started 2 launchers on 1 node:"),
        (("true",), {"HOLDFAST_QUORUM_TOKEN_FILE": "/nope"}, "HOLDFAST_QUORUM_TOKEN_FILE"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line(
    argv: tuple[str, ...],
    env: dict[str, str],
    word: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert command_line.main(argv) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith("holdfast run: ")
    assert said.err.count("\n") == 1
    assert word in said.err


@dataclass
class Scripted:
    """A link and an inbox in one: the messages of each second, and the clock that they share."""

    said: dict[int, dict[str, Any]] = field(default_factory=dict)
    signals_at: dict[int, signal.Signals] = field(default_factory=dict)
    connected: bool = True
    path: str = "/agent.sock"
    now_s: float = 0.0
    asked_s: list[float] = field(default_factory=list)

    @property
    def fd(self) -> int | None:
        return 7 if self.connected else None

    def clock(self) -> float:
        return self.now_s

    def ask_again(self, after_s: float) -> None:
        self.asked_s.append(self.now_s + after_s)

    def settled(self) -> None:
        self.asked_s.append(float("inf"))

    def wait(self, timeout_s: float) -> None:
        self.now_s += timeout_s

    def signals(self) -> list[signal.Signals]:
        number = self.signals_at.pop(int(self.now_s), None)
        return [] if number is None else [number]

    def messages(self) -> Iterator[dict[str, Any]]:
        if int(self.now_s) in self.said:
            yield self.said.pop(int(self.now_s))


def search(
    world: Scripted, declared: bool | None, from_env: GroupRendezvous | None = None, wait_s: float = 600.0
) -> tuple[Any, list[str]]:
    lines: list[str] = []
    try:
        return Search(world, world, lambda: declared, from_env, wait_s, lines.append, world.clock).run(), lines
    except (RendezvousRefused, TooLong, Withdrawn) as error:
        return type(error), lines


NO, LATER = {"error": "it is another's", "retry": False}, {"error": "no view", "retry": True}
FOUND = room_from_answer(ROOM)


@pytest.mark.parametrize(
    ("said", "connected", "declared", "from_env", "found", "lines"),
    [
        ({0: ROOM}, True, None, ENV_ROOM, FOUND, 0),
        ({0: LATER, 2: LATER, 9: {"error": "else", "retry": True}, 11: ROOM}, True, None, None, FOUND, 2),
        ({5: {"kind": "room", "url": 3}, 7: ROOM}, True, None, None, FOUND, 1),
        ({0: NO}, True, True, None, RendezvousRefused, 0),
        ({0: NO}, True, None, None, RendezvousRefused, 0),
        ({0: NO}, True, False, None, None, 0),
        ({0: NO}, True, True, ENV_ROOM, ENV_ROOM, 0),
        ({}, True, False, None, TooLong, 0),  # a silent agent may still have a rendezvous
        ({}, False, True, None, TooLong, 1),
        ({}, False, False, None, None, 0),
        ({}, False, None, None, None, 1),
        ({}, False, True, ENV_ROOM, ENV_ROOM, 0),
        ({3: {"kind": "event", "reason": "drain"}}, True, True, None, Withdrawn, 0),
    ],
)  # fmt: skip
def test_which_room(
    said: dict[int, dict[str, Any]],
    connected: bool,
    declared: bool | None,
    from_env: GroupRendezvous | None,
    found: Any,
    lines: int,
) -> None:
    """``declared``: whether Slurm shows the job as elastic. An elastic group never continues without a rendezvous."""
    got, spoken = search(Scripted(dict(said), connected=connected), declared, from_env)
    assert (got, len(spoken)) == (found, lines)


def test_how_long_is_waited() -> None:
    world = Scripted(connected=False)
    assert search(world, True, wait_s=60)[0] is TooLong
    assert 60 <= world.now_s < 62
    world = Scripted(connected=False)
    assert search(world, None)[0] is None
    assert UNDECLARED_S <= world.now_s < UNDECLARED_S + 2
    world = Scripted(signals_at={4: signal.SIGTERM})
    assert search(world, True)[0] is Withdrawn
    assert world.now_s < 5


@pytest.mark.slow
def test_a_launcher_loads_nothing_but_the_standard_library_and_the_nouns() -> None:
    code = "import sys, holdfast.launcher.main; print(*{m for m in sys.modules if m.partition('.')[0] not in sys.stdlib_module_names})"
    argv = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {name for name in loaded if not name.startswith(("holdfast.launcher", "holdfast.model"))} <= {
        "holdfast",
        "holdfast_checks",
        "holdfast_checks.probes",
        "holdfast_checks.probes.process_files",  # the standard library alone
        "__main__",
    }
    assert "holdfast.launcher.launcher" in loaded
