"""A job is kept off a node only on the agent's own answer, and never has to wait for it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from support.slurm_plugins import PLUGINS, FakeAgent

pytestmark = pytest.mark.slow

FATAL = b'{"v":1,"kind":"standing","mode":"act","fatal":"gpu.count GPU-1","incident":"inc1"}\n'
OBSERVED = b'{"v":1,"kind":"standing","mode":"observe","fatal":"","observed":"gpu.count GPU-1"}\n'
LATEST_S = 1.6
"""A second's deadline, and room for a busy machine; the deadline itself is proved by the slow agent's 5 s."""


def run(script: str, helper: Path | str, path: Path | str) -> tuple[int, str, float]:
    began = time.monotonic()
    done = subprocess.run(
        [str(PLUGINS / script)],
        env={"PATH": os.environ["PATH"], "HOLDFAST_ASK": str(helper), "HOLDFAST_AGENT_SOCKET": str(path)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stdout == ""  # slurmd reads a prolog's output as orders (TaskProlog) or throws it away
    return done.returncode, done.stderr, time.monotonic() - began


@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh"])
def test_a_fatal_finding_of_a_node_that_is_drained_fails_it_and_is_named(
    script: str, helper: Path, fake_agent: FakeAgent
) -> None:
    fake_agent.answer = FATAL
    status, said, took_s = run(script, helper, fake_agent.path)
    assert (status, "gpu.count GPU-1" in said) == (1, True)
    assert took_s < LATEST_S
    assert [json.loads(line) for line in fake_agent.heard] == [{"v": 1, "kind": "ask.standing"}]


@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh"])
def test_a_fatal_finding_for_which_nothing_is_done_is_printed_and_the_job_starts(
    script: str, helper: Path, fake_agent: FakeAgent
) -> None:
    fake_agent.answer = OBSERVED
    status, said, _took_s = run(script, helper, fake_agent.path)
    assert (status, "gpu.count GPU-1" in said) == (0, True)


@pytest.mark.parametrize(
    "answer",
    [
        b'{"v":1,"kind":"standing","fatal":"gpu.count GPU-1"}\n',
        b'{"v":1,"kind":"standing","mode":"observe","fatal":"gpu.count GPU-1"}\n',
        b'{"v":1,"kind":"standing","mode":"propose","fatal":"gpu.count GPU-1"}\n',
        b'{"v":1,"kind":"standing","mode":["act"],"fatal":"gpu.count GPU-1"}\n',
        b'{"v":1,"kind":"standing","mode":"act","fatal":""}\n',
        b'{"v":1,"kind":"standing","fatal":""}\n',
        b'{"error": "malformed: unknown kind"}\n',
        b'{"v":2,"kind":"something","mode":"act","fatal":"gpu.count"}\n',
        b'{"v":1,"kind":"standing","mode":"act","fatal":["gpu.count"]}\n',
        b'{"v":1,"kind":"standing"}\n',
        b'{"v":1,"kind":"standing","mode":"act","note":"\\"fatal\\":\\"x\\""}\n',
        b'{"v":1,"kind":"standing","mode":"act","fatal":"cut off\n',
        b'{"v":1,"kind":"standing","mode":"act","fatal":"odd \\u0041 escape"}\n',
        b"\n",
        b"\x00\xff\n",
        b"x" * 20_000 + b"\n",
    ],
)
def test_every_other_answer_lets_the_job_start(answer: bytes, helper: Path, fake_agent: FakeAgent) -> None:
    fake_agent.answer = answer
    assert run("prolog.sh", helper, fake_agent.path)[:2] == (0, "")


def test_a_slow_agent_is_not_waited_for(helper: Path, fake_agent: FakeAgent) -> None:
    fake_agent.answer, fake_agent.delay_s = FATAL, 5.0
    status, said, took_s = run("prolog.sh", helper, fake_agent.path)
    assert (status, said) == (0, "")
    assert 0.9 < took_s < 4.8


def test_no_agent_a_dead_ones_socket_and_a_full_queue(helper: Path, short_folder: Path) -> None:
    assert run("prolog.sh", helper, short_folder / "none.sock")[:2] == (0, "")
    assert run("prolog.sh", helper, "/" + "x" * 200)[:2] == (0, "")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(short_folder / "dead.sock"))
    assert run("prolog.sh", helper, short_folder / "dead.sock")[:2] == (0, "")
    with (
        socket.socket(socket.AF_UNIX) as full,
        socket.socket(socket.AF_UNIX) as first,
        socket.socket(socket.AF_UNIX) as second,
    ):
        full.bind(str(short_folder / "full.sock"))
        full.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(str(short_folder / "full.sock"))
        status, said, took_s = run("prolog.sh", helper, short_folder / "full.sock")
        assert (status, said) == (0, "")
        assert took_s < LATEST_S


def test_without_a_helper_or_with_a_broken_one_jobs_start(tmp_path: Path, fake_agent: FakeAgent) -> None:
    fake_agent.answer = FATAL
    assert run("prolog.sh", tmp_path / "none", fake_agent.path)[:2] == (0, "")
    broken = tmp_path / "broken"
    for text in ("#!/bin/sh\nexit 1\n", "#!/nowhere\n", "#!/bin/sh\nkill -SEGV $$\n", "#!/bin/sh\necho x; exit 2\n"):
        broken.write_text(text)
        broken.chmod(0o755)
        assert run("prolog.sh", broken, fake_agent.path)[0] == 0


def test_no_script_calls_scontrol() -> None:
    for name in ("prolog.sh", "epilog.sh"):
        code = [line for line in (PLUGINS / name).read_text().splitlines() if not line.startswith("#")]
        assert not any(word in line for line in code for word in ("scontrol", "squeue", "sinfo", "curl"))
