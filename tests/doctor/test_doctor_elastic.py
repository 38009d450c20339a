"""The doctor's findings on Slurm's settings that elastic jobs depend on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.doctor import AdviceLevel, DoctorFacts, SlurmFacts
from holdfast.doctor.subjects.elastic import RULES
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import Partition

TRAIN = Partition("train", "OFF", 10, 0, ("n1", "n2"))
FLEX = Partition("flex", "REQUEUE", 1, 30, ("n1", "n2"))
GOOD = {"RequeueExit": "85", "PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}


def told(config: dict[str, str] | None = None, **changes: Any) -> dict[str, tuple[AdviceLevel, str]]:
    """The findings for a site that is good except for these changes."""
    slurm = SlurmFacts("22.05.8", GOOD | (config or {}), {}, **{"partitions": (TRAIN, FLEX), **changes})
    facts = DoctorFacts(datetime(2026, 3, 1, tzinfo=UTC), Policy(), "root", slurm)
    return {one.id: (one.level, one.what) for rule in RULES for one in rule(slurm, facts)}


def test_a_good_site_hears_nothing() -> None:
    assert told(elastic_jobs=3) == {}


@pytest.mark.parametrize(
    ("wanted", "says", "facts"),
    [
        ("elastic.requeue_exit", "lacks 85", {"config": {"RequeueExit": "(null)"}}),
        ("elastic.requeue_exit", "lacks 85", {"config": {"RequeueExit": "1,80-84"}}),
        ("elastic.preempt_mode", "PreemptMode=CANCEL", {"config": {"PreemptMode": "CANCEL"}}),
        ("elastic.grace_time", "flex", {"partitions": (TRAIN, replace(FLEX, grace_time_s=0))}),
        ("elastic.two_partitions", "none whose jobs may be preempted", {"partitions": (TRAIN,)}),
        (
            "elastic.two_partitions",
            "none whose jobs may be preempted",
            {"partitions": (TRAIN, replace(FLEX, preempt_mode="OFF"))},
        ),
    ],
)
def test_a_hint_on_any_site_and_a_warning_where_elastic_jobs_are(wanted: str, says: str, facts: dict[str, Any]) -> None:
    level, what = told(**facts)[wanted]
    assert level is AdviceLevel.HINT
    assert says in what
    assert told(**facts, elastic_jobs=2)[wanted][0] is AdviceLevel.WARNING


def test_no_preemption_is_a_choice() -> None:
    found = told({"PreemptType": "preempt/none"}, elastic_jobs=1)
    assert {name: level for name, (level, _) in found.items()} == {"elastic.no_preemption": AdviceLevel.HINT}


def test_what_says_never_again_must_not_queue_again() -> None:
    level, what = told({"RequeueExit": "85-93"})["elastic.no_requeue_exit"]
    assert level is AdviceLevel.WARNING
    assert "93" in what


@pytest.mark.parametrize("code", ["85", "1,85", "80-90", "85,86"])
def test_codes_are_read_as_slurm_reads_them(code: str) -> None:
    assert told({"RequeueExit": code}) == {}


def test_with_qos_preemption_partitions_say_nothing() -> None:
    one = (Partition("train", "REQUEUE", 1, 0),)
    assert told({"PreemptType": "preempt/qos"}, partitions=one) == {}
