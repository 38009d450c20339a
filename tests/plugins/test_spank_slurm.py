"""The plug-ins in a real Slurm: what sbatch submits, what the job finds on its node, and that nothing keeps a job from starting."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.agent.jobs.job_socket import JobSocket
from holdfast.agent.node.processes import SlurmNode
from holdfast.agent.sending.outbox import OutboxItem
from holdfast.model.errors import Rejected
from holdfast.practice import Practice
from support.practice import eventually
from support.slurm_plugins import PLUGINS, SLURM_INCLUDE, FakeAgent

pytestmark = pytest.mark.slurm

_SHOW = (
    'date +%s.%N; env | grep -E "^HOLDFAST_[CRS]" | sort; srun sh -c "echo task \\$HOLDFAST_RESUME_FROM"; echo end\n'
)
_FATAL = b'{"v":1,"kind":"standing","mode":"act","fatal":"gpu.count GPU-1","incident":"inc1"}\n'


class Bench:
    """One node with the plug-in, the Lua module and the prolog."""

    def __init__(self, practice: Practice, plugin: Path) -> None:
        self.practice = practice
        self.run_dir = practice.folder / "agent"
        self.socket = self.run_dir / "agent.sock"
        self.prolog_socket = practice.folder / "prolog.sock"
        self.plugin = plugin
        self.plugstack(f"optional {plugin} socket={self.socket} auto-resume")

    def plugstack(self, text: str) -> None:
        (self.practice.folder / "etc" / "plugstack.conf").write_text(text + "\n")

    def restore(self) -> None:
        self.plugstack(f"optional {self.plugin} socket={self.socket} auto-resume")

    def held(self, *options: str, script: str = "true") -> dict[str, str]:
        """What slurmctld makes of a submission; the job never starts."""
        job = str(self.practice.sbatch(script, "--hold", *options))
        shown = self.practice.command("scontrol", "-o", "show", "job", job)
        self.practice.command("scancel", job)
        comment = re.search(r" Comment=(\S*(?: \S*)*?) (?=\w+=)", shown)
        requeue = re.search(r" Requeue=(\d)", shown)
        assert requeue is not None
        return {"requeue": requeue[1], "comment": comment[1].strip() if comment else ""}

    def job(self, *options: str, script: str = _SHOW) -> list[str]:
        """Run a job and return the lines that it wrote."""
        return self.lines(self.practice.sbatch(script, *options))

    def lines(self, job: int, ends: int = 1) -> list[str]:
        path = self.practice.folder / "jobs" / f"{job}.out"
        eventually(lambda: path.exists() and path.read_text().count("end\n") >= ends, within_s=20, why=self.said)
        return [line.rstrip() for line in path.read_text().splitlines()]

    def said(self) -> str:
        return "\n".join((self.practice.folder / "log" / "slurmd.n1.log").read_text().splitlines()[-20:])


@pytest.fixture(scope="module")
def bench(short_folder: Path, plugin: Path, helper: Path) -> Iterator[Bench]:
    folder = Path(tempfile.mkdtemp(prefix="p", dir=short_folder))
    folder.chmod(0o755)
    prolog = folder / "prolog"
    prolog.write_text(
        f'#!/bin/sh\nexport HOLDFAST_ASK="{helper}" HOLDFAST_AGENT_SOCKET="{folder}/c/prolog.sock"\n'
        f'exec "{PLUGINS}/prolog.sh"\n'
    )
    prolog.chmod(0o755)
    practice = Practice.create(
        folder / "c", nodes=1, gpus=1, extra_slurm_conf=f"JobSubmitPlugins=lua\nProlog={prolog}\n"
    )
    example = (PLUGINS / "lua" / "job_submit.lua.example").read_text()
    here = example.replace("/usr/local/share/holdfast/slurm-plugins", str(PLUGINS))
    (practice.folder / "etc" / "job_submit.lua").write_text(here)
    made = Bench(practice, plugin)
    try:
        practice.up()
        yield made
    finally:
        practice.remove()


@pytest.fixture(autouse=True)
def _as_shipped(bench: Bench) -> Iterator[None]:
    yield
    bench.restore()


@pytest.mark.parametrize(
    ("options", "script", "comment", "requeue"),
    [
        (["--holdfast"], "", "holdfast", "1"),
        (["--holdfast=/ckpt"], "", "holdfast", "1"),
        (["--holdfast", "--comment=mine"], "", "mine,holdfast", "1"),
        (["--holdfast", "--comment=a holdfast b"], "", "a holdfast b", "1"),
        (["--holdfast", "--comment=holdfaster"], "", "holdfaster,holdfast", "1"),
        (["--holdfast", "--no-requeue"], "", "holdfast", "0"),
        ([], "#SBATCH --holdfast", "holdfast", "1"),
        (["--holdfast=off"], "#SBATCH --holdfast", "", "1"),
        (["--auto-resume=1"], "", "holdfast", "1"),
        (["--auto-resume=0"], "", "", "1"),
        ([], "", "", "1"),
    ],
)
def test_the_option_opts_in_from_the_moment_of_submission(
    bench: Bench, options: list[str], script: str, comment: str, requeue: str
) -> None:
    assert bench.held(*options, script=f"#!/bin/sh\n{script}\ntrue") == {"requeue": requeue, "comment": comment}


@pytest.mark.parametrize(
    "option",
    [
        "--holdfast=relative",
        "--holdfast=/a\nb",
        "--holdfast-signal=KILL",
        "--holdfast-signal=USR1@0",
        "--holdfast-signal=USR1@x",
    ],
)
def test_a_mistake_is_refused_at_once(bench: Bench, option: str) -> None:
    with pytest.raises(Rejected, match="Invalid --holdfast"):
        bench.practice.sbatch("true", option)


def test_the_real_agent_is_told_and_answers(bench: Bench, short_folder: Path) -> None:
    """As the job's user, from the job's process: bound as every statement is; and the newest complete checkpoint comes back."""
    folder = short_folder / 'my "ckpt"'
    folder.mkdir()
    folder.chmod(0o755)
    save = (
        "import sys; from holdfast_checkpoint import Checkpointer; c = Checkpointer(sys.argv[1]); c.resume()\n"
        "with c.save(41) as folder: (folder / 'x').write_bytes(b'1')\n"
    )
    environment = {"PATH": os.environ["PATH"], "HOLDFAST_AGENT_SOCKET": "/nowhere"}
    subprocess.run([sys.executable, "-c", save, str(folder)], check=True, env=environment)
    newest = next(folder.glob("step-*"))
    items: list[OutboxItem] = []
    slurm = SlurmNode("n1", bench.practice.folder / "run" / "slurmd.n1.pid", "scontrol", bench.practice.slurm_conf)
    desk = JobSocket(bench.run_dir, slurm, items.append)
    desk.start()
    try:
        told = bench.job(f"--holdfast={folder}", "--holdfast-signal=SIGUSR1@120")
    finally:
        desk.stop()
    assert told[1:] == [
        f"HOLDFAST_CHECKPOINT_DIR={folder}",
        f"HOLDFAST_RESUME_FROM={newest}",
        "HOLDFAST_SAVE_S=120",
        "HOLDFAST_SAVE_SIGNAL=USR1",
        f"task {newest}",
        "end",
    ]
    (item,) = items
    assert item.body["statement"] == "checkpoint.register"
    assert (item.body["path"], item.body["uid"], item.body["restarts"]) == (str(folder), os.geteuid(), 0)
    assert (item.body["detail"]["save_signal"], item.body["detail"]["save_s"]) == ("USR1", 120)
    assert desk.refused == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can submit as another user")
def test_it_speaks_as_the_jobs_user(bench: Bench) -> None:
    items: list[OutboxItem] = []
    slurm = SlurmNode("n1", bench.practice.folder / "run" / "slurmd.n1.pid", "scontrol", bench.practice.slurm_conf)
    desk = JobSocket(bench.run_dir, slurm, items.append)
    desk.start()
    try:
        bench.lines(bench.practice.sbatch("echo end", "--holdfast=/nowhere", uid=65534))
    finally:
        desk.stop()
    assert [item.body["uid"] for item in items] == [65534]


def test_without_an_answer_the_job_starts_and_an_inherited_path_is_gone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_RESUME_FROM", "/of/the/job/that/submitted/this")
    told = bench.job("--holdfast=/ckpt")
    assert told[1:] == ["HOLDFAST_CHECKPOINT_DIR=/ckpt", "task", "end"]


@pytest.mark.parametrize(
    ("answer", "delay_s"),
    [
        (b'{"v":1,"kind":"latest","path":"/c/1"}\n', 30.0),
        (b'{"error": "malformed: unknown kind"}\n', 0.0),
        (b'{"v":1,"kind":"latest","path":null}\n', 0.0),
        (b'{"v":1,"kind":"latest","path":"relative"}\n', 0.0),
        (b'{"v":1,"kind":"latest","path":"/c/' + b"x" * 9000 + b'"}\n', 0.0),
        (b"\xff\x00\n", 0.0),
    ],
)
def test_a_slow_agent_or_one_of_another_version_costs_a_second_at_most(
    bench: Bench, short_folder: Path, answer: bytes, delay_s: float
) -> None:
    bench.run_dir.mkdir(exist_ok=True)
    bench.run_dir.chmod(0o755)
    agent = FakeAgent(bench.socket, answer, delay_s)
    agent.start()
    try:
        plain, asked = (float(bench.job(*options)[0]) for options in ([], ["--holdfast=/ckpt"]))
        told = bench.lines(bench.practice.sbatch(_SHOW, "--holdfast=/ckpt")) if delay_s == 0 else []
    finally:
        agent.stop()
    assert not any("RESUME" in line for line in told)
    assert json.loads(agent.heard[0])["kind"] == "checkpoint.register"
    assert asked - plain < 10  # far below the agent's 30 s, and above what a busy machine takes to run two jobs


def test_a_requeued_job_asks_again_and_its_output_is_appended(bench: Bench) -> None:
    bench.run_dir.mkdir(exist_ok=True)
    agent = FakeAgent(bench.socket, b'{"v":1,"kind":"latest","path":"/c/step-9"}\n')
    agent.start()
    try:
        script = (
            '#!/bin/sh\necho "run ${SLURM_RESTART_COUNT:-0} from $HOLDFAST_RESUME_FROM"\necho end\n'
            '[ "$SLURM_RESTART_COUNT" ] || sleep 60\n'
        )
        output = str(bench.practice.folder / "jobs" / "%j.out")  # without the harness' own --open-mode
        argv = ("sbatch", "--parsable", "--output", output, "--holdfast=/ckpt")
        job = int(bench.practice.command(*argv, input_text=script))
        bench.lines(job)
        bench.practice.command("scontrol", "requeue", str(job))
        time.sleep(
            2.0
        )  # Slurm distinguishes runs by whole seconds: docs/decisions/0002-release-waits-for-the-next-second.md

        def begins() -> bool:
            with suppress(
                Rejected
            ):  # still COMPLETING; and an update too early is overwritten by the requeue's two minutes
                bench.practice.command("scontrol", "update", f"JobId={job}", "StartTime=now")
            return "run 1" in (bench.practice.folder / "jobs" / f"{job}.out").read_text()

        eventually(
            begins,
            within_s=30,
            every_s=0.3,
            why=lambda: (bench.practice.folder / "jobs" / f"{job}.out").read_text() + bench.said(),
        )
        told = bench.lines(job, ends=2)
    finally:
        agent.stop()
    runs = [line for line in told if line.startswith("run ")]
    assert runs == ["run 0 from /c/step-9", "run 1 from /c/step-9"]
    asked = [json.loads(line) for line in agent.heard if b"ask.latest" in line]
    assert [(q["job_id"], q["restarts"], q["dir"]) for q in asked] == [(job, 0, "/ckpt"), (job, 1, "/ckpt")]
    assert all(0 < q["within_ms"] <= 1000 for q in asked)


def test_a_plug_in_that_is_not_there_keeps_no_job_from_starting(bench: Bench) -> None:
    bench.plugstack("optional /nowhere/spank_holdfast.so")
    assert bench.job()[-1] == "end"


def test_an_option_that_an_earlier_plug_in_has_stays_its_own(bench: Bench, short_folder: Path) -> None:
    other = short_folder / "other.so"
    code = (
        "#include <slurm/spank.h>\nSPANK_PLUGIN(other, 1)\n"
        'static int take(int v, const char *a, int r) { (void) v; (void) r; slurm_spank_log("other took %s", a); return 0; }\n'
        'static struct spank_option o = {"auto-resume", "N", "theirs", 2, 0, take};\n'
        "int slurm_spank_init(spank_t s, int c, char **v) { (void) c; (void) v; spank_option_register(s, &o); return 0; }\n"
    )
    argv = ["cc", f"-I{SLURM_INCLUDE}", "-shared", "-fPIC", "-x", "c", "-", "-o", str(other)]
    subprocess.run(argv, input=code, text=True, check=True)
    bench.plugstack(f"optional {other}\noptional {bench.plugin} socket={bench.socket} auto-resume")
    assert bench.held("--auto-resume=1")["comment"] == ""
    assert bench.held("--holdfast")["comment"] == "holdfast"


def test_with_the_shipped_defaults_a_fatal_finding_drains_no_node_and_requeues_no_job(bench: Bench) -> None:
    """The real agent's socket, a fatal finding that persists, and no verdict of a controller to drain the node."""
    slurm = SlurmNode("n1", bench.practice.folder / "run" / "slurmd.n1.pid", "scontrol", bench.practice.slurm_conf)
    desk = JobSocket(bench.prolog_socket.parent / "desk", slurm, lambda _item: None)
    desk.answers.fatal = ("gpu.count GPU-1",)
    desk.start()
    bench.prolog_socket.symlink_to(desk.path)
    try:
        job = bench.practice.sbatch("echo end")
        assert bench.lines(job)[-1] == "end"
    finally:
        desk.stop()
        bench.prolog_socket.unlink()
    shown = bench.practice.command("scontrol", "show", "node", "n1")
    assert "DRAIN" not in shown
    assert "Reason=" not in shown
    assert "Restarts=0" in bench.practice.command("scontrol", "show", "job", str(job))


def test_a_node_that_the_controller_drains_takes_no_job(bench: Bench) -> None:
    """Slurm's own answer to a failed prolog: the node is drained, the job goes back into the queue, held."""
    agent = FakeAgent(bench.prolog_socket, _FATAL)
    agent.start()
    try:
        job = bench.practice.sbatch("echo end")
        eventually(lambda: "DRAIN" in bench.practice.command("scontrol", "show", "node", "n1"), within_s=20)
        shown = bench.practice.command("scontrol", "show", "node", "n1")
        eventually(lambda: "PENDING" in bench.practice.command("squeue", "-h", "-o", "%T", "-j", str(job)), within_s=20)
    finally:
        agent.stop()
    assert "Reason=Prolog error" in shown
    bench.practice.command("scancel", str(job))
    eventually(lambda: not bench.practice.command("squeue", "-h", "-a").strip(), within_s=20)
    bench.practice.command("scontrol", "update", "NodeName=n1", "State=RESUME")
    assert bench.job()[-1] == "end"
