"""What ``holdfast submit`` passes to sbatch, and what it refuses before anything is queued."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.cli.app import run
from holdfast.launcher.arrays import ArrayRequest, foreign_words, named, script_comment, shown, split, take_comment
from holdfast.model.elastic_jobs.elastic import ElasticSpec, parse_comment
from holdfast.model.elastic_jobs.sizes import parse_sizes

BOTH = ("--base-partition", "train", "--flex-partition", "flex")


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        ("run.sh --comment x", 0),
        ("-N 2 run.sh", 2),
        ("-N2 run.sh", 1),
        ("--time 1:00 --exclusive run.sh a", 3),
        ("--time=1:00 -H run.sh", 2),
        ("--exclusive=user --mem 4G run.sh", 3),
        ("--wrap x", 2),
        ("-", 0),
    ],
)
def test_where_the_script_begins(typed: str, options: int) -> None:
    words = typed.split()
    assert split(words) == (words[:options], words[options:])


@pytest.mark.parametrize(
    ("typed", "kept", "comment"),
    [
        ("--comment a -N 2", "-N 2", "a"),
        ("--comment=a,b --exclusive", "--exclusive", "a,b"),
        ("-J --comment=a --mem 4G", "-J --comment=a --mem 4G", ""),  # the job's name, odd as it is
    ],
)
def test_the_comment_is_taken_out(typed: str, kept: str, comment: str) -> None:
    assert take_comment(typed.split()) == (kept.split(), comment)


def test_words_of_other_uses_stay() -> None:
    text = '#!/bin/sh\n#SBATCH -N2 --comment="holdfast team=a"\n#SBATCH --comment \'x,y\' # mine\n#SBATCH --mem="4G\ntrue\n'
    assert script_comment(text) == "x,y"
    assert foreign_words(("holdfast team=a,elastic=2:3 of=7 spares=1", "x team=a")) == ("team=a", "x")


def test_options_are_found_in_every_spelling() -> None:
    assert all(named(words.split(), "array", "a") for words in ("--array 1", "--array=1", "-a 1", "-a1", "-N 2 -a1"))
    assert not any(named(words.split(), "array", "a") for words in ("--account x", "-J -a1", "-A a", ""))


@pytest.mark.parametrize(
    ("sizes", "spares", "base", "flexible"),
    [
        ("2:4", 0, "0-1", "2-3"),
        ("1:3", 2, "0", "1-4"),
        ("2:8:2+4+8", 0, "0-1", "2-7"),
        ("2:3", 0, "0-1", "2"),
        ("3:3", 0, "0-2", None),
    ],
)
def test_the_arrays_are_the_groups(sizes: str, spares: int, base: str, flexible: str | None) -> None:
    spec = ElasticSpec(parse_sizes(sizes), spares)
    assert (shown(spec.base_indices), shown(spec.flexible_indices) if spec.flexible_indices else None) == (
        base,
        flexible,
    )
    request = ArrayRequest(spec, ("--qos=high",), ("--qos=low",), ("-N1", "run.sh", "--array=7"), ("team=a",))
    assert f"--array={base}" in request.base
    assert request.base[-4:] == ["--qos=high", "-N1", "run.sh", "--array=7"]
    later = request.flexible(71)
    assert (later is None) == (flexible is None)
    if later is not None:
        (comment,) = [word.partition("=")[2] for word in later if word.startswith("--comment=")]
        assert parse_comment(comment) == ElasticSpec(spec.sizes, spares, 71)
        assert comment.endswith(" team=a")


def test_a_dry_run_prints_what_a_shell_can_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--spares", "1", *BOTH, "--dry-run", "-N1", "--comment", "team=a", str(tmp_path / "my job.sh"), "--lr", "1"]
    assert run(["submit", "--elastic", "2:4", *argv]) == 0
    (tmp_path / "sbatch").write_text('#!/bin/sh\nfor word; do printf "<%s>" "$word"; done >&2\necho "71;here"\n')
    (tmp_path / "sbatch").chmod(0o755)
    lines = capsys.readouterr().out
    done = subprocess.run(
        ["sh", "-c", lines], env={"PATH": f"{tmp_path}:/bin:/usr/bin"}, capture_output=True, text=True, check=True
    )
    assert "<--array=0-1><--comment=holdfast elastic=2:4 spares=1 team=a><--partition=train><-N1>" in done.stderr
    assert "<--array=2-4><--comment=holdfast elastic=2:4 spares=1 of=71 team=a><--partition=flex><-N1>" in done.stderr
    assert done.stderr.count(f"<{tmp_path}/my job.sh><--lr><1>") == 2


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("--elastic", "4:2", "run.sh"), "--elastic '4:2'"),
        (("--elastic", "2:5:2", "run.sh"), "steps of 2"),
        (("--elastic", "2:4"), "SCRIPT"),
        (("--elastic", "2:4", "-N", "2"), "which script"),
        (("--elastic", "2:4", "--spares", "-1", "run.sh"), "--spares"),
        (("--elastic", "2:4", "--batch", "64", "run.sh"), "--batch and --micro"),
        (("--elastic", "2:4", "--batch", "64", "--micro", "5", "run.sh"), "64 cannot be divided into micro-batches of 5"),
        (("--elastic", "2:4", "--batch", "6", "--micro", "2", "run.sh"), "4 groups cannot share 3 micro-batches"),
        (("--elastic", "2:4", "--base-partition", "train", "run.sh"), "--flex-partition"),
        (("--elastic", "2:4", "--flex-qos", "low", "run.sh"), "--base-qos"),
        (("--elastic", "2:4", *BOTH, "-p", "train", "run.sh"), "both arrays into one partition"),
        (("--elastic", "2:4", "-a", "0-3", "run.sh"), "--array is not yours"),
        (("run.sh",), "--elastic"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_queues_nothing(
    argv: tuple[str, ...], word: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert run(["submit", *argv]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("holdfast: ")
    assert said.err.count("\n") == 1
    assert word in said.err


def test_a_cluster_without_sbatch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert run(["submit", "--elastic", "2:4", *BOTH, "run.sh"]) == 3
    assert capsys.readouterr().err == "holdfast: sbatch cannot be run: No such file or directory\n"
