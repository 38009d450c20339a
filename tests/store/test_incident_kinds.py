"""Incidents of releases that had no kind: each is read with the kind it was opened with, and treated as it was."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.decisions.common import node_incidents
from holdfast.decisions.probing import suspects
from holdfast.decisions.recovery import affected_jobs
from holdfast.model.incidents.incident import ABOUT_JOBS, Incident, IncidentKind, IncidentState
from holdfast.store.codec import decode, encode
from support.store_nouns import incident

_S, _K = IncidentState, IncidentKind
RUN = "practice/7@2026-01-02T03:04:05+00:00r0"
JOB = {"instance_id": "", "boot_id": "", "gpu_minors": None, "state": _S.WATCHING, "job": RUN}
ODD: dict[str, Any] = JOB | {"suspects": ("n1",), "odd": ("n1",)}

OLD: dict[str, tuple[dict[str, Any], IncidentKind]] = {
    "an agent's finding": ({"check": "gpu.xid"}, _K.FAULT),
    "a warning that is watched": ({"check": "gpu.thermal", "state": _S.WATCHING}, _K.FAULT),
    "a notice that an agent passes on": ({"check": "cloud.interruption"}, _K.FAULT),
    "found by the check of a spare": ({"check": "active.burn", "note": "found by the deep check of a spare"}, _K.FAULT),
    "a fault whose node died": ({"check": "node.dead", "dead": True, "rung": "reboot"}, _K.SILENCE),
    "silent": ({"check": "node.silent", "state": _S.SUSPECTED}, _K.SILENCE),
    "dead": ({"check": "node.dead", "dead": True}, _K.SILENCE),
    "announced": ({"check": "cloud.reboot", "state": _S.WATCHING, "notice": "provider/reboot/evt-1"}, _K.NOTICE),
    "announced, and a finding leads": ({"check": "gpu.xid", "notice": "provider/reboot/evt-1"}, _K.NOTICE),
    "announced, and dead": ({"check": "node.dead", "dead": True, "notice": "provider/stop/evt-1"}, _K.NOTICE),
    "a job that failed": (
        JOB | {"check": "job.unexplained", "headline": "job.unexplained: job 7 of ada", "suspects": ("n1", "n2")},
        _K.UNEXPLAINED,
    ),
    "a job that hangs": (JOB | {"check": "job.hung", "headline": "job.hung: job 7", "suspects": ("n1", "n2")}, _K.HANG),
    "a job that hangs on one node": (JOB | {"check": "job.hung", "headline": "job.hung: job 7", **ODD}, _K.HANG),
    "a job that hung": (ODD | {"check": "job.unexplained", "headline": "job.hung: job 7 of ada"}, _K.HANG),
    "a job that hung, nobody stood out": (  # word: a test's id
        JOB | {"check": "job.unexplained", "headline": "job.hung: job 7", "suspects": ("n1", "n2"), "odd": ()},
        _K.HANG,
    ),
    "a hang that is over": (
        JOB | {"check": "job.hung", "headline": "job.hung: job 7", "suspects": ("n1",), "state": _S.CLOSED},
        _K.HANG,
    ),
    "a slow group": (JOB | {"check": "job.straggler", "headline": "job.straggler: group 2"}, _K.STRAGGLER),
    "a slow group that left": (ODD | {"check": "job.unexplained", "headline": "job.straggler: group 2"}, _K.STRAGGLER),
    "a slow group that a finding has made a fault of the node": (
        JOB | {"check": "gpu.xid", "state": _S.CONTAINED},
        _K.FAULT,
    ),
    "convicted": ({"check": "probe.pair", "job": RUN}, _K.PAIR),
    "convicted, of a node that no agent was heard on": (  # word: a test's id
        {"check": "probe.pair", "job": RUN, "boot_id": ""},
        _K.PAIR,
    ),
    "convicted, and a finding leads": ({"check": "gpu.xid", "job": RUN}, _K.PAIR),
    "convicted, and dead": ({"check": "node.dead", "dead": True, "job": RUN}, _K.PAIR),
    "adopted": (
        {"check": "store.adopted", "instance_id": "", "boot_id": "", "state": _S.AWAITING_HUMAN},
        _K.ADOPTED,
    ),
}


def _read(fields: dict[str, Any]) -> Incident:
    document = encode(incident(**fields))
    del document["kind"], document["pair_probed"]
    return decode(Incident, document)


@pytest.mark.parametrize("shape", OLD)
def test_it_has_the_kind_that_it_was_opened_with(shape: str) -> None:
    fields, kind = OLD[shape]
    assert _read(fields).kind is kind


@pytest.mark.parametrize("shape", OLD)
def test_it_is_treated_as_it_was(shape: str) -> None:
    """Right of each line what the release before asked."""
    old = _read(OLD[shape][0])
    check, about_jobs = old.check, ("job.unexplained", "job.hung", "job.straggler")
    assert old.pair_probed == (check == "job.unexplained" and bool(old.suspects))
    assert old.hangs == (check == "job.hung")
    assert (old.kind is _K.STRAGGLER and old.follows_run) == (check == "job.straggler")
    assert old.follows_run == (check in ("job.hung", "job.straggler"))
    assert (old.kind in ABOUT_JOBS) == (check in about_jobs)
    assert suspects.looks_for_a_suspect(old) == (check in ("job.unexplained", "job.hung"))
    if old.severity is not old.severity.FATAL:  # of a fatal one all jobs are recovered, whatever it was opened for
        assert affected_jobs.convicted(old) == (check == "probe.pair" and node_incidents.acting(old))


@pytest.mark.parametrize(
    "check", ["job.hung", "job.unexplained", "job.straggler", "probe.pair", "store.adopted", "node.dead", "node.silent"]
)
def test_the_name_of_a_check_alone_makes_no_kind(check: str) -> None:
    """An agent may give its own check any name: its row is a fault of its node."""
    document = encode(incident(check=check, headline=f"{check}: x"))
    del document["kind"], document["pair_probed"]
    read = decode(Incident, document)
    assert (read.kind, read.pair_probed) == (_K.FAULT, False)


def test_every_kind_has_an_old_shape() -> None:
    assert {kind for _, kind in OLD.values()} == set(_K) - {
        _K.UNREADABLE,
        _K.SLURM_DRAIN,
        _K.DISPUTED,
        _K.HELD_JOB,
        _K.STALL,
        _K.ORDERED,
    }  # never opened as one; younger than the field


@pytest.mark.parametrize("kind", IncidentKind)
@pytest.mark.parametrize("pair_probed", [False, True])
def test_one_of_this_release_is_read_as_it_is(kind: IncidentKind, *, pair_probed: bool) -> None:
    kept = incident(kind=kind, pair_probed=pair_probed, check="job.unexplained", job=RUN, notice="provider/x/y")
    assert decode(Incident, encode(kept)) == kept
