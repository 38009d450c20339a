"""The database is deleted in the middle of a recovery: both services restart with an empty one."""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.model.incidents.incident import IncidentState
from holdfast.ports import Operation
from holdfast.store import open_store
from support.practice import eventually
from support.site import PATIENCE_S, Drill, MakeDrill

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]
_QUIET_S = 4.0
"""Long enough for every step that would follow: a whole recovery takes 5 s."""


def lose_the_store(drill: Drill) -> None:
    """The operator stores the nodes' tokens and their own in the new one: nothing else of the old is known."""
    for name in ("controller", "actor"):
        drill.practice.processes.kill(name)
    drill.close()
    folder: Path = drill.practice.folder
    for file in folder.glob("holdfast.db*"):
        file.unlink()
    drill.store = open_store(f"sqlite:///{folder}/holdfast.db")
    for path in (folder / "etc").glob("token.*"):
        who = path.name.removeprefix("token.")
        role, subject = ("operator", "practice") if who == "operator" else ("agent", who)
        digest = hashlib.sha256(path.read_text().strip().encode()).hexdigest()
        drill.store.add_token(role, subject, digest, datetime.now(UTC), None)
    drill.site.start_controller()
    drill.site.start_actor()


def paused(drill: Drill) -> str:
    return drill.store.load_book(datetime.now(UTC)).paused or ""


def test_an_empty_store_observes_and_doubles_nothing(make_drill: MakeDrill) -> None:
    drill = make_drill(heartbeat_s=2.0)
    job_id = drill.train()
    bad = drill.job(job_id).nodes[1]
    drill.inject.xid(bad, 79, 3)
    eventually(
        lambda: drill.run(job_id) == ("RUNNING", 1) and len(drill.launched()) == 1, within_s=PATIENCE_S, every_s=0.01
    )
    lost = drill.incident_on(bad).id
    lose_the_store(drill)
    eventually(lambda: bad in paused(drill), within_s=PATIENCE_S)
    drill.trains(job_id, restarts=1)
    time.sleep(_QUIET_S)
    incident = next(i for i in drill.store.incidents() if i.node == bad)
    assert (incident.id, incident.state, incident.check) == (lost, IncidentState.AWAITING_HUMAN, "store.adopted")
    assert (len(drill.launched()), len(drill.terminated())) == (1, 0)
    assert drill.job(job_id).restarts == 1
    drill.store.operate(Operation("resume", "practice"), datetime.now(UTC))
    drill.scontrol("update", f"NodeName={bad}", "State=RESUME")
    eventually(lambda: not any(i.open for i in drill.store.incidents() if i.id == lost), within_s=PATIENCE_S)
    assert paused(drill) == ""
    assert (len(drill.launched()), len(drill.terminated())) == (1, 0), (
        "one that was launched is ended after its time of grace"
    )
