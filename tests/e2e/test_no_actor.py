"""A site without an actor reports it, and continues as soon as it has one."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from holdfast.controller.keeping.steps_untaken import UNTAKEN_S
from holdfast.practice.cluster.client import get
from support.practice import eventually
from support.site import PATIENCE_S, Drill, MakeDrill

pytestmark = pytest.mark.slurm


def _ready(drill: Drill) -> str:
    """The answer of ``/readyz``: status and text."""
    try:
        with urllib.request.urlopen(f"{drill.practice.controller_url}/readyz", timeout=5) as answer:  # noqa: S310
            return f"{answer.status} {answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"


def _actor(drill: Drill) -> str:
    """The actor's condition on ``/v1/status``."""
    return next(str(p["condition"]) for p in get(drill.site, "/v1/status")["parts"] if p["name"] == "actor")


def test_a_dead_actor_is_seen_and_what_waited_is_done_by_the_next_one(make_drill: MakeDrill) -> None:
    drill = make_drill(nodes=2, spares=0)
    eventually(lambda: _ready(drill).startswith("200"), within_s=PATIENCE_S)
    eventually(lambda: _actor(drill) == "good", within_s=PATIENCE_S)
    drill.practice.processes.kill("actor")
    drill.inject.xid("n2", 79, 3)
    eventually(lambda: "no actor takes steps (Drain n2" in _ready(drill), within_s=UNTAKEN_S + PATIENCE_S)
    assert _ready(drill).startswith("503")
    assert "restart holdfast-actor" in get(drill.site, "/v1/nodes")["untaken"]
    assert _actor(drill) == "failed"
    assert not drill.node("n2").draining
    drill.site.start_actor()
    eventually(lambda: drill.node("n2").draining, within_s=PATIENCE_S)
    eventually(lambda: _ready(drill).startswith("200"), within_s=PATIENCE_S)
    assert get(drill.site, "/v1/nodes")["untaken"] is None


def test_an_actor_serves_a_controller_that_leads_under_its_bare_name(make_drill: MakeDrill) -> None:
    """As the previous release leaves it: an empty lock file, and the host's name in the lease."""
    drill = make_drill(nodes=2, spares=0)
    drill.as_the_release_before()
    drill.inject.xid("n2", 79, 3)
    eventually(lambda: drill.node("n2").draining, within_s=PATIENCE_S)
