"""Closed forms of ``holdfast plan`` against the simulation, and against the trace of 400 servers.

``bench/planning.py [--runs 40] [--segments 2000] [--seed 1]``. Each line: the closed form, the simulation's mean with 3 standard errors,
and whether the form lies within. Needs neither Slurm nor a controller."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random

from holdfast.planning import nodes_out, run_cost, simulate
from holdfast.planning.hyperpod_post import LEFT_OUT, WITH_HOLDFAST, WITH_HYPERPOD, WITHOUT
from holdfast.planning.nodes_out import NodesOut, SpareMethod
from holdfast.planning.run_cost import NO_WAITING
from holdfast.replay.trace import read_trace

_TRACE = Path(__file__).resolve().parents[1] / "docs" / "examples" / "infinitehbd-trace.csv"
_SERVERS = 400
_RATES = (1e-4, 5e-4, 8e-4)
_SIZES = (64, 256, 512)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--segments", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    wrong = slowdowns(asked.runs, asked.segments, Random(asked.seed)) + concurrency(Random(asked.seed))
    print(f"{wrong} outside")
    sys.exit(1 if wrong else 0)


def slowdowns(runs: int, segments: int, chance: Random) -> int:
    """How many closed forms lie outside the simulation's interval."""
    wrong = 0
    print("total over ideal time: nodes, %/h, times, closed form, simulation ± 3 standard errors")
    for nodes in _SIZES:
        for rate in _RATES:
            for name, down, waiting in (
                ("without", WITHOUT, NO_WAITING),
                ("HyperPod", WITH_HYPERPOD, LEFT_OUT.waiting),
                ("Holdfast", WITH_HOLDFAST, LEFT_OUT.waiting),
            ):
                form = run_cost.slowdown(nodes * rate, down.hours, LEFT_OUT.saving, waiting)
                found = [
                    simulate.simulate_slowdown(nodes * rate, down.hours, LEFT_OUT.saving, chance, segments, waiting)
                    for _ in range(runs)
                ]
                mean = simulate.mean_of(found)
                fits = mean.holds(form)
                wrong += not fits
                said = "" if fits else "  OUTSIDE"
                print(f"{nodes:4} {rate * 100:5.2f} {name:9} {form:8.4f} {mean.value:8.4f} ± {mean.margin:.4f}{said}")
    return wrong


def concurrency(chance: Random) -> int:
    """Nodes out at once with the trace's rate and its own repair times, drawn independently; and the trace itself."""
    trace = read_trace(_TRACE.read_text(encoding="utf-8").splitlines(), _TRACE.name)
    lasted = [trace.lasted_h(f) for f in trace.failures]
    mean_h = sum(lasted) / len(lasted)
    rate = len(trace.failures) / trace.hours
    form = NodesOut(nodes_out.mean_out(_SERVERS, rate / _SERVERS, mean_h))
    found = simulate.simulate_nodes_out(rate, lambda: chance.choice(lasted), chance, 4e6, max(lasted))
    measured = trace.out()
    print("nodes out at once: mean, variance/mean, P50, P90, P99")
    for name, out, method in (
        ("Poisson with the mean repair", form, SpareMethod.POISSON),
        ("simulated, independent failures, the trace's repairs", found, SpareMethod.EMPIRICAL),
        ("the trace itself", measured, SpareMethod.EMPIRICAL),
        ("negative binomial, the trace's mean and variance", measured, SpareMethod.NEGATIVE_BINOMIAL),
    ):
        p = [nodes_out.quantile(out, method, q) for q in (0.5, 0.9, 0.99)]
        print(f"{name:52} {out.mean:6.2f} {out.dispersion:5.2f} {p}")
    same = [
        abs(nodes_out.quantile(form, SpareMethod.POISSON, q) - nodes_out.quantile(found, SpareMethod.EMPIRICAL, q)) <= 1
        for q in (0.5, 0.9, 0.99)
    ]
    return same.count(False)


if __name__ == "__main__":
    main()
