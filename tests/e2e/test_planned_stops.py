"""A spot machine is reclaimed: the job has saved and runs elsewhere before the power goes.

``HOLDFAST_SPOT_NOTICE_S=120`` gives the real two minutes, with the shipped margin."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.model.actions.action import SendOrder, Verb
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import IncidentState
from support.practice import eventually
from support.site import PATIENCE_S, Drill, MakeDrill

pytestmark = pytest.mark.slurm

NOTICE_S = float(os.environ.get("HOLDFAST_SPOT_NOTICE_S", "25"))
MARGIN = {} if NOTICE_S >= 120 else {"planned": {"margin_s": 8.0}}


def _job_without_a_checkpoint(drill: Drill) -> int:
    job_id = drill.submit(nodes=2, checkpoints=False)
    eventually(lambda: "step 20 " in drill.output(job_id), within_s=PATIENCE_S)
    return job_id


def test_a_spot_machine_goes_and_the_job_is_elsewhere_before(
    make_drill: MakeDrill, capsys: pytest.CaptureFixture[str]
) -> None:
    drill = make_drill(nodes=4, spares=1, heartbeat_s=2.0, settings=MARGIN)
    job_id = _job_without_a_checkpoint(drill)
    before = drill.job(job_id)
    bad, old = before.nodes[1], drill.practice.machine(before.nodes[1]).host.instance_id
    assert "checkpoint step" not in drill.output(job_id)
    told_at = datetime.now(UTC)
    drill.inject.fault("spot_notice", bad, str(NOTICE_S))
    goes_at = (told_at + timedelta(seconds=NOTICE_S)).replace(microsecond=0)
    eventually(lambda: drill.run(job_id) == ("RUNNING", 1), within_s=NOTICE_S)
    running_at = datetime.now(UTC)
    assert running_at < goes_at
    eventually(lambda: bool(drill.resumed_from(job_id)), within_s=PATIENCE_S)
    saved = [int(line.split()[2]) for line in drill.output(job_id).splitlines() if line.startswith("checkpoint step")]
    (resumed,) = drill.resumed_from(job_id)
    assert resumed in saved[:2], "from a checkpoint that it was asked for: each of its two nodes asks once"
    assert bad not in drill.job(job_id).nodes
    orders = [i.action for i in drill.intents("SendOrder") if isinstance(i.action, SendOrder)]
    assert sorted(o.node for o in orders if o.verb is Verb.SAVE) == sorted(before.nodes)
    imds_log = drill.practice.folder / "log" / "imds.log"
    eventually(lambda: f"spot_machine_goes instance={old}" in imds_log.read_text(), within_s=NOTICE_S + 10)
    eventually(lambda: old in drill.terminated(), within_s=PATIENCE_S)
    drill.closed(1)
    assert drill.practice.machine(bad).host.instance_id != old
    assert drill.incident_on(bad).state is IncidentState.CLOSED
    assert drill.run(job_id) == ("RUNNING", 1)
    (stopped,), (ran,) = drill.events(EventKind.JOB_STOPPED), drill.events(EventKind.JOB_RUNNING)
    drill.nothing_left([job_id])
    with capsys.disabled():
        print(  # noqa: T201
            f"\nnotice of {NOTICE_S:.0f} s: running again {(running_at - told_at).total_seconds():.1f} s after it, "
            f"{(goes_at - running_at).total_seconds():.0f} s before the machine goes; "
            f"stopped for {(ran.at - stopped.at).total_seconds():.1f} s"
        )
