"""Part of a Hypothesis state machine: clock steps, maintenance, reboots by operators, restarts of slurmctld."""

from __future__ import annotations

from typing import Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from holdfast_checks.result import Remedy, Severity
from support.simulated.provider import SimProvider
from support.simulated.site import Site

WINDOW = "vendor"
ENDED = frozenset({"COMPLETED", "CANCELLED", "FAILED"})
names = st.sampled_from([f"n{n + 1}" for n in range(6)])


class _Machinery(Protocol):
    site: Site
    provider: SimProvider
    guilty: set[str]
    by_hand: dict[str, str]
    in_window: set[str]


class Untidy(RuleBasedStateMachine):
    """Rules for what operators and machines do outside Holdfast. None of it is evidence against a node."""

    @rule(step_s=st.sampled_from([3600.5, -3600.5, 60.5, -60.5]))
    def the_clock_is_set(self: _Machinery, step_s: float) -> None:
        """While a controller runs: neither of two controllers would notice a step between them."""
        self.site.run(1)
        self.site.clock.step(step_s)
        self.site.run(2)

    @rule(nodes=st.lists(names, min_size=1, max_size=3, unique=True))
    def maintenance_begins(self: _Machinery, nodes: list[str]) -> None:
        if WINDOW not in self.site.slurm.reservations:
            self.site.slurm.operator_reserves(WINDOW, *nodes)
            self.site.run(1)
            self.in_window |= set(nodes)

    @rule(off=st.booleans())
    def the_vendor_works(self: _Machinery, off: bool) -> None:
        """Nodes in the window are switched off and on, as often as the work needs."""
        for name in self.in_window:
            self.site.machine(name).powered = not off
        self.site.run(60, step_s=10)

    @rule()
    def maintenance_ends(self: _Machinery) -> None:
        for name in self.in_window:
            self.site.machine(name).powered = True
        self.site.run(30, step_s=10)
        self.in_window.clear()
        self.site.slurm.reservations.pop(WINDOW, None)
        self.site.run(1)

    @rule(name=names)
    def an_operator_reboots(self: _Machinery, name: str) -> None:
        """``scontrol reboot`` of an idle node."""
        node = self.site.slurm.nodes[name]
        busy = any(name in job.nodes for job in self.site.slurm.jobs.values() if job.state not in ENDED)
        if not (node.drain or node.down or busy or self.site.slurm.away):
            plain, self.provider.on_boot = self.provider.on_boot, lambda _instance_id: None
            self.site.slurm.operator_reboots(name)
            self.provider.on_boot = plain
            self.site.run(40, step_s=10)

    @rule(after_s=st.sampled_from([0, 3]))
    def slurmctld_restarts(self: _Machinery, after_s: int) -> None:
        self.site.run(after_s)
        self.site.slurm.restart()
        self.site.run(2)

    @rule()
    def slurmctld_starts_cold(self: _Machinery) -> None:
        """Drains by hand are forgotten as well; Holdfast sets those on nodes with an incident again."""
        self.site.run(2)
        self.by_hand.clear()
        self.site.slurm.start_cold()
        self.site.run(3)

    @rule(check=st.sampled_from(["site.bad", "host.slurmd"]))
    def a_bad_check_warns_everywhere(self: _Machinery, check: str) -> None:
        for name in self.site.slurm.nodes:
            self.site.agents.find(
                self.site.machine(name),
                check=check,
                component="node",
                code="bad",
                minor=None,
                severity=Severity.WARNING,
                remedy=Remedy.NONE,
            )
        self.site.react()


__all__ = ["WINDOW", "Untidy"]
