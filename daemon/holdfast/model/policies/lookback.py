"""Lookback windows: how far back decisions need data that is over, and so what the store loads. Pure; standard library only.

Each window is declared once, in :data:`WINDOWS`: a setting under its name in ``controller.toml``, or a fixed time. The store loads as much
as the policy needs (:func:`needed`); a setting that asks for more than :data:`MOST_S`, or for more than is kept, is refused at the start
(:func:`check_windows`). What is open, unsettled or not final is loaded whatever its age: a window over it needs no declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from holdfast.model.policies.policy import Policy

_HOUR_S, _DAY_S = 3600.0, 86_400.0

BRAKE_SHORT_S, BRAKE_LONG_S = 600.0, _HOUR_S
"""Drains and stopped jobs that the brakes count: ``brakes.*_10min`` and ``brakes.*_60min``."""
DEATHS_S = 600.0
"""Nodes that fall silent within this of each other may have one cause: ``death.deaths_10min``."""
CAP_HOUR_S, CAP_DAY_S = _HOUR_S, _DAY_S
"""The budgets on machines: ``repair.*_per_hour`` and ``*_per_day``."""
OPENED_S = _HOUR_S
"""Incidents that one node's findings have opened (:mod:`holdfast.decisions.incidents.correlate`)."""
OUT_OF_MEMORY_S = 1800.0
"""A service that is found gone within this of the kernel's message that the node ran out of memory may have been killed for it:
``host.services`` samples every five minutes, and reports at the second failure."""
INQUIRIES_S = _HOUR_S
"""``suspects.jobs_per_hour``."""
STEP_HOUR_S = 3600
"""The names of steps that may come after their incident carry the hour: in the next one they are new steps."""
ORPHAN_TOLD_S = 7 * 24 * 3600
"""An operator is notified at most once a week of a machine that no incident knows; the incident of a Holdfast machine is kept for that
long."""
SPARES_TOLD_S = 1800.0
"""The pool has been short for ``spares.short_s``: an operator is notified once within this time."""
SILENCE_TOLD_S = _HOUR_S
"""An operator is notified of silence without a verdict once in each hour of it."""
GIVE_BACK_S = 600.0
"""After the probe, a suspect node of a hang moves to the spare pool if it is free within this time."""
DELAY_START_S = 3600
"""A group of an elastic job that must not start yet is delayed by this, again and again. Without a controller Slurm ends the delay: then
the job has groups of no use, and no harm is done."""
CHECK_EXPIRES_S = 1500.0
"""The longest check of a spare by order: it is over before the order is forgotten."""
NO_PROGRESS_S = _DAY_S
"""``jobs.restarts_without_progress`` counts recoveries that ended within this, at least."""
EXCLUSIONS_S = _DAY_S
"""Nodes that a recovery excluded for a job count as the user's own exclusions once the recovery has been over for this."""
UNSEEN_FINDING_S = 7 * _DAY_S
"""A finding that leads to no incident is forgotten when no agent has repeated it for this; agents repeat ongoing states every ten
minutes."""
FORGOTTEN_JOB_S = 7 * _DAY_S
"""A job that has reported nothing for this is forgotten."""
UNSHOWN_JOB_S = _HOUR_S
"""Reports of a job that Slurm does not show yet are accepted for this long."""
JOB_ENDS_S = _HOUR_S
"""The end of a run is recorded and evaluated within this time; the record is kept for longer."""
ANNOUNCED_S = 60 * _DAY_S
"""An announcement that was acted upon, or that an operator closed, is not acted upon again; a time further ahead is a mistake."""
FLAP_S = _HOUR_S
"""Changes of one node that others made are recorded only this often within this (:mod:`holdfast.decisions.nodes.foreign_drains`)."""
TOKEN_LIFE_S = 90 * _DAY_S
"""A person's token that is made without a choice ends after this."""
TOKEN_USE_EVERY_S = _HOUR_S
"""A token's last use is recorded again once it is this old."""
TOKEN_HANDOVER_S = 600.0
"""An older token of a node ends once it was not used for this long while the node's newer one was."""
TOKEN_WATCH_EVERY_S = 60.0
"""The last use of the tokens of a node that has used a newer one is recorded again once it is this old."""
TOKEN_STEADY_S = 300.0
"""A token that was used this recently is in use: a heartbeat is due each 4 to 10 s, and a use is recorded each minute."""
TOKEN_ENDS_SOON_S, TOKEN_UNUSED_S, TOKEN_OLD_S = 14 * _DAY_S, 30 * _DAY_S, 180 * _DAY_S
"""Limits at which ``holdfast token list`` marks a token."""


class KeptData(StrEnum):
    """Data that is over and kept in the state snapshot, as shown to people."""

    INCIDENTS = "closed incidents"
    ANNOUNCED = "closed incidents of nodes with an announcement"
    RECOVERIES = "recoveries that are over"
    STEPS = "settled steps"
    MACHINE_STEPS = "settled launches, reboots, replacements and terminations"
    FINDINGS = "findings of no incident"
    CHECKPOINTS = "reports of jobs"
    RECORD = "events"
    """Read every few minutes, not in each cycle; as long as ``store.keep_days``."""


MOST_S: Mapping[KeptData, float] = {
    KeptData.INCIDENTS: 30 * _DAY_S,
    KeptData.ANNOUNCED: ANNOUNCED_S,
    KeptData.RECOVERIES: 30 * _DAY_S,
    KeptData.STEPS: _HOUR_S,
    KeptData.MACHINE_STEPS: 30 * _DAY_S,
    KeptData.FINDINGS: UNSEEN_FINDING_S,
    KeptData.CHECKPOINTS: 30 * _DAY_S,
}
"""The longest that is loaded at each cycle, in seconds: its cost grows with it."""


def _zero(_policy: Policy) -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class LookbackWindow:
    """One lookback window: ``times`` the value plus ``plus_s``, over each of ``over``."""

    name: str
    """The setting as ``controller.toml`` names it; of a fixed time what it is for."""
    value_s: Callable[[Policy], float]
    over: tuple[KeptData, ...]
    times: int = 1
    plus_s: Callable[[Policy], float] = _zero
    fixed: bool = False
    """No setting, or one that is a number of things within a fixed time."""
    shrinks: bool = False
    """Its rule counts from the start of the record where that is younger, so that a short record cuts nothing."""

    def total_s(self, policy: Policy) -> float:
        """Total length of the window."""
        return self.times * self.value_s(policy) + self.plus_s(policy)

    def most_s(self, policy: Policy, limit_s: float) -> float:
        """The most that the value may be, so that the whole is within the limit."""
        return max(0.0, (limit_s - self.plus_s(policy)) / self.times)


def _fixed(name: str, seconds: float, *over: KeptData) -> LookbackWindow:
    return LookbackWindow(name, lambda _policy: seconds, over, fixed=True)


_K = KeptData
_DRAINS = (_K.STEPS, _K.INCIDENTS)
_STOPS = (_K.STEPS, _K.INCIDENTS, _K.RECOVERIES)

WINDOWS: tuple[LookbackWindow, ...] = (
    LookbackWindow("control.join_window_s", lambda p: p.join_window_s, (_K.FINDINGS,)),
    _fixed("services that end as memory runs out", OUT_OF_MEMORY_S, _K.FINDINGS),
    LookbackWindow("control.action_backoff_max_s", lambda p: p.action_backoff_max_s, (_K.STEPS,)),
    _fixed("brakes.drains_10min", BRAKE_SHORT_S, *_DRAINS),
    _fixed("brakes.drains_10min_share", BRAKE_SHORT_S, *_DRAINS),
    _fixed("brakes.drains_60min", BRAKE_LONG_S, *_DRAINS),
    _fixed("brakes.drains_60min_share", BRAKE_LONG_S, *_DRAINS),
    _fixed("brakes.stopped_jobs_60min", BRAKE_LONG_S, *_STOPS),
    _fixed("brakes.stopped_gpu_share_60min", BRAKE_LONG_S, *_STOPS),
    _fixed("brakes.hang_stops_60min", BRAKE_LONG_S, *_STOPS),
    _fixed("brakes.hang_stops_per_user_60min", BRAKE_LONG_S, *_STOPS),
    _fixed("jobs.holds_per_user_60min", BRAKE_LONG_S, _K.STEPS),
    _fixed("death.deaths_10min", DEATHS_S, _K.INCIDENTS),
    _fixed("death.deaths_10min_share", DEATHS_S, _K.INCIDENTS),
    LookbackWindow("jobs.suspect_window_s", lambda p: p.job.suspect_window_s, (_K.RECOVERIES, _K.INCIDENTS)),
    LookbackWindow(
        "jobs.attribution_before_s",
        lambda p: p.job.attribution_before_s,
        (_K.INCIDENTS,),
        plus_s=lambda p: 2 * p.suspects.window_s,
    ),
    _fixed("jobs.restarts_without_progress", NO_PROGRESS_S, _K.RECOVERIES),
    _fixed("jobs.quick_deaths", NO_PROGRESS_S, _K.RECOVERIES),
    _fixed("nodes excluded for a job", EXCLUSIONS_S, _K.RECOVERIES),
    LookbackWindow("repair.climb_window_s", lambda p: p.repair.climb_window_s, (_K.INCIDENTS,)),
    LookbackWindow("repair.third_fault_window_s", lambda p: p.repair.third_fault_window_s, (_K.INCIDENTS,)),
    LookbackWindow("repair.group_window_s", lambda p: p.repair.group_window_s, (_K.MACHINE_STEPS,)),
    LookbackWindow("repair.fresh_s", lambda p: p.repair.fresh_s, (_K.INCIDENTS, _K.RECORD)),
    _fixed("repair.terminations_per_hour", CAP_HOUR_S, _K.MACHINE_STEPS),
    _fixed("repair.terminations_per_day", CAP_DAY_S, _K.MACHINE_STEPS),
    *(_fixed(f"repair.{name}_per_hour", CAP_HOUR_S, _K.MACHINE_STEPS) for name in ("cycles", "launches")),
    *(_fixed(f"repair.{name}_per_day", CAP_DAY_S, _K.MACHINE_STEPS) for name in ("cycles", "launches")),
    _fixed("repair.budget_hour_share", CAP_HOUR_S, _K.MACHINE_STEPS),
    _fixed("repair.budget_day_share", CAP_DAY_S, _K.MACHINE_STEPS),
    _fixed("repair.budget_cluster_share", CAP_DAY_S, _K.MACHINE_STEPS),
    _fixed("machines that no incident knows", ORPHAN_TOLD_S, _K.MACHINE_STEPS, _K.INCIDENTS),
    _fixed("names of steps", STEP_HOUR_S, _K.STEPS),
    LookbackWindow(  # a job's end is this old at most when it is investigated, and probed for as long again
        "suspects.window_s",
        lambda p: p.suspects.window_s,
        (_K.INCIDENTS,),
        times=2,
        plus_s=lambda p: p.job.attribution_before_s,
    ),
    _fixed("suspects.jobs_per_hour", INQUIRIES_S, _K.INCIDENTS),
    _fixed("suspects.jobs_per_hour_per_user", INQUIRIES_S, _K.INCIDENTS),
    LookbackWindow("hangs.floor_s", lambda p: p.hangs.floor_s, (_K.CHECKPOINTS,)),
    LookbackWindow("hangs.together_s", lambda p: p.hangs.together_s, (_K.CHECKPOINTS, _K.INCIDENTS)),
    LookbackWindow("hangs.plain_floor_s", lambda p: p.hangs.plain_floor_s, (_K.CHECKPOINTS,)),
    LookbackWindow("hangs.silent_s", lambda p: p.hangs.silent_s, (_K.CHECKPOINTS,)),
    LookbackWindow("hangs.init_s", lambda p: p.hangs.init_s, (_K.CHECKPOINTS,)),
    LookbackWindow("hangs.settle_s", lambda p: p.hangs.settle_s, (_K.RECOVERIES,)),
    _fixed("nodes given back after a hang", GIVE_BACK_S, _K.INCIDENTS, _K.RECOVERIES, _K.STEPS),
    _fixed("jobs that report nothing", FORGOTTEN_JOB_S, _K.CHECKPOINTS),
    _fixed("jobs that Slurm does not show yet", UNSHOWN_JOB_S, _K.CHECKPOINTS),
    LookbackWindow("elastic.settle_s", lambda p: p.elastic.settle_s, (_K.STEPS,)),
    LookbackWindow("elastic.leave_deadline_s", lambda p: p.elastic.leave_deadline_s, (_K.STEPS,)),
    _fixed("groups that must not start yet", DELAY_START_S, _K.STEPS),
    _fixed("spares: too few", SPARES_TOLD_S, _K.STEPS),
    _fixed("silence that nothing is concluded from", SILENCE_TOLD_S, _K.STEPS),
    _fixed("spares: checks by order", CHECK_EXPIRES_S, _K.STEPS),
    LookbackWindow("spares.rate_window_s", lambda p: p.spares.rate_window_s, (_K.RECORD,), shrinks=True),
    LookbackWindow("history.window_s", lambda p: p.history.window_s, (_K.RECORD,), plus_s=lambda p: p.history.lemon_s),
    LookbackWindow(
        "history.short_window_s", lambda p: p.history.short_window_s, (_K.RECORD,), plus_s=lambda p: p.history.lemon_s
    ),
    LookbackWindow(
        "history.lemon_s",
        lambda p: p.history.lemon_s,
        (_K.RECORD,),
        plus_s=lambda p: max(p.history.window_s, p.history.short_window_s),
    ),
    _fixed("findings that lead to nothing", UNSEEN_FINDING_S, _K.FINDINGS),
    _fixed("announcements", ANNOUNCED_S, _K.ANNOUNCED),
)


@dataclass(frozen=True, slots=True)
class Lookback:
    """Lookback of the state snapshot over data that is over, by kind; the rest is loaded completely."""

    incidents: timedelta
    announced: timedelta
    recoveries: timedelta
    steps: timedelta
    machine_steps: timedelta
    findings: timedelta
    checkpoints: timedelta


def needed(policy: Policy) -> Lookback:
    """Lookback that the rules of this policy need."""
    return Lookback(
        incidents=longest(policy, KeptData.INCIDENTS),
        announced=longest(policy, KeptData.ANNOUNCED),
        recoveries=longest(policy, KeptData.RECOVERIES),
        steps=longest(policy, KeptData.STEPS),
        machine_steps=longest(policy, KeptData.MACHINE_STEPS),
        findings=longest(policy, KeptData.FINDINGS),
        checkpoints=longest(policy, KeptData.CHECKPOINTS),
    )


def longest(policy: Policy, kept: KeptData) -> timedelta:
    """The longest window of the policy over what is kept."""
    return timedelta(seconds=max(w.total_s(policy) for w in WINDOWS if kept in w.over))


SHIPPED = needed(Policy())
"""Lookback of the shipped policy."""


def check_windows(policy: Policy, keep: timedelta) -> str:
    """Reason why this policy cannot be applied, in one line that names the setting and its maximum; empty: it can.

    ``keep``: how long the store keeps data that is over."""
    for window in WINDOWS:
        for kept in window.over:
            limit_s = MOST_S.get(kept)
            if limit_s is not None and window.total_s(policy) > limit_s:
                return _too_long(policy, window, kept, limit_s)
    longest_one = max((w for w in WINDOWS if not w.shrinks), key=lambda w: w.total_s(policy))
    if longest_one.total_s(policy) > keep.total_seconds():
        return _kept_too_short(policy, longest_one, keep)
    return ""


def _too_long(policy: Policy, window: LookbackWindow, kept: KeptData, limit_s: float) -> str:
    value, most = _shown(window.value_s(policy)), _shown(window.most_s(policy, limit_s))
    return f"{window.name}: {value} is too long: at most {most}, since {kept.value} of {_shown(limit_s)} are loaded"


def _kept_too_short(policy: Policy, window: LookbackWindow, keep: timedelta) -> str:
    total_s = window.total_s(policy)
    why = window.name if window.fixed else f"{window.name} = {window.value_s(policy):.10g}"
    least = f"keep at least {-(-total_s // _DAY_S):.0f}"
    shorter = f", or make that at most {window.most_s(policy, keep.total_seconds()):.10g}" if not window.fixed else ""
    return f"store.keep_days: {keep.days} is too short: {why} looks back {_shown(total_s)}; {least}{shorter}"


def _shown(seconds: float) -> str:
    """``2592000 s (30 days)``."""
    for unit_s, unit in ((_DAY_S, "day"), (_HOUR_S, "hour")):
        if seconds >= unit_s:
            number = round(seconds / unit_s, 2)
            return f"{seconds:.10g} s ({number:g} {unit}{'' if number == 1 else 's'})"
    return f"{seconds:.10g} s"
