"""A node that Slurm itself drained, on a real Slurm."""

from __future__ import annotations

import pytest

from holdfast.model.incidents.incident import IncidentKind, IncidentState
from support.practice import eventually
from support.site import PATIENCE_S, MakeDrill

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]


def test_a_node_whose_epilog_failed_is_taken_over_and_is_a_humans_to_repair(make_drill: MakeDrill) -> None:
    drill = make_drill()
    epilog = drill.practice.folder / "bin" / "epilog"
    whole = epilog.read_text()
    epilog.write_text("#!/bin/sh\nexit 1\n")
    job_id = drill.sleeper("--nodes=1", "--gres=gpu:1", consent=False)
    node = drill.job(job_id).nodes[0]
    drill.scontrol("update", f"JobId={job_id}", "TimeLimit=0-00:00:01")
    eventually(lambda: drill.node(node).reason == "Epilog error", within_s=2 * PATIENCE_S)
    shown = drill.node(node)
    eventually(lambda: bool(drill.store.incidents(node=node)), within_s=PATIENCE_S)
    assert drill.store.incidents(node=node)[0].kind is IncidentKind.SLURM_DRAIN, shown
    eventually(lambda: drill.store.incidents(node=node)[0].state is IncidentState.AWAITING_HUMAN, within_s=120.0)
    assert drill.node(node).reason.startswith(f"holdfast[{drill.store.incidents(node=node)[0].id}]")
    epilog.write_text(whole)
    drill.scontrol("update", f"NodeName={node}", "State=RESUME")
    eventually(lambda: drill.store.incidents(node=node)[0].state is IncidentState.CLOSED, within_s=PATIENCE_S)
    assert (drill.launched(), drill.terminated()) == ([], [])
