"""Throughput of one controller: reports per second with every finding durable, and a whole fleet of agents at rest.

``bench/ingest.py [--agents 4096] [--seconds 60] [--postgresql] [--quick]``. The real controller on a real Slurm that has as many nodes
as there are agents, pinned to core 0; the load comes from a separate process on core 1, over loopback. Its lag (planned to sent) is
printed; a run in which its P99 is above 10 ms, or in which it used up its core, is void."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine, text

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from bench.kit import figures, procs
from bench.kit.head import Head, Run, head

from holdfast.controller.timing import pace
from support.postgres import postgres_binaries, running_server

CONNECTIONS = 64
WARM_UP_S = 40.0
"""Every agent has had its first heartbeats, its poll is open, and its record is in the store."""
GOAL_P99_S = 0.1
GOAL_CORES = 1.0
LONGEST_LAG_S = 0.01
FULL = 0.95
MOST_WAITING = 0.1
"""Share of the measured time, summed over the controller's threads, which also wait for each other."""


def storm(made: Head, seconds: float, *, all_new: bool) -> int:
    """At saturation: the next finding is sent once the last one is durable. Returns how many were accepted in all."""
    kind = "each finding is new" if all_new else "8 standing findings per node, repeated"
    run = made.run(
        {"kind": "storm", "connections": CONNECTIONS, "all_new": all_new, "warm_up_s": 3.0, "seconds": seconds}
    )
    accepted = run.told["statuses"].get("report 200", 0)
    print(f"\nstorm, {CONNECTIONS} connections, {kind}: {accepted / run.seconds:.0f} reports/s, every finding durable")
    print(f"  {accepted / run.cpu.own_s:.0f} reports for each second of CPU that the controller had")
    _show(run)
    if run.told["busy"] > FULL:
        print(f"  VOID as a maximum: the generator used {100 * run.told['busy']:.0f} % of its core")
    return int(run.told["accepted_ever"])


def fleet(made: Head, seconds: float, agents: int, reports_per_s: float) -> None:
    """All agents at rest: a heartbeat as often as the controller gives it, a long poll each, a trickle of reports."""
    heartbeat_s = pace.interval_s(agents)
    plan = {"kind": "fleet", "heartbeat_s": heartbeat_s, "reports_per_s": reports_per_s}
    run = made.run({**plan, "warm_up_s": WARM_UP_S, "seconds": seconds})
    print(f"\nfleet, {agents} agents, heartbeat {heartbeat_s:g} s, a long poll each, {reports_per_s:g} reports/s")
    _show(run)
    lag_s = figures.percentile(run.told["lags_s"], 0.99)
    lags = ", ".join(
        f"{name} {_ms(run.told['lags_s'], share)}" for name, share in (("P50", 0.5), ("P99", 0.99), ("max", 1.0))
    )
    print(f"  generator's lag: {lags} ms")
    lagged = lag_s > LONGEST_LAG_S or run.told["busy"] > FULL
    if lagged:
        print("  VOID: the generator lagged behind its plan")
    p99 = max(figures.percentile(values, 0.99) for values in run.told["latencies_s"].values())
    if not (lagged or _crowded(run)):
        figures.goal("P99 of the ingest < 100 ms", met=p99 < GOAL_P99_S)
    answered = sum(len(values) for values in run.told["latencies_s"].values()) + run.told["statuses"].get("poll 200", 0)
    print(
        f"  {1000 * run.cpu.own_s / max(answered, 1):.2f} ms of the controller's CPU per answer, all its other work included"
    )
    figures.goal("controller <= 1 core", met=run.cpu.own_s / run.seconds <= GOAL_CORES)


def _show(run: Run) -> None:
    for kind, values in sorted(run.told["latencies_s"].items()):
        print(
            f"  {kind:<10} {len(values):>6} answered; latency P50 {_ms(values, 0.5)}, P90 {_ms(values, 0.9)},"
            f" P99 {_ms(values, 0.99)}, max {_ms(values, 1)} ms"
        )
    own, commands = 100 * run.cpu.own_s / run.seconds, 100 * run.cpu.ended_s / run.seconds
    print(f"  answers: {', '.join(f'{number} x {what}' for what, number in sorted(run.told['statuses'].items()))}")
    print(
        f"  controller {own:.0f} % of a core (its Slurm commands {commands:.0f} %), PSS {run.pss_bytes / procs.MIB:.0f} MiB;"
        f" it waited {100 * run.waited_s / run.seconds:.0f} % of the time for a core that others had;"
        f" generator {100 * run.told['busy']:.0f} % of its core; load {figures.load()}",
        flush=True,
    )
    if _crowded(run):
        print("  VOID as to latency and rate: other processes had the controller's core; the CPU per request stands")


def _crowded(run: Run) -> bool:
    """A run on a busy machine says nothing about latency."""
    return run.waited_s / run.seconds > MOST_WAITING


def _ms(values: list[float], share: float) -> str:
    return f"{1000 * figures.percentile(values, share):.1f}"


def check_durable(made: Head, accepted: int) -> None:
    """After kill -9: every report that was answered 200 is in the database."""
    made.kill()
    engine = create_engine(made.store_url)
    with engine.connect() as connection:
        reports = connection.execute(text("SELECT count(*) FROM reports")).scalar_one()
        findings = connection.execute(text("SELECT sum(repeats + 1) FROM findings")).scalar_one()
    engine.dispose()
    print(f"  after kill -9: {reports} reports and {findings} findings in the database, {accepted} answered 200")
    figures.goal("nothing that was answered is lost", met=reports >= accepted and findings >= accepted)


@contextmanager
def database(*, postgresql: bool) -> Iterator[str | None]:
    """URL of an empty PostgreSQL database with fsync on; None: SQLite in the controller's folder."""
    if not postgresql:
        yield None
        return
    binaries = postgres_binaries()
    assert binaries is not None, "PostgreSQL is not installed"
    with running_server(binaries, durable=True) as server:
        yield server.url(server.create())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=4096)
    parser.add_argument("--slurm-nodes", type=int, help="nodes that Slurm knows; as many as agents if not given")
    parser.add_argument("--seconds", type=float, default=60.0, help="measured time of the fleet; a storm takes a third")
    parser.add_argument("--reports-per-s", type=float, default=5.0, help="trickle in addition to the heartbeats")
    parser.add_argument("--postgresql", action="store_true", help="instead of SQLite")
    parser.add_argument("--only", choices=("storm", "fleet"))
    parser.add_argument("--quick", action="store_true", help="128 agents, 6 s: shows that the bench works")
    options = parser.parse_args()
    agents, seconds = (128, 6.0) if options.quick else (options.agents, options.seconds)
    nodes = agents if options.slurm_nodes is None else options.slurm_nodes
    name = "PostgreSQL" if options.postgresql else "SQLite"
    figures.heading(f"ingest: one controller, {name}, {agents} agents, {nodes} nodes in Slurm")
    if options.only != "storm":
        with (
            database(postgresql=options.postgresql) as url,
            head(agents=agents, slurm_nodes=nodes, store_url=url) as made,
        ):
            fleet(made, seconds, agents, options.reports_per_s)
    if options.only != "fleet":
        for all_new in (False, True):
            with (
                database(postgresql=options.postgresql) as url,
                head(agents=agents, slurm_nodes=nodes, store_url=url) as made,
            ):
                check_durable(made, storm(made, seconds / 3, all_new=all_new))
    return 0


if __name__ == "__main__":
    sys.exit(main())
