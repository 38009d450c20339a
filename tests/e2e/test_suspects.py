"""A job fails without a finding, and one of its nodes has a network that fails under load."""

from __future__ import annotations

import pytest

from holdfast.decisions.probing.suspects import UNEXPLAINED
from holdfast.model.actions.action import Drain
from holdfast.model.incidents.incident import Incident, IncidentState
from support.practice import eventually
from support.site import PATIENCE_S, MakeDrill

pytestmark = pytest.mark.slurm
SETTINGS = {"suspects": {"wait_s": 0.5, "deadline_s": 3.0, "size_mib": 1, "cluster_share": 1.0, "min_gigabytes_s": 0.0}}


def test_exactly_the_node_with_the_broken_network_is_taken_out(make_drill: MakeDrill) -> None:
    drill = make_drill(nodes=5, spares=1, heartbeat_s=2.0, settings=SETTINGS)
    flag = drill.practice.folder / "jobs" / "fail-now"
    script = f"while [ ! -e {flag} ]; do sleep 0.1; done; exit 1"
    job_id = drill.practice.sbatch(script, "--nodes=4", "--exclusive", "--comment=holdfast")
    eventually(lambda: drill.job(job_id).state == "RUNNING", within_s=PATIENCE_S)
    nodes = drill.job(job_id).nodes
    bad = nodes[2]
    drill.inject.fault("path_dead", bad)
    flag.touch()

    def about(check: str) -> tuple[Incident, ...]:
        return tuple(i for i in drill.store.incidents() if i.check == check)

    def drains() -> set[str]:
        return {i.action.node for i in drill.store.intents() if isinstance(i.action, Drain)}

    eventually(lambda: drill.node(bad).draining, within_s=PATIENCE_S)
    eventually(lambda: all(not i.open for i in about(UNEXPLAINED)), within_s=PATIENCE_S)
    (inquiry,) = about(UNEXPLAINED)
    assert inquiry.suspects == tuple(sorted(nodes))
    assert inquiry.note == f"pair probe: failed: {bad}; cleared: {','.join(n for n in sorted(nodes) if n != bad)}"
    eventually(lambda: about("probe.pair")[0].state is not IncidentState.OPEN, within_s=PATIENCE_S)
    (found,) = about("probe.pair")
    assert found.node == bad
    assert drains() == {bad}
    assert not drill.faults(), "no check of a node had anything to say"
