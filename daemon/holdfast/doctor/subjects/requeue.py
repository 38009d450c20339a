"""Rules about Slurm's settings that decide how a stopped job comes back."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, SlurmFacts

DEFAULT_CRED_EXPIRE_S = 120
"""slurm.conf(5), AuthInfo: also the hold of a requeued batch job (measured on 22.05)."""
LOW_CRED_EXPIRE_S = 10
DEFAULT_KILL_WAIT_S = 30
DEFAULT_MAX_BATCH_REQUEUE = 5
LONG_COMPLETE_WAIT_S = 5
DEFAULT_BATCH_SCHED_DELAY_S = 3
DEFAULT_SCHED_INTERVAL_S = 60
"""slurm.conf(5), SchedulerParameters."""
FIRST_WITH_RATE_LIMIT = (23, 2)
DEFAULT_RL_REFILL_RATE = 2
"""slurm.conf(5), SlurmctldParameters: requests that each user is given back per rl_refill_period."""
LEAST_RL_REFILL_RATE = 20
"""Requests a second that the controller asks for while jobs are recovered (docs/benchmarks.md)."""


def job_requeue(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    if slurm.value("JobRequeue") == "0":
        yield Advice(
            "slurm.job_requeue",
            AdviceLevel.ERROR,
            "JobRequeue=0: only jobs submitted with --requeue can be requeued",
            "A job without --requeue is lost with its node; Holdfast can only notify its owner.",
            "slurm.conf: JobRequeue=1",
        )


def max_batch_requeue(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    limit = slurm.number("MaxBatchRequeue")
    if limit is not None and limit <= DEFAULT_MAX_BATCH_REQUEUE:
        yield Advice(
            "slurm.max_batch_requeue",
            AdviceLevel.WARNING,
            f"MaxBatchRequeue={limit}: Slurm holds a batch job after that many automatic requeues",
            "A long job that advances between faults is held all the same; Holdfast's own budget looks at progress.",
            "slurm.conf: MaxBatchRequeue=100",
        )


def output_truncated(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    if slurm.value("JobFileAppend") == "0":
        yield Advice(
            "slurm.job_file_append",
            AdviceLevel.WARNING,
            "JobFileAppend=0: a requeued job truncates its output file, unless it asked for --open-mode=append",
            "What the job wrote before the fault, and with it the trace of the fault, is lost at its restart.",
            "slurm.conf: JobFileAppend=1",
        )


def requeue_hold(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    info = slurm.options("AuthInfo")
    given = info.get("cred_expire", "")
    expire_s = int(given) if given.isdecimal() else DEFAULT_CRED_EXPIRE_S
    kept = [part for part in slurm.value("AuthInfo").split(",") if part and not part.startswith("cred_expire=")]
    fix = "slurm.conf: AuthInfo=" + ",".join([*kept, "cred_expire=30"])
    if expire_s < LOW_CRED_EXPIRE_S:
        yield Advice(
            "slurm.cred_expire",
            AdviceLevel.WARNING,
            f"AuthInfo cred_expire={expire_s}: a job's credential lives only {expire_s} s",
            "On a busy or slow node a restarted job's launch is refused when its credential has expired on the way.",
            fix,
        )
    elif expire_s >= DEFAULT_CRED_EXPIRE_S:
        yield Advice(
            "slurm.cred_expire",
            AdviceLevel.HINT,
            f"cred_expire is {expire_s} s: Slurm holds every requeued batch job that long (reason BeginTime)",
            "Holdfast clears the hold of the jobs it recovers; jobs that Slurm requeues on its own wait until it ends.",
            fix,
        )


def kill_wait(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    wait_s = slurm.number("KillWait")
    if wait_s is not None and wait_s > DEFAULT_KILL_WAIT_S:
        yield Advice(
            "slurm.kill_wait",
            AdviceLevel.WARNING,
            f"KillWait={wait_s} s: Slurm waits this long after SIGTERM before it kills a task",
            "A job whose tasks ignore SIGTERM, as tasks that hang in NCCL do, restarts that much later.",
            f"slurm.conf: KillWait={DEFAULT_KILL_WAIT_S}",
        )


def complete_wait(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    wait_s = slurm.number("CompleteWait")
    if wait_s is not None and wait_s > LONG_COMPLETE_WAIT_S:
        yield Advice(
            "slurm.complete_wait",
            AdviceLevel.WARNING,
            f"CompleteWait={wait_s} s: nothing starts while any job is COMPLETING, for up to that long",
            "A node that cannot finish its job holds up the restart of every other job.",
            "slurm.conf: CompleteWait=0",
        )


def kill_on_bad_exit(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    if slurm.value("KillOnBadExit") == "0":
        yield Advice(
            "slurm.kill_on_bad_exit",
            AdviceLevel.HINT,
            "KillOnBadExit=0: when one task fails, the others of its step run on",
            "Where Holdfast may not stop the job, its other ranks wait for NCCL's watchdog (10 to 30 minutes).",
            "slurm.conf: KillOnBadExit=1",
        )


def scheduler_delays(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    options = slurm.options("SchedulerParameters")
    slow: list[str] = [name for name in ("defer", "defer_batch") if name in options]
    for name, usual_s in (
        ("batch_sched_delay", DEFAULT_BATCH_SCHED_DELAY_S),
        ("sched_interval", DEFAULT_SCHED_INTERVAL_S),
    ):
        given = options.get(name, "")
        if given.isdecimal() and int(given) > usual_s:
            slow.append(f"{name}={given}")
    if slow:
        yield Advice(
            "slurm.scheduler_delays",
            AdviceLevel.WARNING,
            f"SchedulerParameters has {', '.join(slow)}: jobs are started in batches",
            "A recovered job waits for the scheduler's next round although its nodes stand ready.",
            f"slurm.conf: SchedulerParameters without {', '.join(slow)}",
        )


def rate_limit(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    options = slurm.options("SlurmctldParameters")
    if slurm.release < FIRST_WITH_RATE_LIMIT or "SlurmctldParameters" not in slurm.config:
        return
    if "rl_enable" not in options:
        given = [part for part in slurm.value("SlurmctldParameters").split(",") if part]
        yield Advice(
            "slurm.rate_limit",
            AdviceLevel.HINT,
            "SlurmctldParameters lacks rl_enable: any user's squeue in a loop can keep slurmctld busy",
            "While slurmctld answers late, drains and requeues come late; without an answer for 15 s nothing is decided.",
            "slurm.conf: SlurmctldParameters="
            + ",".join([*given, "rl_enable", f"rl_refill_rate={LEAST_RL_REFILL_RATE}"]),
        )
        return
    rate, period = options.get("rl_refill_rate", ""), options.get("rl_refill_period", "")
    per_s = (int(rate) if rate.isdecimal() else DEFAULT_RL_REFILL_RATE) / max(
        int(period) if period.isdecimal() else 1, 1
    )
    if per_s < LEAST_RL_REFILL_RATE:
        yield Advice(
            "slurm.rate_limit",
            AdviceLevel.HINT,
            f"rl_enable gives each user but root and SlurmUser {per_s:g} requests a second",
            "The controller reads Slurm as its own user: during a recovery Slurm delays its requests.",
            f"slurm.conf: SlurmctldParameters with rl_refill_rate={LEAST_RL_REFILL_RATE}, rl_refill_period=1",
        )


def prolog_failure_holds(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    options = slurm.options("SchedulerParameters")
    if slurm.value("Prolog") and "nohold_on_prolog_fail" not in options:
        joined = ",".join(part for part in (slurm.value("SchedulerParameters"), "nohold_on_prolog_fail") if part)
        yield Advice(
            "slurm.hold_on_prolog_fail",
            AdviceLevel.WARNING,
            "a job whose Prolog fails is requeued and held (SchedulerParameters lacks nohold_on_prolog_fail)",
            "A bad node that fails a job's Prolog stops the job until an operator releases it.",
            f"slurm.conf: SchedulerParameters={joined}",
        )


RULES = (
    job_requeue,
    max_batch_requeue,
    output_truncated,
    requeue_hold,
    kill_wait,
    complete_wait,
    kill_on_bad_exit,
    scheduler_delays,
    rate_limit,
    prolog_failure_holds,
)
