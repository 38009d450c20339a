"""``./dev``, run for real against stand-ins for the distribution: a PATH of stubs that record their arguments."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ("dev", ".ci/run", ".ci/slurm-release")
TOOLS = (
    *("awk", "basename", "cat", "chmod", "cp", "cut", "dirname", "env", "flock", "grep", "head", "id", "mkdir", "mv"),
    *("readlink", "rm", "sed", "sha256sum", "sh", "sleep", "tail", "tee", "tr", "xargs"),
)
PROVIDED = [
    "cc",
    "make",
    "slurmctld",
    "slurmd",
    "scontrol",
    "munged",
    "initdb",
    "faketime",
    "ip",
    "ps",
    "bwrap",
    "prometheus-alertmanager",
    "promtool",
    "chromium",
]

TRAIN = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("train = "))

PYTHON = """#!/bin/sh
echo "python $*" >>"$STUB_LOG"
case "$*" in
*-m\\ venv*) for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python" ;;
*-m\\ pip*) exit "${PIP_STATUS:-0}" ;;
esac
"""
APT = """#!/bin/sh
echo "apt-get $*" >>"$STUB_LOG"
case "$*" in
*install*)
	cat "$POLICY_RC_D" >"$STUB_LOG.policy"
	[ "${APT_STATUS:-0}" -eq 0 ] || exit "$APT_STATUS"
	for name in scontrol faketime; do printf '#!/bin/sh\\n' >"$STUB_BIN/$name"; chmod 755 "$STUB_BIN/$name"; done ;;
esac
"""


@dataclass
class Machine:
    """A machine whose PATH has only what a test puts there."""

    folder: Path

    @property
    def log(self) -> str:
        file = self.folder / "log"
        return file.read_text() if file.exists() else ""

    @property
    def policy(self) -> Path:
        return self.folder / "policy-rc.d"

    def put(self, name: str, text: str = "#!/bin/sh\n") -> None:
        file = self.folder / "bin" / name
        file.unlink(missing_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def take(self, name: str) -> None:
        (self.folder / "bin" / name).unlink()

    def dev(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        own = {
            "STUB_LOG": str(self.folder / "log"),
            "STUB_BIN": str(self.folder / "bin"),
            "POLICY_RC_D": str(self.policy),
        }
        return subprocess.run(
            [str(self.folder / "bin" / "sh"), "./dev", *arguments],
            cwd=self.folder / "repo",
            env={"PATH": str(self.folder / "bin"), "HOME": str(self.folder), **own, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "bin").mkdir()
    (tmp_path / "repo").mkdir()
    shutil.copy(ROOT / "dev", tmp_path / "repo" / "dev")
    (tmp_path / "repo" / "pyproject.toml").write_text(
        f'[project]\nname = "x"\n[project.optional-dependencies]\n{TRAIN}\n[tool.ruff]\nline-length = 1\n'
    )
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None, tool
        (tmp_path / "bin" / tool).symlink_to(found)
    made = Machine(tmp_path)
    for command in PROVIDED:
        made.put(command)
    made.put("python3", PYTHON)
    made.put("apt-get", APT)
    made.put("id", "#!/bin/sh\necho 0\n")
    return made


def test_nothing_missing_installs_nothing(machine: Machine) -> None:
    done = machine.dev("setup")
    assert done.returncode == 0, done.stderr
    assert "apt-get" not in machine.log
    assert _asked_of_pip(machine) == [".[dev]"]


def test_torch_is_for_those_verbs_alone_that_need_it_and_comes_before_what_depends_on_it(machine: Machine) -> None:
    machine.dev("demo")
    assert _asked_of_pip(machine) == [".[dev]"]
    machine.dev("lint")
    machine.dev("lint")
    assert _asked_of_pip(machine) == [".[dev]", "torch==2.13.0", "torchft==0.2.0"]


def _asked_of_pip(machine: Machine) -> list[str]:
    return [line.split()[-1] for line in machine.log.splitlines() if "-m pip install" in line]


def test_only_what_is_missing_is_installed_and_services_stay_off(machine: Machine) -> None:
    machine.take("scontrol")
    machine.take("faketime")
    machine.policy.write_text("#!/bin/sh\n# the site's own\nexit 0\n")
    done = machine.dev("setup")
    assert done.returncode == 0, done.stderr
    installs = [line for line in machine.log.splitlines() if line.startswith("apt-get") and " install " in line]
    assert len(installs) == 1
    assert installs[0].endswith("install slurm-client faketime")
    assert "slurm-client faketime" in done.stderr  # it says what it does
    assert "exit 101" in (machine.folder / "log.policy").read_text()
    assert "the site's own" in machine.policy.read_text()


def test_policy_is_restored_when_the_installation_fails(machine: Machine) -> None:
    machine.take("faketime")
    done = machine.dev("setup", APT_STATUS="100")
    assert done.returncode == 1
    assert "could not install: faketime" in done.stderr
    assert not machine.policy.exists()
    assert "-m pip" not in machine.log


def test_policy_left_by_a_killed_run_is_put_right(machine: Machine) -> None:
    machine.policy.write_text("#!/bin/sh\n# holdfast: no services while packages are installed\nexit 101\n")
    machine.policy.with_name("policy-rc.d.before-holdfast").write_text("# the site's own\n")
    machine.take("faketime")
    assert machine.dev("setup").returncode == 0
    assert machine.policy.read_text() == "# the site's own\n"


def test_without_root_and_sudo_it_says_what_to_run(machine: Machine) -> None:
    machine.take("faketime")
    machine.put("id", "#!/bin/sh\necho 1000\n")
    done = machine.dev("setup")
    assert done.returncode == 1
    assert "apt-get install --no-install-recommends faketime" in done.stderr
    assert "apt-get" not in machine.log


def test_sudo_serves_for_packages_only_and_never_asks_without_a_terminal(machine: Machine) -> None:
    machine.take("faketime")
    machine.put("id", "#!/bin/sh\necho 1000\n")
    machine.put("sudo", '#!/bin/sh\necho "sudo $*" >>"$STUB_LOG"\n[ "$1" = -n ] && shift\nexec "$@"\n')
    done = machine.dev("setup")
    assert done.returncode == 0, done.stderr
    asked = [line for line in machine.log.splitlines() if line.startswith("sudo")]
    assert asked
    assert all(line.startswith("sudo -n ") for line in asked)
    assert not any("pip" in line or "venv" in line for line in asked)


def test_a_distribution_that_is_not_known_is_told_what_is_needed(machine: Machine) -> None:
    machine.take("faketime")
    machine.take("apt-get")
    done = machine.dev("setup")
    assert done.returncode == 1
    assert "please install what provides: faketime" in done.stderr


def test_pip_runs_again_only_when_the_packaging_changed(machine: Machine) -> None:
    project = machine.folder / "repo" / "pyproject.toml"
    for text, runs in (
        (project.read_text(), 1),
        (project.read_text(), 1),
        (project.read_text().replace("line-length = 1", "line-length = 2"), 1),
        (project.read_text().replace('"x"', '"y"'), 2),
    ):
        project.write_text(text)
        assert machine.dev("setup").returncode == 0
        assert machine.log.count("--editable .[dev]") == runs


def test_python_that_is_too_old_is_passed_over(machine: Machine) -> None:
    machine.put("python3", '#!/bin/sh\necho "old $*" >>"$STUB_LOG"\nexit 1\n')
    machine.put("python3.12", PYTHON)
    done = machine.dev("setup")
    assert done.returncode == 0, done.stderr
    assert "bin/python3.12" in done.stderr
    assert "old -m venv" not in machine.log


def test_unknown_verb_shows_the_help(machine: Machine) -> None:
    done = machine.dev("tset")
    assert done.returncode == 1
    assert "no such verb: tset" in done.stderr
    assert "usage: ./dev" in done.stderr
    assert machine.log == ""


def test_help_knows_every_verb() -> None:
    text = (ROOT / "dev").read_text()
    verbs = re.findall(r"^([a-z0-9.-]+)\) setup\b", text, re.MULTILINE)
    shown = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True, timeout=10).stdout
    assert verbs == ["setup", "demo", "test", "lint", "bench", "lock", "docs", "soak", "slurm-24.11", "slurm-26.05"]
    assert [verb for verb in verbs if not re.search(rf"^  {re.escape(verb)}\b", shown, re.MULTILINE)] == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_posix_and_executable(script: str) -> None:
    path = ROOT / script
    assert path.read_text().startswith("#!/bin/sh\n")
    assert os.access(path, os.X_OK)
    shell = shutil.which("dash") or "/bin/sh"
    subprocess.run([shell, "-n", path], check=True, timeout=10)


def test_ci_runs_the_tests_and_nothing_else() -> None:
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")]
    assert commands == ["set -eu", 'cd "$(dirname "$0")/.."', "exec ./dev test </dev/null"]


def _tests(folder: Path, halves: str, lint: str) -> subprocess.Popen[str]:
    """``run_tests`` of dev, with these commands of the shell for the halves and for lint."""
    stub = folder / "python"
    stub.write_text(f"#!/bin/sh\n{halves}\n")
    stub.chmod(0o755)
    text = (ROOT / "dev").read_text(encoding="utf-8")
    function = text[text.index("run_tests() {") : text.index("run_docs() {")]
    script = f'set -eu\nCACHE=.\nsay() {{ echo "$*"; }}\nlint() {{ {lint}; }}\n{function}\nrun_tests tests/cli -x\n'
    env = {"PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.Popen(["sh", "-c", script], cwd=folder, env=env, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("halves", "lint", "code"), [("exit 0", "true", 0), ("exit 3", "true", 3), ("exit 0", "return 1", 1)]
)
def test_tests_and_lint_are_one_status(tmp_path: Path, halves: str, lint: str, code: int) -> None:
    with _tests(tmp_path, f'echo "$@" >given\n{halves}', lint) as process:
        assert process.wait(30) == code
    assert (tmp_path / "given").read_text() == "tests/support/halves.py tests/cli -x\n"


@pytest.mark.slow
def test_a_signal_to_dev_alone_ends_the_tests_before_dev_ends(tmp_path: Path) -> None:
    waits = "trap 'sleep 1; touch ended; exit 130' TERM\ntouch begun\nwhile :; do sleep 0.1; done"
    with _tests(tmp_path, waits, "exec sleep 60") as process:
        deadline = time.monotonic() + 30
        while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.terminate()
        assert process.wait(30) == 130
        assert (tmp_path / "ended").exists()
