"""Known GPUs of a job are remembered as long as its run; an unknown answer is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from holdfast.controller.observing.observe import remember_gpus
from holdfast.model.slurm.cluster import ClusterView, Job
from holdfast.slurm import parse
from holdfast.slurm.details import Details
from support.simulated import EPOCH
from support.squeue import ROW

HELD = {"n1": frozenset({0})}
KNOWN = parse.job(ROW, "c", Details(gpu_indices=HELD))
NONE = replace(KNOWN, gpu_indices={})
UNKNOWN = replace(NONE, gpus_known=False)


def _view(job: Job) -> ClusterView:
    return ClusterView("c", EPOCH, {}, {11: job}, {})


@pytest.mark.parametrize(
    ("before", "now", "held", "known"),
    [
        (KNOWN, UNKNOWN, HELD, True),
        (KNOWN, replace(NONE, state="COMPLETING"), HELD, True),
        (UNKNOWN, KNOWN, HELD, True),
        (UNKNOWN, NONE, {}, True),
        (UNKNOWN, UNKNOWN, {}, False),
        (UNKNOWN, replace(NONE, state="COMPLETING"), {}, False),
        (NONE, replace(NONE, state="FAILED"), {}, True),
        (KNOWN, replace(UNKNOWN, restarts=3), {}, False),
        (KNOWN, replace(NONE, restarts=3), {}, True),
    ],
)
def test_what_is_known_of_a_runs_gpus(before: Job, now: Job, held: Mapping[str, frozenset[int]], known: bool) -> None:
    job = remember_gpus(_view(before), _view(now)).jobs[11]
    assert (job.gpu_indices, job.gpus_known) == (held, known)
