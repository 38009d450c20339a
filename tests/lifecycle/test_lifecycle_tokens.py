"""tokens.sh: one token per node, kept where the node looks, made once."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from lifecycle.lifecycle_support import SCRIPTS, fake_command, run_script

pytestmark = pytest.mark.slow
TOKENS = SCRIPTS / "tokens.sh"
MAKE = 'echo "$*" >>"$0.calls"; echo "secret-of_$4"'


def made(tmp_path: Path) -> list[str]:
    calls = tmp_path / "bin/holdfast.calls"
    return calls.read_text().splitlines() if calls.exists() else []


def commands(tmp_path: Path, aws: str = "exit 255") -> Path:
    fake_command(tmp_path / "bin", "holdfast", MAKE)
    fake_command(tmp_path / "bin", "runuser", 'shift 3; exec "$@"')
    fake_command(tmp_path / "bin", "sinfo", "printf 'n1\\nn2\\nn1\\n'")
    return fake_command(tmp_path / "bin", "aws", aws)


def test_all_nodes_of_slurm_into_a_folder_once(tmp_path: Path) -> None:
    path, place = commands(tmp_path), tmp_path / "fsx/tokens"
    for _ in range(2):
        done = run_script(
            TOKENS, tmp_path, "--to", f"file:{place}", path=path, settings={"HOLDFAST": str(path / "holdfast")}
        )
        assert done.returncode == 0, done.stderr
    assert made(tmp_path) == ["token create agent n1", "token create agent n2"]
    assert (place / "n2").read_text() == "secret-of_n2\n"
    assert stat.S_IMODE((place / "n2").stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


PARAMETERS = """case "$2" in
get-parameter) echo "An error occurred (ParameterNotFound) when calling" >&2; exit 254 ;;
put-parameter) echo "$*" >"$0.line"; cat >"$0.document" ;;
esac"""


def test_parameter_store_gets_it_on_standard_input(tmp_path: Path) -> None:
    path = commands(tmp_path, PARAMETERS)
    done = run_script(
        TOKENS, tmp_path, "--to", "ssm:/holdfast/c1", "n7", path=path, settings={"HOLDFAST": str(path / "holdfast")}
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((path / "aws.document").read_text())
    assert document == {"Name": "/holdfast/c1/n7", "Value": "secret-of_n7", "Type": "SecureString"}
    assert "secret" not in (path / "aws.line").read_text() + done.stderr + done.stdout


def test_no_answer_is_not_no_token(tmp_path: Path) -> None:
    path = commands(tmp_path, "echo 'Unable to locate credentials' >&2; exit 253")
    done = run_script(
        TOKENS, tmp_path, "--to", "secretsmanager:h", "n7", path=path, settings={"HOLDFAST": str(path / "holdfast")}
    )
    assert done.returncode == 1
    assert made(tmp_path) == []


@pytest.mark.parametrize("arguments", [(), ("--to", "n1"), ("--to", "file:/x", "../n1"), ("--to", "file:/x", "a b")])
def test_wrong_words_make_nothing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = commands(tmp_path)
    done = run_script(TOKENS, tmp_path, *arguments, path=path, settings={"HOLDFAST": str(path / "holdfast")})
    assert done.returncode == 2
    assert made(tmp_path) == []
