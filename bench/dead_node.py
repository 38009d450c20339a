"""Recovery from a power loss: from death to DOWN in Slurm, and to the job running again elsewhere, on a practice cluster.

``bench/dead_node.py [--faults 50] [--leftovers on|off|both] [--power shown|unseen|both] [--quick]``. Heartbeats as shipped. The survivors'
agents end left-over steps in the series with ``death.end_leftover_steps = true``; in the other one the job waits for Slurm itself. Death is
the injector's moment, right before the node is frozen and its sockets fall silent. ``--power shown``: the provider shows the machine off;
``unseen``: it still shows it running with its checks passing, so that two peers find it dead and its machine is left to an operator,
whose part the bench plays: once the job runs elsewhere, the power comes back."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.kit import figures
from bench.kit.slurmview import Watcher
from bench.kit.stage import Stage, Struck, came_back, print_changes, print_logs, resumed_from, site

from holdfast.controller.timing import pace
from holdfast.model.errors import HoldfastError

HEAL_WITHIN_S = 240.0
DEATHS_BEFORE = 3
"""As shipped; a series has a death every half minute, which would be one cause."""
DOWN = "death -> DOWN in Slurm"
RUNNING = "death -> job RUNNING elsewhere"
AFTER = "DOWN -> job RUNNING elsewhere"
RESUMED = "death -> training resumes"
RETURNED = "death -> node back in service"
GOALS = {RUNNING: 20.0, AFTER: 5.0}


def truth(struck: Struck) -> dict[str, float]:
    """Seconds from death to what Slurm, or the job itself, showed."""
    began_s, trace = struck.injection.monotonic_s, struck.trace
    restarts = trace.looks[0].restarts
    down = trace.first(lambda look: look.at_s > began_s and look.down)
    running = trace.first(lambda look: look.restarts > restarts and look.job == "RUNNING")
    back = trace.first(lambda look: down is not None and look.at_s > down.at_s and not look.out)
    seen = {DOWN: down, RUNNING: running, RETURNED: back}
    found = {name: look.at_s - began_s for name, look in seen.items() if look is not None}
    if DOWN in found and RUNNING in found:
        found[AFTER] = found[RUNNING] - found[DOWN]
    if (resumed_s := came_back(trace, began_s)) is not None:
        found[RESUMED] = resumed_s - began_s
    return found


def resumption(struck: Struck) -> str:
    """Whether the job lost no more than the steps since its newest checkpoint."""
    found = resumed_from(struck.trace, struck.injection.monotonic_s)
    if found is None:
        return "NOT resumed from a checkpoint"
    step, saved = found
    newest = "its newest checkpoint" if step >= saved else f"NOT its newest checkpoint, which is of step {saved}"
    return f"the job resumed from step {step}, {newest}"


def measure(faults: int, *, end_leftovers: bool, shown_off: bool) -> bool:
    """One series; prints its figures. False: a death was not healed."""
    power = "the provider shows it off" if shown_off else "the provider still shows it running"
    figures.heading(
        f"dead node: {faults} power losses, {power}, death.end_leftover_steps = {str(end_leftovers).lower()}"
    )
    truths: list[dict[str, float]] = []
    settings = {"death": {"end_leftover_steps": end_leftovers, "deaths_10min": faults + DEATHS_BEFORE}}
    with site(settings=settings) as made, Watcher(made.practice) as watcher:
        print_changes(made)
        print(f"  agents' heartbeat_s = {pace.interval_s(len(made.practice.nodes)):g} (the controller's, as shipped)")
        stage = Stage(made, watcher)
        for number in range(faults):
            began_s = time.monotonic()
            try:
                struck = stage.strike(
                    lambda injector, node: injector.power_loss(node, shown_off=shown_off),
                    heal_within_s=HEAL_WITHIN_S,
                    mend=lambda injector, node: None if shown_off else injector.heal(node),
                )
            except HoldfastError as error:
                print(f"death {number + 1}: NOT HEALED: {error}")
                print_logs(made)
                break
            truths.append(truth(struck))
            told = ", ".join(f"{name} {value:.2f} s" for name, value in truths[-1].items())
            print(
                f"death {number + 1} of {struck.injection.node}: {told} ({time.monotonic() - began_s:.0f} s in all)\n"
                f"  {resumption(struck)}",
                flush=True,
            )
    rows = {name: [t[name] for t in truths if name in t] for name in (DOWN, AFTER, RUNNING, RESUMED, RETURNED)}
    figures.durations("as Slurm showed it", rows, GOALS)
    print(f"load at the end: {figures.load()}", flush=True)
    return len(truths) == faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--leftovers", choices=("on", "off", "both"), default="both", help="end_leftover_steps")
    parser.add_argument(
        "--power", choices=("shown", "unseen", "both"), default="both", help="whether the provider shows it off"
    )
    parser.add_argument("--quick", action="store_true", help="one death of each kind: shows that the bench works")
    options = parser.parse_args()
    faults = 1 if options.quick else options.faults
    leftovers = {"on": (True,), "off": (False,), "both": (True, False)}[options.leftovers]
    powers = {"shown": (True,), "unseen": (False,), "both": (True, False)}[options.power]
    healed = [measure(faults, end_leftovers=kind, shown_off=power) for power in powers for kind in leftovers]
    return 0 if all(healed) else 1


if __name__ == "__main__":
    sys.exit(main())
