"""Wrong use is one clear line on standard error; the short timeline omits nothing that matters; the demo's lines fit."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.api.answers.shapes import EventShape
from holdfast.cli.common.problems import said
from holdfast.cli.views.reading import main_events
from holdfast.model.errors import HoldfastError, NotFound, Rejected, Unavailable, Usage
from holdfast.practice.cluster.site import PracticeSite
from holdfast.practice.demo import timeline

WRONG = [
    (("nope",), "Did you mean 'node', 'nodes'"),
    (("nodes", "--worst"), "--worst"),
    (("nodes", "n[3-1]"), "runs backwards"),
    (("incidents", "--since", "soon"), "no time such as yesterday, 18:00"),
    (("night", "--since", "25:00"), "no time of day"),
    (("night", "--since", "1h", "--until", "2h"), "is not before --until"),
    (("audit", "--since", "tomorrow"), "no time such as"),
    (("saved", "--manual-minutes", "0"), "--manual-minutes"),
    (("--bad",), "--bad"),
    (("incident", "show"), "'ID'"),
    (("incidents", "--limit", "0"), "--limit"),
    (("jobs", "--job", "x"), "--job"),
    (("metrics", "--days", "-1"), "--days"),
    (("release", "nope"), "drains, job_stops, planned_stops, task_drains"),
    (("practice", "inject", "n2"), "fault"),
    (("practice", "inject", "n2", "xld", "79"), "did you mean xid?"),
    (("practice", "inject", "n2", "clock_skew"), "inject n2 clock_skew 300"),
    (("practice", "inject", "n2", "nvlink_down"), "the link's number"),
    (("practice", "inject", "n2", "power_loss", "all"), "takes no value"),
    (("suppress", "--node", "n1", "--for", "91d", "-r", "x"), "at most 90d"),
    (("maintain", "n[3-1]", "--for", "4h", "-w", "x"), "runs backwards"),
    (("maintain", "n1", "--for", "0h", "-w", "x"), "not more than nothing"),
    (("maintain", "n1", "--for", "31d", "-w", "x"), "at most 30d"),
    (("maintain", "n1", "--for", "99d", "-w", "x"), "at most 30d"),
    (("budget", "extend", "ended", "--plus", "1", "--for", "99d", "-r", "x"), "at most 7d"),
    (("maintain", "n1"), "--for 4h --why"),
    (("maintain", "--end"), "which nodes"),
    (("unsuppress", "nope"), "no suppression's id"),
    (("practice", "up", "--nodes", "2", "--spares", "2"), "leave none to work"),
    (("checkpoint", "latest"), "directory"),
]


@pytest.mark.parametrize(("argv", "word"), WRONG)
def test_one_line_and_status_2(holdfast: Any, argv: tuple[str, ...], word: str) -> None:
    got = holdfast(*argv)
    assert got.status == 2
    assert got.out == ""
    assert got.err.startswith("holdfast: ")
    assert got.err.count("\n") == 1
    assert word in got.err


@pytest.mark.parametrize("verb", ["up", "env", "status", "down"])
def test_a_folder_that_is_no_practice_cluster(holdfast: Any, tmp_path: Path, verb: str) -> None:
    folder = tmp_path / ("x" * 60)  # too long for `up`, and nothing is there for the others
    got = holdfast("practice", verb, "--dir", str(folder))
    assert got.status == 2
    assert got.err.count("\n") == 1
    assert str(folder) in got.err
    assert not folder.exists()


def test_a_cluster_that_is_there_does_not_become_elastic(holdfast: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="hfp", dir="/tmp") as name:
        PracticeSite.create(f"{name}/p", nodes=2, spares=0)
        got = holdfast("practice", "up", "--elastic", "--dir", f"{name}/p")
    assert (got.status, got.out) == (2, "")
    assert "without --elastic: end it first" in got.err


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (NotFound("There is no incident 0zzz; GET /v1/incidents lists them"), "0zzz; `holdfast incidents` lists them"),
        (
            NotFound("there is no incident '0zzz'"),
            "there is no incident '0zzz'; `holdfast incidents` lists those there are",
        ),
        (NotFound("There is no node n99; GET /v1/nodes lists them"), "n99; `holdfast nodes` lists them"),
        (
            Usage("This needs the role operator; the token has viewer"),
            "`holdfast token create ROLE NAME` on the head node",
        ),
        (Unavailable("the store does not answer: x"), "does not answer: x; `holdfast doctor` on the head node"),
        (Unavailable("the controller at X does not answer: y; is `holdfast controller` running?"), "running?"),
        (Rejected("n1 is taken"), "n1 is taken"),
    ],
)
def test_an_error_says_the_next_command(error: HoldfastError, line: str) -> None:
    assert said(error).endswith(line) or line in said(error)
    assert "GET /v1" not in said(error)


def _event(name: str, text: str = "", at_s: float = 0.0, **detail: str) -> dict[str, Any]:
    at = datetime.fromtimestamp(at_s, UTC).isoformat()
    return {"kind": name, "text": text, "at": at, "detail": detail, "incident_id": "i"}


def test_the_short_timeline_hides_only_what_another_line_says() -> None:
    done = [_event(f"action.{word}", key="i/Drain/n1/1") for word in ("planned", "started", "done")]
    running = [_event(f"action.{word}", key="i/Launch/n1/1") for word in ("planned", "started")]
    stacks = _event("incident.state", stacks="rank 1 on n1: all_reduce")
    events = [_event("incident.opened"), *done, _event("incident.state"), stacks, *running, _event("incident.closed")]
    kept = [events[0], done[0], done[2], stacks, *running, events[-1]]
    assert main_events([EventShape.read(e) for e in events]) == [EventShape.read(e) for e in kept]


def test_the_demo_folds_what_does_not_fit() -> None:
    event = _event("action.done", "drained: holdfast[1m7wwz4bg4js]: " + "word " * 40, kind="Drain")
    line = timeline.line_of(event)
    assert line is not None
    assert "holdfast[" not in line.text
    rows = timeline.told(1.5, line, 80).plain.splitlines()
    assert len(rows) > 1
    assert all(len(row) <= 80 for row in rows)
    assert rows[0].startswith("  + 1.50 s  node drained")


def test_the_demo_hides_no_failure() -> None:
    for name in ("action.failed", "action.refused", "action.withheld"):
        line = timeline.line_of(_event(name, "why", kind="Undrain"))
        assert line is not None
        assert "why" in line.text


def test_the_demo_shows_milestones_in_their_order() -> None:
    events = [_event("job.running", at_s=3.0), _event("fault.occurred"), _event("incident.opened", at_s=0.5)]
    table = timeline.milestones("t", events, datetime.fromtimestamp(0, UTC))
    assert list(table.columns[0].cells) == ["0.00 s", "0.50 s", "3.00 s"]
    assert list(table.columns[1].cells) == ["0.00 s", "0.50 s", "2.50 s"]
