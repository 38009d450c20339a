"""A group's settings, signals, and heartbeats; token files."""

from __future__ import annotations

import json
import os
import signal
import socket
from array import array
from pathlib import Path

import pytest

from holdfast_checkpoint.base.runs import RunId
from holdfast_train.errors import Unusable
from holdfast_train.failure.events import ElasticEvent, SignalWatch, read_event
from holdfast_train.peers.proof import replica_name
from holdfast_train.progress import ProgressReporter
from holdfast_train.settings import address_towards, settings_from_env

_ENV = {"HOLDFAST_QUORUM": "http://127.0.0.1:29510", "HOLDFAST_QUORUM_TOKEN": "t", "HOLDFAST_MAX_GROUPS": "4"}


def test_settings_and_their_defaults() -> None:
    told = settings_from_env({**_ENV, "HOLDFAST_GROUP": "3", "HOLDFAST_INCARNATION": "ab"})
    assert (told.quorum, told.ours, told.token, told.group, told.incarnation) == (
        *("http://127.0.0.1:29510", True, "t"),
        *(3, "ab"),
    )
    assert (tuple(told.sizes.legal), told.address, told.collective_timeout_s) == ((1, 2, 3, 4), "127.0.0.1", 30.0)
    assert (told.quorum_timeout_s, told.quorum_retries, told.rank, told.ranks) == (600, 1200, 0, 1)
    several = settings_from_env({**_ENV, "RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"})
    assert (several.rank, several.ranks) == (1, 4)
    stock = settings_from_env(
        {"TORCHFT_LIGHTHOUSE": "http://127.0.0.1:1", "SLURM_ARRAY_TASK_ID": "2", **_ENV, "HOLDFAST_QUORUM": ""}
    )
    assert (stock.ours, stock.group, len(stock.incarnation)) == (False, 2, 16)


@pytest.mark.parametrize(
    ("env", "legal"),
    [
        ({"HOLDFAST_MIN_GROUPS": "2", "HOLDFAST_ALLOWED_GROUPS": "2,4"}, (2, 4)),
        ({"HOLDFAST_MIN_GROUPS": "2", "HOLDFAST_ALLOWED_GROUPS": "4"}, (2, 4)),
        ({"HOLDFAST_MAX_GROUPS": "", "HOLDFAST_ALLOWED_GROUPS": "1,8"}, (1, 8)),
    ],
)
def test_legal_sizes(env: dict[str, str], legal: tuple[int, ...]) -> None:
    assert tuple(settings_from_env({**_ENV, **env}).sizes.legal) == legal


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"HOLDFAST_QUORUM": ""}, "HOLDFAST_QUORUM is not set"),
        ({"HOLDFAST_QUORUM": "localhost"}, "not the address of a quorum service"),
        ({"HOLDFAST_QUORUM": "http://127.0.0.1:99999"}, "not the address of a quorum service"),
        ({"HOLDFAST_QUORUM_TOKEN": ""}, "HOLDFAST_QUORUM_TOKEN is not set"),
        ({"HOLDFAST_MAX_GROUPS": ""}, "HOLDFAST_MAX_GROUPS is not set"),
        ({"HOLDFAST_MAX_GROUPS": "many"}, "'many' is no whole number"),
        ({"HOLDFAST_ALLOWED_GROUPS": "5"}, "size 5 is not between"),
        ({"HOLDFAST_ALLOWED_GROUPS": "2,x"}, "HOLDFAST_ALLOWED_GROUPS='2,x': .* no range of sizes"),
        ({"WORLD_SIZE": "2"}, "MASTER_ADDR or MASTER_PORT is not set"),
        ({"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "RANK=2 and WORLD_SIZE=2 do not go"),
        ({"TORCHFT_QUORUM_TIMEOUT_SEC": "10m"}, "TORCHFT_QUORUM_TIMEOUT_SEC='10m' is no whole number"),
        ({"HOLDFAST_COLLECTIVE_TIMEOUT_S": "soon"}, "not a number of seconds"),
        ({"HOLDFAST_COLLECTIVE_TIMEOUT_S": "nan"}, "not a number of seconds"),
    ],
)
def test_settings_that_make_no_sense_are_one_line(env: dict[str, str], why: str) -> None:
    with pytest.raises(Unusable, match=why) as caught:
        settings_from_env({**_ENV, **env})
    assert "\n" not in str(caught.value)


def test_the_address_towards_a_place_on_this_machine() -> None:
    assert address_towards("http://127.0.0.3:9") == "127.0.0.1"


def test_a_group_s_name_is_what_the_room_checks() -> None:
    identity = pytest.importorskip("holdfast.quorum.identity")
    name = replica_name("token", "7", "abc")
    assert name == identity.replica_name("token", "7", "abc")
    assert identity.identify(f"{name}:uuid", "token").group == "7"


def test_a_signal_is_remembered_with_what_was_written_about_it(tmp_path: Path) -> None:
    file = tmp_path / "events"
    watch = SignalWatch({"HOLDFAST_EVENT_FILE": str(file)})
    watch.install()
    try:
        assert (watch.detected(), watch.event()) == (False, None)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert watch.detected()
        assert watch.event() == ElasticEvent("SIGUSR1")
        file.write_text(
            '{"reason": "old"}\n{"reason": "preempt", "deadline": "2026-01-01T00:00:00Z", "target": 3}\n{"rea'
        )
        assert watch.event() == ElasticEvent("preempt", "2026-01-01T00:00:00Z", 3)
    finally:
        watch.restore()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


@pytest.mark.parametrize("text", ["", "null\n", "[]\n", '{"reason": 5}\n', "\xff\n"])
def test_an_event_file_without_an_event(text: str, tmp_path: Path) -> None:
    (tmp_path / "events").write_text(text)
    assert read_event(str(tmp_path / "events")) is None
    assert read_event(str(tmp_path / "none")) is None


def test_heartbeats_come_once_a_second_and_a_new_phase_at_once(tmp_path: Path) -> None:
    now = [100.0]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "agent"))
        listener.listen(1)
        progress = ProgressReporter(RunId("7"), str(tmp_path / "agent"), clock=lambda: now[0])
        told = []
        for at_s, step, phase in (
            (0, 1, "step"),
            (0.5, 2, "step"),
            (0.9, 3, "leaving"),
            (1.0, 4, "leaving"),
            (2.0, 5, "leaving"),
        ):
            now[0] = 100 + at_s
            told.append(progress.tell(step, phase, 0.25, 3, 0.125, 17))
        connection, _address = listener.accept()
        progress.close()
        with connection:
            lines = [json.loads(line) for line in connection.makefile()]
    assert told == [True, False, True, False, True]
    assert {k: lines[0][k] for k in ("kind", "job_id", "step", "phase", "step_ms", "own_ms", "groups", "quorum")} == {
        "kind": "progress",
        "job_id": 7,
        "step": 1,
        "phase": "step",
        "step_ms": 250,
        "own_ms": 125,
        "groups": 3,
        "quorum": 17,
    }
    assert len(lines) == sum(told)


def test_without_an_agent_nothing_is_told_and_nothing_fails(tmp_path: Path) -> None:
    progress = ProgressReporter(RunId("7"), str(tmp_path / "none"))
    assert progress.tell(1, "step", 0.1, 1) is False
    progress.close()


@pytest.mark.slow
def test_token_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
    from holdfast_train import TokenFile  # noqa: PLC0415 - needs torch

    (tmp_path / "t").write_bytes(array("H", [*range(65530, 65536), *range(5)]).tobytes())
    data = TokenFile(tmp_path / "t", length=5)
    x, y = data.batch([1, 0])
    assert data.count == 2
    assert torch.equal(x, torch.tensor([[65535, 0, 1, 2, 3], [65530, 65531, 65532, 65533, 65534]]))
    assert torch.equal(y[0], torch.tensor([0, 1, 2, 3, 4]))
    with pytest.raises(IndexError):
        data.batch([2])
    for length, token_bytes, why in ((11, 2, "too few"), (2, 4, "no whole number"), (0, 2, "cannot be read here")):
        with pytest.raises(Unusable, match=why):
            TokenFile(tmp_path / "t", length, token_bytes)
    with pytest.raises(Unusable, match="cannot be read: "):
        TokenFile(tmp_path / "none", 5)
