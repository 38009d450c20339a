"""Replica groups as processes: killed, ordered to leave, and back. The batch, the parameters and the result stay what they were."""

from __future__ import annotations

import difflib
import json
import os
import random
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
coordination = pytest.importorskip("torchft.coordination", reason="the extra 'train' is not installed")


sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.kit.rooms import Rooms  # noqa: E402

from holdfast_train import Order, TokenFile, seed_of  # noqa: E402
from support import elastic_worker  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
ROOT = Path(__file__).parents[2]
M = 12


@dataclass
class Job:
    """Groups of one job around a stock torchft lighthouse."""

    folder: Path
    lighthouse: str
    until: int
    pause_s: float = 0.05
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, group: int, name: str, **env: str) -> subprocess.Popen[str]:
        with (self.folder / f"{name}.err").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", str(ROOT / "tests" / "support" / "elastic_worker.py"), str(self.folder / "tokens"),
                 str(self.folder), name, str(self.until), str(self.pause_s)],
                env={
                    **{k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "HOLDFAST_"))},
                    "PYTHONPATH": f"{ROOT / 'training'}",
                    "TORCHFT_LIGHTHOUSE": self.lighthouse,
                    "HOLDFAST_QUORUM_TOKEN": "a secret of this job",
                    "HOLDFAST_GROUP": str(group),
                    "HOLDFAST_MIN_GROUPS": "2",
                    "HOLDFAST_MAX_GROUPS": "4",
                    "HOLDFAST_COLLECTIVE_TIMEOUT_S": "5",
                    "HOLDFAST_AGENT_SOCKET": str(self.folder / "no-agent"),
                    "RUST_LOG": "error",
                    **env,
                },
                stderr=errors,
                text=True,
            )  # fmt: skip
        self.running.append(process)
        return process

    def lines(self, name: str, kind: str) -> list[dict[str, Any]]:
        file = self.folder / f"{name}.jsonl"
        whole = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [said for line in whole if line.endswith("\n") and (said := json.loads(line))["kind"] == kind]

    def wait(self, what: Callable[[], bool], limit_s: float = 200) -> None:
        until_s = time.monotonic() + limit_s
        while not what():
            assert time.monotonic() < until_s, {p.name: p.read_text()[-1500:] for p in self.folder.glob("*.err")}
            time.sleep(0.02)

    def at(self, name: str, step: int) -> Callable[[], bool]:
        return lambda: any(line["step"] >= step for line in self.lines(name, "commit"))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    chance = random.Random(5)
    (tmp_path / "tokens").write_bytes(array("H", (chance.randrange(64) for _ in range(4000))).tobytes())
    server = coordination.LighthouseServer(
        bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=1000, quorum_tick_ms=50, heartbeat_timeout_ms=1500
    )
    made = Job(tmp_path, f"http://127.0.0.1:{server.address().rsplit(':', 1)[1]}", until=40)
    yield made
    for process in made.running:
        if process.poll() is None:
            process.kill()
        process.wait()
    server.shutdown()


def uninterrupted(job: Job) -> dict[str, Any]:
    """The same training by one process and torch alone."""
    model, optimizer, batch = elastic_worker.build()
    data = TokenFile(job.folder / "tokens", length=16)
    order = Order(data.count, batch)
    for step in range(job.until):
        optimizer.zero_grad()
        for i in range(batch.micro_batches):
            torch.manual_seed(seed_of(0, step, i))
            elastic_worker.work(model, data, order, step, i)
        for parameter in model.parameters():
            parameter.grad.div_(batch.micro_batches)
        optimizer.step()
    return dict(model.state_dict())


def far_apart(a: dict[str, Any], b: dict[str, Any]) -> float:
    """Relative, over all parameters."""
    one, two = (torch.cat([t.double().reshape(-1) for t in s.values()]) for s in (a, b))
    return float((one - two).norm() / two.norm())


def check_steps(job: Job, names: list[str]) -> None:
    """Every step from 1 on: micro-batches 0..M-1 once each, and one and the same model wherever it was committed."""
    commits = {name: {line["step"]: line["digest"] for line in job.lines(name, "commit")} for name in names}
    last = {name: {line["step"]: line for line in job.lines(name, "attempt")} for name in names}
    for step in range(1, job.until + 1):
        assert len({c[step] for c in commits.values() if step in c}) == 1, step
        present = {last[n][step - 1]["present"] for n in names if step in commits[n] and step - 1 in last[n]}
        assert len(present) == 1, (step, present)
        shares = [a[step - 1]["share"] for a in last.values() if step - 1 in a and a[step - 1]["present"] in present]
        assert sorted(i for share in shares for i in share) == list(range(M)), (step, shares)


def test_a_killed_group_comes_back_and_nothing_of_the_training_shows_it(job: Job) -> None:
    for group in range(3):
        job.start(group, f"g{group}")
    job.wait(job.at("g0", 8))
    (job.folder / "slowly").touch()
    job.running[1].send_signal(signal.SIGKILL)
    job.start(1, "g1b")
    job.wait(lambda: bool(job.lines("g1b", "attempt")))
    (job.folder / "slowly").unlink()
    for process, status in zip(job.running, (0, -signal.SIGKILL, 0, 0), strict=True):
        assert process.wait(60) == status, (job.folder / "g0.err").read_text()[-2000:]
    names = ["g0", "g1", "g1b", "g2"]
    check_steps(job, names)
    assert {line["present"] for line in job.lines("g0", "attempt")} >= {2, 3}
    assert job.lines("g1b", "commit")[0]["step"] > 8  # healed by its peers, not started from scratch
    finals = [torch.load(job.folder / f"{n}.pt", weights_only=True) for n in ("g0", "g1b", "g2")]
    assert all(far_apart(finals[0], other) == 0 for other in finals[1:])
    assert far_apart(finals[0], uninterrupted(job)) < 1e-6


@pytest.mark.parametrize("where", ["after_step", pytest.param("loop", marks=pytest.mark.soak)])
def test_an_average_of_the_weights_is_the_same_in_every_group_after_a_healing_or_it_is_said(
    job: Job, where: str
) -> None:
    job.until = 30
    for group in range(3):
        job.start(group, f"g{group}", EMA=where)
    job.wait(job.at("g0", 8))
    (job.folder / "slowly").touch()
    job.running[1].send_signal(signal.SIGKILL)
    job.start(1, "g1b", EMA=where)
    job.wait(lambda: bool(job.lines("g1b", "attempt")))
    (job.folder / "slowly").unlink()
    for process, status in zip(job.running, (0, -signal.SIGKILL, 0, 0), strict=True):
        assert process.wait(60) == status, (job.folder / "g0.err").read_text()[-2000:]
    names = ("g0", "g1b", "g2")
    averages = [torch.load(job.folder / f"{n}.ema.pt", weights_only=True) for n in names]
    ends = [job.lines(n, "rates")[0] for n in names]
    said = "".join((job.folder / f"{n}.err").read_text() for n in names)
    if where == "after_step":
        assert all(far_apart(averages[0], other) == 0 for other in averages[1:])
        assert len({tuple(end["rates"]) for end in ends}) == 1
        assert all(end["differs"] == [] for end in ends)
        assert "extra_differs" not in said
    else:  # whether the loop has changed it by the time that it is sent is chance; that nothing is said of a difference is not
        differ = any(far_apart(averages[0], other) > 0 for other in averages[1:])
        assert differ <= all("ema" in end["differs"] for end in ends), ends
        assert differ <= ("event=extra_differs" in said)


@pytest.mark.soak
def test_a_group_that_is_told_to_leave_exits_85_between_steps(job: Job) -> None:
    job.until = 30
    for group in range(3):
        job.start(group, f"g{group}")
    job.wait(job.at("g1", 3))
    job.running[1].send_signal(signal.SIGUSR1)
    assert job.running[1].wait(20) == 85
    assert [job.running[i].wait(60) for i in (0, 2)] == [0, 0]
    check_steps(job, ["g0", "g1", "g2"])
    assert not [line for line in (job.folder / "g0.err").read_text().splitlines() if "got exception" in line]


@pytest.mark.soak
def test_a_room_of_holdfast_s_is_told_of_a_leave_and_refuses_a_forged_token(job: Job) -> None:
    rooms = Rooms(job.folder)
    rooms.start()
    try:
        opened = rooms.ask(do="open", room="job-7", rules={"min_groups": 2})
        env = {"HOLDFAST_QUORUM": opened["url"], "HOLDFAST_QUORUM_TOKEN": opened["token"]}
        for group in range(3):
            job.start(group, f"g{group}", **env)
        job.wait(job.at("g1", 3))
        job.running[1].send_signal(signal.SIGTERM)
        forger = job.start(3, "forger", **{**env, "HOLDFAST_QUORUM_TOKEN": "of another job"})
        assert [job.running[i].wait(60) for i in (0, 1, 2)] == [0, 85, 0]
        assert forger.wait(60) == 1
        assert "the token of group 3 is not this job's" in (job.folder / "forger.err").read_text()
        left = [e for e in rooms.ask(do="events")["events"] if e["kind"] == "left"]
    finally:
        rooms.stop()
    check_steps(job, ["g0", "g1", "g2"])
    assert len(left) == 3
    assert all("heartbeat" not in str(event) for event in left)


@pytest.mark.soak
@pytest.mark.timeout(500)
def test_who_comes_back_catches_up_beside_the_training_to_the_same_bits(job: Job) -> None:
    rooms = Rooms(job.folder)
    rooms.start()
    try:
        opened = rooms.ask(do="open", room="job-7", rules={"min_groups": 2})
        env = {"HOLDFAST_QUORUM": opened["url"], "HOLDFAST_QUORUM_TOKEN": opened["token"], "FLOAT32": "1"}
        for group in range(3):
            job.start(group, f"g{group}", **env)
        job.wait(job.at("g0", 5), 150)
        (job.folder / "slowly").touch()
        job.running[1].send_signal(signal.SIGKILL)
        rooms.ask(do="evict", room="job-7", member="1", reason="node n2: gpu.xid 79")
        job.start(1, "g1b", **env)
        job.wait(lambda: bool(job.lines("g1b", "attempt")), 150)
        (job.folder / "slowly").unlink()
        assert [job.running[i].wait(100) for i in (0, 2, 3)] == [0, 0, 0], (job.folder / "g1b.err").read_text()[-2000:]
    finally:
        rooms.stop()
    told = (job.folder / "g1b.err").read_text()
    assert "event=caught_up" in told
    assert "event=catch_up_lost" not in told
    check_steps(job, ["g0", "g1", "g1b", "g2"])
    finals = [torch.load(job.folder / f"{n}.pt", weights_only=True) for n in ("g0", "g1b", "g2")]
    assert all(far_apart(finals[0], other) == 0 for other in finals[1:])


def test_a_forged_token_is_one_line_and_harms_nobody(job: Job) -> None:
    job.until = 25
    job.start(0, "g0")
    job.start(1, "g1")
    job.wait(job.at("g0", 2))
    (job.folder / "slowly").touch()
    forger = job.start(2, "forger", HOLDFAST_QUORUM_TOKEN="of another job")
    assert forger.wait(60) == 1
    (job.folder / "slowly").unlink()
    told = [
        line for line in (job.folder / "forger.err").read_text().splitlines() if line.startswith("holdfast_train: ")
    ]
    assert len(told) == 1
    assert "refuses our token" in told[0]
    assert [job.running[i].wait(60) for i in (0, 1)] == [0, 0]
    check_steps(job, ["g0", "g1"])
    assert far_apart(torch.load(job.folder / "g0.pt", weights_only=True), uninterrupted(job)) < 1e-6


def test_a_batch_that_cannot_be_shared_is_one_line_at_the_start(job: Job) -> None:
    assert job.start(0, "g0", HOLDFAST_MAX_GROUPS="13").wait(30) == 1
    assert "13 groups cannot share 12 micro-batches" in (job.folder / "g0.err").read_text().splitlines()[-1]


def test_the_example_is_a_plain_loop_with_few_changes() -> None:
    plain, elastic = (
        (ROOT / "training" / "examples" / f"{n}.py").read_text().splitlines() for n in ("plain", "elastic")
    )
    changed = [line for line in difflib.ndiff(plain, elastic) if line.startswith("+ ") and '"""' not in line]
    assert 0 < len(changed) < 15
