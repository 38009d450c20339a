"""The sbatch template: it resumes where it can, and never starts from scratch because a query failed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.slurm_plugins import PLUGINS

pytestmark = pytest.mark.slow

_SRUN = '#!/bin/sh\necho "srun $* from=${HOLDFAST_RESUME_FROM-unset} dir=$HOLDFAST_CHECKPOINT_DIR"\n'


def run(folder: Path, latest: str, register: str = "exit 0", **environment: str) -> tuple[int, str]:
    """Run the template between stand-ins of srun and holdfast."""
    programs = folder / "bin"
    programs.mkdir()
    holdfast = f"#!/bin/sh\ncase $2 in\nregister) {register} ;;\nlatest) {latest} ;;\nesac\n"
    for name, text in (("srun", _SRUN), ("holdfast", holdfast)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    slurm = {"SLURM_SUBMIT_DIR": str(folder), "SLURM_JOB_NAME": "train", "SLURM_JOB_NODELIST": "n[1-4]"}
    done = subprocess.run(
        ["sh", str(PLUGINS / "templates" / "train.sbatch"), "train.py", "--lr", "1"],
        env={"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **slurm, **environment},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("latest", "environment", "begins_from"),
    [
        ("echo /c/step-7; exit 0", {}, "/c/step-7"),
        ("exit 4", {}, "unset"),
        ("exit 3", {"HOLDFAST_RESUME_FROM": "/told/by/plug-in"}, "/told/by/plug-in"),
    ],
)
def test_it_goes_on_from_the_newest(tmp_path: Path, latest: str, environment: dict[str, str], begins_from: str) -> None:
    status, said = run(tmp_path, latest, **environment)
    assert status == 0
    assert f"srun --kill-on-bad-exit=1 train.py --lr 1 from={begins_from} dir={tmp_path}/checkpoints-train" in said


@pytest.mark.parametrize("latest", ["exit 3", "exit 1", "exit 2", "exit 127", "kill -9 $$"])
def test_what_cannot_be_asked_is_no_reason_to_start_afresh(tmp_path: Path, latest: str) -> None:
    status, said = run(tmp_path, latest)
    assert (status, "srun" in said) == (75, False)


@pytest.mark.parametrize(("python", "status"), [("echo /c/step-7", 0), ("exit 4", 0), ("exit 3", 75), (None, 75)])
def test_in_an_image_the_agents_copy_is_asked(tmp_path: Path, python: str | None, status: int) -> None:
    """No holdfast on PATH; None: no Python either."""
    programs = tmp_path / "image"
    programs.mkdir()
    scripts = {"srun": "echo srun from=${HOLDFAST_RESUME_FROM-unset}", "mkdir": 'exec /bin/mkdir "$@"'}
    if python is not None:
        scripts["python3"] = f'echo "asked $*" >&2\ncase $2 in latest) {python} ;; esac'
    for name, text in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", str(PLUGINS / "templates" / "train.sbatch"), "train.py"],
        env={
            "PATH": str(programs),
            "SLURM_SUBMIT_DIR": str(tmp_path),
            "SLURM_JOB_NAME": "t",
            "SLURM_JOB_NODELIST": "n1",
        },
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, "srun from" in done.stdout) == (status, status == 0)
    if python is not None:
        asked = [line for line in done.stderr.splitlines() if line.startswith("asked")]
        verbs = f"/run/holdfast/checkpoint.pyz {{}} {tmp_path}/checkpoints-t"
        assert asked == [f"asked {verbs.format('register')}", f"asked {verbs.format('latest')}"]


def test_without_an_agent_it_trains_all_the_same(tmp_path: Path) -> None:
    assert run(tmp_path, "exit 4", register="exit 1")[0] == 0


def test_its_options_are_those_that_recovery_needs() -> None:
    text = (PLUGINS / "templates" / "train.sbatch").read_text()
    for option in ("--requeue", "--open-mode=append", "--comment=holdfast"):
        assert f"#SBATCH {option}\n" in text
    assert (
        shutil.which("shellcheck") is None
        or not subprocess.run(["shellcheck", str(PLUGINS / "templates" / "train.sbatch")], check=False).returncode
    )
