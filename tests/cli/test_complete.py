"""The shell completes names of nodes and incidents; without a controller it completes nothing, soon and silently."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer._completion_classes import ZshComplete

from holdfast.api.answers.overview_shapes import NamesShape
from holdfast.cli.common import complete

ID = "0h3k5d2m8x1q"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, site: dict[str, str]) -> None:
    for name, value in site.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("here")
def test_names_are_completed() -> None:
    assert complete.nodes("n") == ["n1", "n2"]
    assert complete.nodes("n1,n") == ["n1,n1", "n1,n2"]
    assert complete.nodes("n[1-") == []
    assert complete.nodes("x") == []
    assert complete.incidents("0h") == [(ID, "n1 awaiting_human: gpu.xid 79 GPU-3: fell off the bus")]


@pytest.mark.parametrize(
    "env",
    [{"HOLDFAST_URL": "http://127.0.0.1:1"}, {"HOLDFAST_TOKEN": "wrong"}, {"HOLDFAST_URL": "nonsense"}],
    ids=["no controller", "no right", "no url"],
)
def test_what_fails_is_silent(here: None, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert (complete.nodes("n"), complete.incidents("0")) == ([], [])
    assert capfd.readouterr() == ("", "")


def test_a_controller_that_hangs_is_not_waited_for(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("HOLDFAST_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        began_s = time.monotonic()
        assert complete.nodes("n") == []
        assert 0.4 < time.monotonic() - began_s < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "word", "names"),
    [
        ("holdfast nodes n", 2, "n1\nn2"),
        ("holdfast incident show 0h", 3, ID),
        ("holdfast incidents --node n2", 3, "n2"),
    ],
)
def test_bash_gets_them(site: dict[str, str], line: str, word: int, names: str) -> None:
    env = {**os.environ, **site, "_HOLDFAST_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(word)}
    code = "import sys; sys.argv[0] = 'holdfast'; from holdfast.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert names in done.stdout, done.stderr


HOSTILE = [
    r"\$(touch ran)",
    "$(touch ran)",
    "`touch ran`",
    r"\`touch ran`",
    r"\"; touch ran; \"",
    "'; touch ran; '",
    r"\'; touch ran; \'",
    "[/red]\n touch ran",
    "x\x1b]0;title\x07 \u202e",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_an_agent_is_run_by_the_shell_that_completes(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = NamesShape(nodes=[text, "n1"], incidents=[text, ID], about={ID: f"n1 open: {text}", text: text})
    monkeypatch.setattr(complete, "_names", lambda _prefix: iter([shown]))
    items = [SimpleNamespace(value=name, help=about) for name, about in complete.incidents("")]
    items += [SimpleNamespace(value=name, help=None) for name in complete.nodes("")]
    # as Typer's script for zsh and zsh's _arguments, which evaluates the text within "(( ))"
    shell = """_arguments() { local action=${1#'*: :'}; eval "words=( ${action:2:-2} )"; }; eval "_arguments '*: :(($1))'" """
    for item in items:
        formatted = ZshComplete.format_completion(None, item)  # type: ignore[arg-type]
        subprocess.run(["bash", "-c", shell, "bash", formatted], cwd=tmp_path, check=False, capture_output=True)
    assert list(tmp_path.iterdir()) == []
    assert [item.value for item in items] == [ID, "n1"]
    assert items[0].help.startswith("n1 open: ")
