"""The SPANK plug-in and ``holdfast-ask`` under AddressSanitizer and UndefinedBehaviorSanitizer, with random and hostile inputs.

It runs in each job's process on the node, before the job's own code. A seed selects the inputs: ``HOLDFAST_SPANK_SEED=N``."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from support.slurm_plugins import PLUGINS, SLURM_INCLUDE, has_headers

HARNESS = Path(__file__).with_name("spank_random.c")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
FLAGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-O1", *SANITIZERS)
ROUNDS, SOAK_ROUNDS = 10_000, 1_000_000
"""A round is a submission, a start on a node and two texts read; a million take some eight minutes."""


def build(folder: Path, sources: Path) -> Path:
    program = folder / "spank_random"
    argv = ["cc", *FLAGS, f"-isystem{SLURM_INCLUDE}" if SLURM_INCLUDE != "/usr/include" else "-I.", f"-I{sources}"]
    done = subprocess.run(
        [*argv, "-o", str(program), str(HARNESS), str(sources / "agent.c"), "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return program


def run(program: Path, folder: Path, seed: int, rounds: int) -> subprocess.CompletedProcess[str]:
    argv = [str(program), str(seed), str(rounds), str(folder / "agent.sock")]
    options = {"ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    (folder / "agent.sock").unlink(missing_ok=True)
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=3000, env={**os.environ, **options}, check=False
    )


@pytest.fixture
def folder(short_folder: Path) -> Path:
    if not has_headers():
        pytest.skip("no slurm/spank.h here (Debian: libslurm-dev); ./dev setup installs it")
    argv = ["cc", *SANITIZERS, "-x", "c", "-o", "/dev/null", "-"]
    if subprocess.run(argv, input=b"int main(void){return 0;}\n", capture_output=True, check=False).returncode:
        pytest.skip("the compiler's sanitizers are not here (libasan, libubsan; Debian's gcc brings them)")
    made = short_folder / "sanitized"
    made.mkdir(exist_ok=True)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    "rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_no_input_makes_the_plug_in_touch_what_is_not_its_own(folder: Path, rounds: int) -> None:
    seed = int(os.environ.get("HOLDFAST_SPANK_SEED") or os.environ.get("HOLDFAST_SOAK_SEED") or random.randrange(2**32))
    done = run(build(folder, PLUGINS / "spank"), folder, seed, rounds)
    assert done.returncode == 0, f"HOLDFAST_SPANK_SEED={seed}, {rounds} rounds: {done.stderr[-6000:]}"
    assert done.stdout == f"seed {seed}: {rounds} rounds\n"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("agent.c", "used + 1 >= size", "used > size"),
        ("spank_holdfast.c", "strlen(av[i] + 7) < sizeof", "strlen(av[i] + 7) <= sizeof"),
        ("spank_holdfast.c", "\tfree(both);\n", ""),
        ("agent.c", "\tclose(fd);\n\treturn rc;\n", "\treturn rc;\n"),
    ],
)
def test_a_fault_that_is_put_in_is_found(folder: Path, name: str, good: str, bad: str) -> None:
    """A byte too far, on the heap and in a static buffer; memory and descriptors that are not given back."""
    sources = folder / "sources"
    shutil.copytree(PLUGINS / "spank", sources, dirs_exist_ok=True)
    text = (sources / name).read_text()
    assert good in text
    (sources / name).write_text(text.replace(good, bad))
    assert run(build(folder, sources), folder, 3, 4000).returncode != 0
