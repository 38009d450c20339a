"""Every window that a decision reads back on is declared, loaded and kept."""

from __future__ import annotations

import dataclasses
import re
from datetime import timedelta
from typing import Any

import pytest

from holdfast.config.controller import SECTIONS
from holdfast.model.policies.hangs import HangPolicy
from holdfast.model.policies.lookback import (
    MOST_S,
    SHIPPED,
    WINDOWS,
    KeptData,
    LookbackWindow,
    check_windows,
    longest,
    needed,
)
from holdfast.model.policies.policy import BrakePolicy, HistoryPolicy, JobPolicy, Policy, RepairPolicy, SparePolicy

YEAR = timedelta(days=400)
DAY_S = 86_400
DECLARED = {window.name: window for window in WINDOWS}
BACKWARDS = re.compile(r"_s$|_window|_per_hour|_per_day|_(10|60)min|restarts_without_progress")
"""Names of settings that may mean a lookback: every duration, and every number of things within a time."""
NOTHING_PAST = frozenset(
    {
        # deadlines and pauses of what is open, unsettled or not final
        *("propose.expires_s", "propose.accepted_s"),
        *("control.action_backoff_s", "control.watch_s", "death.probe_timeout_s", "death.reprobe_s"),
        *("death.reboot_grace_s", "jobs.survey_s", "jobs.survey_wait_s", "jobs.quick_death_s"),
        *(
            "jobs.stuck_completing_s",
            "jobs.resume_wait_s",
            "jobs.survey_s",
            "jobs.survey_wait_s",
            "jobs.quick_death_s",
            "death.leftover_grace_s",
        ),
        *("repair.evidence_s", "repair.launch_timeout_s", "repair.validate_timeout_s", "repair.reset_timeout_s"),
        *("repair.reboot_timeout_s", "repair.stop_start_timeout_s", "repair.watch_timeout_s", "repair.quiet_s"),
        *("repair.backoff_s", "repair.backoff_max_s", "hangs.stacks_s", "hangs.probe_s"),
        # how old the data of another program may be: Slurm's view, its jobs, a node's own record, the provider's notice
        *("control.view_max_age_s", "jobs.attribution_after_s", "suspects.wait_s", "spares.check_every_s"),
        *("planned.impaired_s", "elastic.grow_after_idle_s", "elastic.shrink_useless_after_s"),
        *("elastic.priority_wait_s", "maintenance.grace_s"),
        # what the controller counts in its own memory
        "spares.short_s",
        # ahead, or handed on
        *("jobs.hold_duration_s", "planned.act_before_s", "planned.margin_s", "planned.capacity_save_s"),
        *("suspects.deadline_s", "suspects.min_gigabytes_s"),
    }
)
"""Durations that look back at nothing which the store forgets."""


def settings() -> dict[str, Any]:
    """The policy's settings that may mean a lookback, as ``controller.toml`` names them, with their defaults."""
    return {
        f"{name}.{key}": field.default
        for name, table in SECTIONS.items()
        if ".model." in table.fills.__module__
        for key, field in table.keys.items()
        if BACKWARDS.search(key)
    }


def test_every_setting_is_declared_or_known_to_look_at_nothing_past() -> None:
    assert len(settings()) > 50
    assert set(settings()) - DECLARED.keys() - NOTHING_PAST == set(), "declare it in model/policies/lookback.py"
    assert set(NOTHING_PAST) - set(settings()) == set()
    assert NOTHING_PAST & DECLARED.keys() == set()


def test_a_declared_setting_is_one_and_reads_its_own_value() -> None:
    for window in WINDOWS:
        if not window.fixed:
            assert window.value_s(Policy()) == settings()[window.name], window.name
    assert len(DECLARED) == len(WINDOWS)
    assert {kept for window in WINDOWS for kept in window.over} == set(KeptData)
    assert set(KeptData) - {KeptData.RECORD} == MOST_S.keys()


def test_the_shipped_policy_loads_as_much_as_ever() -> None:
    assert (SHIPPED.incidents, SHIPPED.recoveries) == (timedelta(days=7), timedelta(hours=24))
    assert (SHIPPED.steps, SHIPPED.machine_steps) == (timedelta(minutes=60), timedelta(days=7))
    assert (SHIPPED.findings, SHIPPED.checkpoints) == (timedelta(days=7), timedelta(days=7))
    assert longest(Policy(), KeptData.RECORD) == timedelta(days=90)
    assert check_windows(Policy(), YEAR) == ""


@pytest.mark.parametrize("window", [w for w in WINDOWS if w.fixed], ids=lambda w: w.name)
def test_a_fixed_window_is_loaded_whatever_the_policy_says(window: LookbackWindow) -> None:
    none = Policy(
        join_window_s=0,
        action_backoff_max_s=0,
        job=JobPolicy(suspect_window_s=0, attribution_before_s=0),
        repair=RepairPolicy(group_window_s=0, climb_window_s=0, third_fault_window_s=0, fresh_s=0),
        hangs=HangPolicy(floor_s=0, plain_floor_s=0, init_s=0, silent_s=0, settle_s=0),
    )
    for kept in window.over:
        assert longest(none, kept) >= timedelta(seconds=window.total_s(none))


def test_the_brakes_settings_are_fixed_windows_of_their_names() -> None:
    for field in dataclasses.fields(BrakePolicy):
        named = re.search(r"_(\d+)min", field.name)
        assert named is not None
        assert DECLARED[f"brakes.{field.name}"].total_s(Policy()) == int(named[1]) * 60


LONGER = [
    (JobPolicy(suspect_window_s=7 * DAY_S), "recoveries", 7),
    (JobPolicy(suspect_window_s=9 * DAY_S), "incidents", 9),
    (RepairPolicy(third_fault_window_s=30 * DAY_S), "incidents", 30),
    (RepairPolicy(climb_window_s=20 * DAY_S), "incidents", 20),
    (RepairPolicy(group_window_s=30 * DAY_S), "machine_steps", 30),
    (HangPolicy(init_s=14.0 * DAY_S), "checkpoints", 14),
]


@pytest.mark.parametrize(("section", "what", "days"), LONGER)
def test_a_longer_window_loads_more(section: Any, what: str, days: int) -> None:
    policy = _with(section)
    assert getattr(needed(policy), what) == timedelta(days=days)
    assert check_windows(policy, YEAR) == ""


TOO_LONG = [
    (JobPolicy(suspect_window_s=31 * DAY_S), "jobs.suspect_window_s: 2678400 s (31 days)", "2592000 s (30 days)"),
    (RepairPolicy(third_fault_window_s=40 * DAY_S), "repair.third_fault_window_s: 3456000 s (40 days)", "(30 days)"),
    (RepairPolicy(climb_window_s=40 * DAY_S), "repair.climb_window_s: ", "2592000 s (30 days)"),
    (RepairPolicy(group_window_s=31 * DAY_S), "repair.group_window_s: ", "2592000 s (30 days)"),
    (HangPolicy(plain_floor_s=31.0 * DAY_S), "hangs.plain_floor_s: ", "2592000 s (30 days)"),
]


@pytest.mark.parametrize(("section", "setting", "most"), TOO_LONG)
def test_one_that_is_too_long_is_refused_with_its_name_its_value_and_the_most(
    section: Any, setting: str, most: str
) -> None:
    why = check_windows(_with(section), YEAR)
    assert why.startswith(setting)
    assert f"at most {most}" in why or most in why
    assert "\n" not in why


def test_a_window_of_several_settings_names_the_most_that_one_may_be() -> None:
    policy = Policy()
    long = dataclasses.replace(policy, suspects=dataclasses.replace(policy.suspects, window_s=20.0 * DAY_S))
    why = check_windows(long, YEAR)
    assert "window_s: 1728000 s (20 days) is too long" in why or "attribution_before_s" in why
    most = DECLARED["suspects.window_s"].most_s(long, MOST_S[KeptData.INCIDENTS])
    fits = dataclasses.replace(policy, suspects=dataclasses.replace(policy.suspects, window_s=most))
    assert check_windows(fits, YEAR) == ""


@pytest.mark.parametrize(
    ("changed", "days", "least"),
    [
        ({}, 59, 60),
        ({"history": HistoryPolicy(lemon_s=60 * DAY_S)}, 80, 88),
        ({"history": HistoryPolicy(short_window_s=50 * DAY_S)}, 70, 78),
    ],
)
def test_what_is_looked_back_on_is_kept(changed: dict[str, Any], days: int, least: int) -> None:
    policy = Policy(**changed)
    why = check_windows(policy, timedelta(days=days))
    assert why.startswith(f"store.keep_days: {days} is too short: ")
    assert f"keep at least {least}" in why
    assert check_windows(policy, timedelta(days=least)) == ""


def test_the_rate_of_faults_is_taken_from_as_much_record_as_there_is() -> None:
    policy = Policy(spares=SparePolicy(rate_window_s=365 * DAY_S))
    assert check_windows(policy, timedelta(days=60)) == ""
    assert longest(policy, KeptData.RECORD) == timedelta(days=365)


def _with(section: Any) -> Policy:
    field = {JobPolicy: "job", RepairPolicy: "repair", HangPolicy: "hangs"}[type(section)]
    return dataclasses.replace(Policy(), **{field: section})
