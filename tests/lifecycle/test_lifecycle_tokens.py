"""tokens.sh: one token per node, kept where the node reads it, made once."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from holdfast.api.callers.auth import hash_token
from lifecycle.lifecycle_support import SCRIPTS, fake_command, run_script, write

pytestmark = pytest.mark.slow
TOKENS = SCRIPTS / "tokens.sh"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
MAKE = """case "$2" in
list) cat "$0.list" ;;
*) echo "$*" >>"$0.calls"; echo "secret-of_$4" ;;
esac"""


def store_has(tmp_path: Path, *rows: tuple[str, str, str]) -> None:
    """(token, node, state) of each."""
    listed = [
        {"hash": hash_token(token), "role": "agent", "subject": node, "state": state} for token, node, state in rows
    ]
    write(tmp_path / "bin/holdfast.list", json.dumps(listed))


def made(tmp_path: Path) -> list[str]:
    calls = tmp_path / "bin/holdfast.calls"
    return calls.read_text().splitlines() if calls.exists() else []


def commands(tmp_path: Path, aws: str = "exit 255") -> Path:
    fake_command(tmp_path / "bin", "holdfast", MAKE)
    store_has(tmp_path, ("secret-of_n1", "n1", "valid"), ("secret-of_n2", "n2", "valid"))
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
    assert document == {
        "Name": "/holdfast/c1/n7",
        "Value": "secret-of_n7",
        "Type": "SecureString",
        "Overwrite": True,
    }
    assert "secret" not in (path / "aws.line").read_text() + done.stderr + done.stdout


SECRETS = """echo "$2" >>"$0.verbs"
case "$2" in
describe-secret) cat "$0.deleted" ;;
get-secret-value) echo secret-of_n1 ;;
restore-secret) ;;
put-secret-value) cat >"$0.document" ;;
*) exit 255 ;;
esac"""


@pytest.mark.parametrize(
    ("deleted", "argv", "verbs"),
    [
        ("2026-01-02T03:04:05+00:00", ["n1"], ["describe-secret", "restore-secret", "put-secret-value"]),
        ("None", ["--replace", "n1"], ["describe-secret", "get-secret-value", "put-secret-value"]),
        ("None", ["n1"], ["describe-secret", "get-secret-value"]),
    ],
)
def test_a_secret_is_replaced(tmp_path: Path, deleted: str, argv: list[str], verbs: list[str]) -> None:
    path = commands(tmp_path, SECRETS)
    write(path / "aws.deleted", deleted + "\n")
    where = ("--to", "secretsmanager:holdfast/c1")
    done = run_script(TOKENS, tmp_path, *where, *argv, path=path, settings={"HOLDFAST": str(path / "holdfast")})
    assert done.returncode == 0, done.stderr
    assert (path / "aws.verbs").read_text().split() == verbs
    if "put-secret-value" in verbs:
        document = json.loads((path / "aws.document").read_text())
        assert (document["SecretId"], document["SecretString"]) == ("holdfast/c1/n1", "secret-of_n1")
    assert "secret-of" not in done.stderr + done.stdout


@pytest.mark.parametrize("row", [None, ("lost", "n1", "ended"), ("lost", "n1", "revoked"), ("lost", "n9", "valid")])
def test_what_the_store_does_not_take_is_named_and_mended(tmp_path: Path, row: tuple[str, str, str] | None) -> None:
    path, place = commands(tmp_path), tmp_path / "tokens"
    store_has(tmp_path, *([row] if row else []), ("secret-of_n2", "n2", "valid"))
    write(place / "n1", "lost\n")
    write(place / "n2", "secret-of_n2\n")
    place.chmod(0o700)
    settings = {"HOLDFAST": str(path / "holdfast")}
    done = run_script(TOKENS, tmp_path, "--to", f"file:{place}", path=path, settings=settings)
    assert (done.returncode, made(tmp_path), (place / "n1").read_text()) == (1, [], "lost\n")
    assert done.stderr.endswith("--mend replaces them: n1\n")
    done = run_script(TOKENS, tmp_path, "--to", f"file:{place}", "--mend", path=path, settings=settings)
    assert (done.returncode, made(tmp_path)) == (0, ["token create agent n1"])
    assert (place / "n1").read_text() == "secret-of_n1\n"


def told(path: Path, tmp_path: Path, *arguments: str) -> tuple[int, str]:
    done = run_script(TOKENS, tmp_path, *arguments, path=path, settings={"HOLDFAST": str(path / "holdfast")})
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("open_to", "owner", "why"),
    [
        ("fsx/tokens", None, "tokens may be written by its group or by everybody"),
        ("fsx", None, "everybody may put another folder in place of one in"),
        pytest.param("", "fsx/tokens", "tokens belongs to uid 65534", marks=needs_root),
        pytest.param("", "fsx", "fsx belongs to uid 65534", marks=needs_root),
    ],
)
def test_no_token_is_made_for_a_folder_that_others_can_write_to(
    tmp_path: Path, open_to: str, owner: str | None, why: str
) -> None:
    """A user who was there first would read the tokens of all nodes, and have root write through a link of theirs."""
    path, place, precious = commands(tmp_path), tmp_path / "fsx/tokens", write(tmp_path / "precious", "as it was")
    place.mkdir(parents=True)
    (place / ".n1.new").symlink_to(precious)
    if open_to:
        (tmp_path / open_to).chmod(0o777)
    if owner is not None:
        os.chown(tmp_path / owner, 65534, 65534)
    status, said = told(path, tmp_path, "--to", f"file:{place}", "n1")
    assert (status, made(tmp_path), precious.read_text()) == (1, [], "as it was")
    assert why in said
    assert said.count("\n") == 1


def test_a_link_that_lies_there_from_earlier_is_not_written_through(tmp_path: Path) -> None:
    path, place, precious = commands(tmp_path), tmp_path / "tokens", write(tmp_path / "precious", "as it was")
    place.mkdir(mode=0o700)
    (place / ".n1.new").symlink_to(precious)
    assert told(path, tmp_path, "--to", f"file:{place}", "n1")[0] == 0
    assert (precious.read_text(), (place / "n1").read_text()) == ("as it was", "secret-of_n1\n")


@pytest.mark.parametrize("theirs", [False, pytest.param(True, marks=needs_root)])
def test_a_token_that_others_may_have_read_is_named_and_replaced(tmp_path: Path, theirs: bool) -> None:
    path, place = commands(tmp_path), tmp_path / "tokens"
    there = write(place / "n1", "secret-of_n1\n")
    place.chmod(0o700 if theirs else 0o755)
    if theirs:
        os.chown(there, 65534, 65534)
    status, said = told(path, tmp_path, "--to", f"file:{place}", "n1")
    assert (status, made(tmp_path)) == (1, [])
    assert said.endswith("--mend replaces them, then revoke the old ones: n1\n")
    status, said = told(path, tmp_path, "--to", f"file:{place}", "--mend", "n1")
    assert (status, made(tmp_path)) == (0, ["token create agent n1"])
    assert (there.stat().st_uid, stat.S_IMODE(there.stat().st_mode)) == (os.geteuid(), 0o600)


def test_without_the_store_nothing_is_made(tmp_path: Path) -> None:
    path = commands(tmp_path)
    (path / "holdfast.list").unlink()
    done = run_script(
        TOKENS,
        tmp_path,
        *("--to", f"file:{tmp_path}/tokens", "--mend", "n7"),
        path=path,
        settings={"HOLDFAST": str(path / "holdfast")},
    )
    assert (done.returncode, made(tmp_path)) == (1, [])


def test_no_answer_is_not_no_token(tmp_path: Path) -> None:
    path = commands(tmp_path, "echo 'Unable to locate credentials' >&2; exit 253")
    done = run_script(
        TOKENS, tmp_path, "--to", "secretsmanager:h", "n7", path=path, settings={"HOLDFAST": str(path / "holdfast")}
    )
    assert done.returncode == 1
    assert made(tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [(), ("--to", "n1"), ("--to", "file:/x", "--replace"), ("--to", "file:/x", "../n1"), ("--to", "file:/x", "a b")],
)
def test_wrong_words_make_nothing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = commands(tmp_path)
    done = run_script(TOKENS, tmp_path, *arguments, path=path, settings={"HOLDFAST": str(path / "holdfast")})
    assert done.returncode == 2
    assert made(tmp_path) == []
