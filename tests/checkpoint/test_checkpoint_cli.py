"""``python -m holdfast_checkpoint``: output for scripts, reasons for people, exit status for both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast_checkpoint import Checkpointer
from holdfast_checkpoint.cli import main

Build = Any
Out = pytest.CaptureFixture[str]


def test_latest_prints_the_path_and_why_others_were_passed_over(build: Build, capsys: Out) -> None:
    good = build.holdfast(10)
    (build.dcp("step-20") / ".metadata").unlink()
    assert main(["latest", str(build.root)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{good}\n"
    assert err == "passed over step-20: torn: no .metadata: the save did not finish\n"


def test_latest_of_nothing_prints_nothing(build: Build, capsys: Out) -> None:
    assert main(["latest", str(build.root / "nowhere")]) == 4
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("name", "value"), [("SLURM_RESTART_COUNT", "1"), ("HOLDFAST_ATTEMPT", "2")])
def test_a_run_that_was_started_again_does_not_start_afresh_where_the_directory_is_missing(
    name: str, value: str, build: Build, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    gone = build.root / "gone"
    assert main(["latest", str(gone)]) == 4
    monkeypatch.setenv(name, value)
    assert main(["latest", str(gone)]) == 3
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert f"mkdir -p {gone}" in told.err
    gone.mkdir()
    assert main(["latest", str(gone)]) == 4


def test_a_program_that_breaks_never_says_that_there_is_none(build: Build) -> None:
    build.holdfast(10)
    broken = "import holdfast_checkpoint.cli as cli\ncli.find = None\nraise SystemExit(cli.main())"
    done = subprocess.run([sys.executable, "-c", broken, "latest", str(build.root)], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize(
    ("made", "stray"),
    [
        (
            lambda b: b.archive("lightning_logs/version_0/checkpoints/epoch=0-step=10.ckpt"),
            "lightning_logs/version_0/checkpoints/epoch=0-step=10.ckpt",
        ),
        (lambda b: b.dcp("a/b/step-10"), "a/b/step-10"),
        (lambda b: b.archive("state.pt"), "state.pt"),
        (lambda b: b.path("last/pytorch_model.bin").write_bytes(b"x"), "last/pytorch_model.bin"),
    ],
)
def test_what_looks_like_a_checkpoint_elsewhere_is_no_reason_to_start_afresh(
    made: Any, stray: str, build: Build, capsys: Out
) -> None:
    made(build)
    assert main(["latest", str(build.root)]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{build.root}/{stray} may be or hold one" in told.err
    assert main(["latest", "--ignore-unknown", str(build.root)]) == 4
    assert Checkpointer(build.root, env={}).resume() is None


def test_logs_and_configurations_are_no_checkpoints(build: Build) -> None:
    for name in ("train.log", "config.yaml", "runs/events.out.tfevents.1", "tokens/train.bin", "a/b/c/d/e/deep.pt"):
        build.path(name).write_bytes(b"x")
    (build.root / "link.pt").symlink_to("/etc/passwd")
    assert main(["latest", str(build.root)]) == 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_colleagues_checkpoint_is_no_reason_to_start_afresh(build: Build, capsys: Out) -> None:
    path = build.archive("ckpt_100.pt")
    os.chown(path, 54321, 54321)
    assert main(["latest", str(build.root)]) == 3
    assert "belongs to uid 54321" in capsys.readouterr().err
    assert main(["latest", "--any-owner", str(build.root)]) == 0
    build.archive("ckpt_50.pt")
    capsys.readouterr()
    assert main(["latest", str(build.root)]) == 0, "files of other users do not count"
    assert capsys.readouterr().out == f"{build.root}/ckpt_50.pt\n"
    planted = build.path("ckpt_200.pkl")
    planted.write_bytes(b"x" * 1000)
    assert main(["latest", str(build.root)]) == 3
    os.chown(planted, 54321, 54321)
    assert main(["latest", str(build.root)]) == 0


@pytest.mark.parametrize(
    ("made", "status"),
    [
        (lambda b: b.archive("last.pt"), 0),
        (lambda b: b.archive("state.pt"), 0),
        (lambda b: b.archive("step_10/model.pt") and b.archive("step_10/optim.pt").parent, 3),
        (lambda b: b.path("ckpt_100.pkl"), 3),
        (lambda b: b.path("ckpt_100.pt.gz"), 3),
        (lambda b: b.path("ckpt_100.pt"), 4),
        (lambda b: b.path("config.json"), 4),
        (lambda b: b.path("empty").parent / "nothing", 4),
    ],
)
def test_verify_says_of_what_cannot_be_judged_that_it_cannot_be_told(made: Any, status: int, build: Build) -> None:
    path = made(build)
    if not path.exists() and path.name != "nothing":
        path.write_bytes(bytes(100))
    assert main(["verify", str(path)]) == status


def test_list_does_not_say_none_of_what_cannot_be_told(build: Build, capsys: Out) -> None:
    build.archive("ckpt_100.pt")
    build.path("ckpt_200.pkl").write_bytes(b"x" * 1000)
    assert main(["list", str(build.root)]) == 3
    told = capsys.readouterr()
    assert "complete" in told.out
    assert "ckpt_200.pkl may be newer than ckpt_100.pt" in told.err


def test_json_for_programs(build: Build, capsys: Out) -> None:
    good = build.holdfast(10)
    assert main(["latest", "--json", str(build.root)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["latest"] == str(good)
    assert answer["candidates"][0]["proof"] == "digests"


def test_list_and_verify(build: Build, capsys: Out) -> None:
    good = build.holdfast(10, 20)
    assert main(["list", str(build.root)]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["20", "complete"],
        ["10", "complete"],
    ]
    assert main(["verify", str(good)]) == 0
    assert "proved by digests" in capsys.readouterr().out
    (good / "rank-00000" / "weights.bin").write_bytes(bytes(999) + b"x")
    assert main(["verify", str(good)]) == 4
    assert "content" in capsys.readouterr().out
    assert main(["verify", str(build.root / "step-99")]) == 4


def test_a_file_instead_of_a_directory_is_one_clear_line(tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "file").touch()
    assert main(["latest", str(tmp_path / "file")]) == 3
    assert capsys.readouterr().err == f"{tmp_path}/file: not a directory\n"


def test_register_needs_a_job_and_says_when_no_agent_listens(
    build: Build, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert main(["register", str(build.root)]) == 3
    assert "SLURM_JOB_ID" in capsys.readouterr().err
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert main(["register", str(build.root), "--layout", "dcp", "--save-signal", "USR1"]) == 4
    assert "no agent" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.slow
def test_root_judges_as_the_owner(build: Build, capsys: Out) -> None:
    good = build.holdfast(10)
    for path in [build.root, *build.root.rglob("*")]:
        os.chown(path, 65534, 65534)
    build.root.chmod(0o311)
    status = main(["latest", str(build.root)])
    assert (status, capsys.readouterr().out) == (3, ""), "not listable by its owner, though by root"
    build.root.chmod(0o755)
    assert main(["latest", str(build.root)]) == 0
    assert capsys.readouterr().out == f"{good}\n"


@pytest.mark.slow
def test_the_library_alone_is_enough(build: Build) -> None:
    good = build.holdfast(10)
    package = Path(__file__).parents[2] / "training"
    done = subprocess.run(
        [sys.executable, "-S", "-m", "holdfast_checkpoint", "latest", str(build.root)],
        env={"PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout == f"{good}\n"
