"""Jobs' reports cost their node no disk: the agent refuses what the wire would, and keeps nothing that was refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.jobs.questions import parse_question
from holdfast.agent.sending import deadletters
from holdfast.agent.sending.deadletters import MOST_BYTES, NAME, DeadLetters
from holdfast.agent.sending.statements import KINDS, Malformed, parse
from holdfast.api.requests.wire import StatementItem

_NUMBERS = st.integers(-1, 3) | st.sampled_from([2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 10**400])
_TEXTS = st.text(max_size=5) | st.sampled_from(["\x80", "\x9f", "\u2028", "\u2029", "\x7f", "x" * 4100])
_VALUES = _NUMBERS | _TEXTS | st.booleans() | st.floats() | st.none() | st.just(["x"]) | st.just({"a": 1})


@pytest.mark.slow
@given(
    kind=st.sampled_from(sorted(KINDS)),
    job_id=_NUMBERS,
    restarts=_NUMBERS,
    step=_NUMBERS | st.none(),
    path=_TEXTS.map(lambda text: f"/{text}"),
    more=st.dictionaries(st.sampled_from(["run", "phase", "bytes", "step_ms", "layout", "fenced"]), _VALUES),
)
def test_what_the_agent_takes_the_wire_takes(
    kind: str, job_id: int, restarts: int, step: int | None, path: str, more: dict[str, Any]
) -> None:
    line = {**more, "kind": kind, "job_id": job_id, "restarts": restarts, "step": step, "dir": path, "path": path}
    try:
        said = parse(json.dumps(line).encode())
    except Malformed:
        return
    assert StatementItem.model_validate(said.item(4242, 0.0).body)


def test_restarts_beyond_what_slurm_counts_are_refused_at_the_socket() -> None:
    for line in (
        {"kind": "checkpoint.register", "job_id": 7, "restarts": 2**31 + 6, "dir": "/c"},
        {"v": 1, "kind": "ask.room", "job_id": 7, "restarts": 2**31},
    ):
        with pytest.raises(Malformed, match="restarts must be"):
            parse(json.dumps(line).encode()) if "dir" in line else parse_question(json.dumps(line).encode())


def test_a_statement_is_never_kept_and_said_of_ever_more_seldom(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dead = DeadLetters()
    for number in range(2500):
        assert dead.write(number, "b", [{"kind": "statement", "path": "/" + "x" * 4000}], tmp_path, "too large")
    assert not (tmp_path / NAME).exists()
    assert len(caplog.records) < 10


def test_a_finding_beside_a_statement_is_kept_alone(tmp_path: Path) -> None:
    DeadLetters().write(1, "b", [{"kind": "statement"}, {"kind": "finding", "code": "79"}], tmp_path, "no")
    assert [i["kind"] for i in json.loads((tmp_path / NAME).read_text())["items"]] == ["finding"]


def test_dead_letters_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_BYTES <= 4 * 1024 * 1024
    monkeypatch.setattr(deadletters, "MOST_BYTES", 10_000)
    dead = DeadLetters()
    for number in range(100):
        assert dead.write(number, "b", [{"kind": "finding", "summary": "x" * 900}], tmp_path, "no")
    assert sorted(p.name for p in tmp_path.iterdir()) == [NAME, f"{NAME}.1"]
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 20_000
    assert json.loads((tmp_path / NAME).read_text().splitlines()[-1])["sequence"] == 99
