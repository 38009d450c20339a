"""What the agent receives, and that a missing, slow or restarted agent never disturbs the training."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast_checkpoint import Checkpointer, RunId
from holdfast_checkpoint.statements import (
    LINE_BYTES_MAX,
    Receipt,
    StatementResult,
    Teller,
    encode,
    progress,
    register,
    saved,
    send_once,
)

RUN = RunId("42", (1, 0, 0))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[socket.socket]:
    with listen(tmp_path) as server:
        yield server


def listen(tmp_path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(tmp_path / "agent.sock"))
    server.listen(4)
    server.settimeout(5)
    return server


def lines(connection: socket.socket) -> list[dict[str, Any]]:
    connection.settimeout(5)
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    connection.close()
    return [json.loads(line) for line in data.splitlines()]


def test_a_training_run_as_the_agent_hears_it(agent: socket.socket, tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    root.mkdir()
    env = {"HOLDFAST_AGENT_SOCKET": str(tmp_path / "agent.sock"), "SLURM_JOB_ID": "42", "SLURM_RESTART_COUNT": "1"}
    checkpointer = Checkpointer(root, env=env, save_signal="USR1")
    checkpointer.resume()
    checkpointer.progress(1)
    checkpointer.progress(2)
    with checkpointer.save(10) as folder:
        (folder / "x").write_bytes(b"12345")
    checkpointer.close()
    heard = lines(agent.accept()[0])
    common = {"v": 1, "job_id": 42, "restarts": 1, "run": str(RUN)}
    path = str(root / "step-0000010-j42-r1.0.0")
    assert heard == [
        {**common, "kind": "checkpoint.register", "dir": str(root), "layout": "holdfast", "fenced": True,
         "save_signal": "USR1"},
        {**common, "kind": "checkpoint.resumed", "step": 0, "path": None},
        {**common, "kind": "progress", "step": 1},
        {**common, "kind": "checkpoint.saved", "step": 10, "path": path, "bytes": 5},
    ]  # fmt: skip


def test_every_other_rank_names_its_signal_to_the_agent_of_its_node_and_nothing_else(
    agent: socket.socket, tmp_path: Path
) -> None:
    """An agent has a job sent no signal that was not registered with it."""
    root = tmp_path / "checkpoints"
    root.mkdir()
    env = {"HOLDFAST_AGENT_SOCKET": str(tmp_path / "agent.sock"), "SLURM_JOB_ID": "42"}
    first = Checkpointer(root, rank=0, world_size=2, env=env)
    first.resume()
    first.close()
    agent.accept()[0].close()
    other = Checkpointer(root, rank=1, world_size=2, env=env, save_signal="USR1")
    other.resume()
    said = lines(agent.accept()[0])  # the connection is at its end, without a close()
    assert [(s["kind"], s["job_id"], s["save_signal"]) for s in said] == [("checkpoint.signal", 42, "USR1")]


def test_without_an_agent_statements_are_dropped_and_nothing_is_tried_for_a_while(tmp_path: Path) -> None:
    now = [0.0]
    teller = Teller(str(tmp_path / "agent.sock"), clock=lambda: now[0])
    assert not teller.tell(saved(1, "/x", 1, RUN))
    with listen(tmp_path) as server:
        assert not teller.tell(saved(2, "/x", 1, RUN))
        now[0] = 5.0
        assert teller.tell(saved(3, "/x", 1, RUN))
        teller.close()
        assert [s["step"] for s in lines(server.accept()[0])] == [3]


def test_an_agent_that_was_restarted_hears_the_registration_again(tmp_path: Path) -> None:
    now = [0.0]
    teller = Teller(str(tmp_path / "agent.sock"), clock=lambda: now[0])
    with listen(tmp_path) as server:
        teller.tell(register("/x", RUN))
        server.accept()[0].close()
    (tmp_path / "agent.sock").unlink()
    with listen(tmp_path) as server:
        for _ in range(3):
            teller.tell(saved(1, "/x", 1, RUN))
            now[0] += 6.0
        teller.close()
        assert [s["kind"] for s in lines(server.accept()[0])][:2] == ["checkpoint.register", "checkpoint.saved"]


@pytest.mark.slow
def test_an_agent_that_does_not_read_costs_no_time_and_no_broken_line(agent: socket.socket, tmp_path: Path) -> None:
    teller = Teller(str(tmp_path / "agent.sock"))
    began = time.perf_counter()
    told = [teller.tell(saved(step, "/x" * 500, 1, RUN)) for step in range(2000)]
    assert time.perf_counter() - began < 10.0
    assert told[0]
    assert not told[-1]
    connection = agent.accept()[0]
    connection.settimeout(0.2)
    data = b""
    with suppress(TimeoutError):
        while chunk := connection.recv(65536):
            data += chunk
    assert teller.tell(saved(5000, "/y", 1, RUN))
    teller.close()
    data += b"".join(iter(lambda: connection.recv(65536), b""))
    connection.close()
    steps = [json.loads(line)["step"] for line in data.splitlines()]
    assert steps == [*range(len(steps) - 1), 5000]


def test_progress_is_told_five_times_a_second(agent: socket.socket, tmp_path: Path) -> None:
    now = [0.0]
    teller = Teller(str(tmp_path / "agent.sock"), clock=lambda: now[0])
    for step in range(21):
        now[0] = step / 16
        teller.tell(progress(step, RUN))
    teller.close()
    assert [s["step"] for s in lines(agent.accept()[0])] == [0, 4, 8, 12, 16, 20]


def test_a_line_too_long_is_not_sent(agent: socket.socket, tmp_path: Path) -> None:
    too_long = saved(1, "/" + "x" * LINE_BYTES_MAX, 1, RUN)
    assert encode(too_long) == b""
    assert not Teller(str(tmp_path / "agent.sock")).tell(too_long)
    assert send_once(too_long, str(tmp_path / "agent.sock")).taken is StatementResult.REFUSED


STANDING = b'{"v":1,"kind":"standing","mode":"observe","fatal":""}\n'


@contextmanager
def _serving(agent: socket.socket, *answers: bytes) -> Iterator[list[bytes]]:
    """An agent that reads a statement with the question behind it, and answers; one connection for each answer."""
    seen: list[bytes] = []

    def serve() -> None:
        for answer in answers:
            with agent.accept()[0] as connection:
                data = b""
                while data.count(b"\n") < 2:
                    data += connection.recv(4096)
                seen.append(data)
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield seen
    finally:
        thread.join()


REFUSED = b'{"error":"not a job of this user on this node","retry":%s}\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "receipt"),
    [
        pytest.param([STANDING], Receipt(StatementResult.YES), id="taken"),
        pytest.param(
            [REFUSED % b"false" + STANDING],
            Receipt(StatementResult.REFUSED, "not a job of this user on this node"),
            id="refused, and the question answered",
        ),
        pytest.param(
            [REFUSED % b"true" + STANDING, STANDING],
            Receipt(StatementResult.YES),
            id="slurmd knows the job a moment later",
        ),
        pytest.param([b"", STANDING], Receipt(StatementResult.YES), id="closed, then there is a place"),
        pytest.param([b"[1]\n"], Receipt(StatementResult.NO_ANSWER), id="no answer of ours"),
    ],
)
def test_a_statement_was_taken_where_the_question_behind_it_is_answered(
    agent: socket.socket, tmp_path: Path, answers: list[bytes], receipt: Receipt
) -> None:
    with _serving(agent, *answers) as seen:
        assert (
            send_once(register("/x", RUN), str(tmp_path / "agent.sock"), timeout_s=1.7 if answers[-1] == b"" else 30)
            == receipt
        )
    first, second = map(json.loads, seen[0].splitlines())
    assert (first["dir"], second) == ("/x", {"v": 1, "kind": "ask.standing"})


def test_without_an_answer_nothing_was_taken(agent: socket.socket, tmp_path: Path) -> None:
    assert (
        send_once(register("/x", RUN), str(tmp_path / "agent.sock"), timeout_s=0.2).taken is StatementResult.NO_ANSWER
    )
    agent.accept()[0].close()

    def close() -> None:
        agent.accept()[0].close()

    closing = threading.Thread(target=close)
    closing.start()
    assert send_once(register("/x", RUN), str(tmp_path / "agent.sock"), timeout_s=0.5).taken is StatementResult.CLOSED
    closing.join()
    assert send_once(register("/x", RUN), str(tmp_path / "nobody.sock")).taken is StatementResult.NO_AGENT
    assert send_once(register("/x", RUN), "/" + "x" * 200).taken is StatementResult.NO_AGENT


def test_a_task_of_a_heterogeneous_job_names_its_components(monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunId("41", (0, 0, 0))
    assert "components" not in progress(3, run)
    for name, value in {"0": "41", "1": "42", "x": "43"}.items():
        monkeypatch.setenv(f"SLURM_JOB_ID_HET_GROUP_{name}", value)
    assert progress(3, run)["components"] == [41, 42]
    assert json.loads(encode(progress(3, run)))["job_id"] == 41
