"""Part of a Hypothesis state machine: cuts of the management network, while the nodes behind them live and train on."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from holdfast.model.ids import incident_of_reason
from support.simulated.site import Site


class Cuts(RuleBasedStateMachine):
    """Rules that cut nodes off, and what must not happen to those that report.

    A node that was never cut off, drained, suspected of anything or without power is *innocent*: nothing may be done to it."""

    site: Site
    guilty: set[str]

    @rule(
        names=st.lists(st.sampled_from([f"n{n + 1}" for n in range(6)]), min_size=1, max_size=4, unique=True),
        seconds=st.sampled_from([10, 40, 70]),
    )
    def management_network_is_cut(self, names: list[str], seconds: int) -> None:
        """Cut these nodes off from the head node and all others; they reach each other, train on, and come back."""
        calm = [n for n in names if _calm(self.site, n)]
        machines = [self.site.machine(name) for name in names]
        before = [(m.cut_off, set(m.unreachable_by)) for m in machines]
        beyond = set(self.site.slurm.nodes) - set(names)
        for machine in machines:
            machine.cut_off, machine.unreachable_by = True, machine.unreachable_by | beyond
        if len(calm) < 2:
            self.guilty |= set(names)  # alone: peers beyond the cut may testify against it
        self.site.run(seconds, step_s=5)
        for machine, (cut_off, unreachable_by) in zip(machines, before, strict=True):
            machine.cut_off, machine.unreachable_by = cut_off, unreachable_by
        self.site.run(20, step_s=5)


def _calm(site: Site, name: str) -> bool:
    """The node serves, its only machine reports, and nothing is known against it: its silence counts for the brake on deaths."""
    node = site.slurm.nodes[name]
    return reports(site, name) and not (node.drain or node.down or site.book.open_on(name))


def reports(site: Site, name: str) -> bool:
    """Whether the controller received a report of the node's agent within its last two heartbeats: it knows that the node lives."""
    agents = site.agents.registry.views().get(name, ())
    heard = [a.last_heard for a in agents if a.instance_id == site.machine(name).instance_id]
    return any((site.clock.now() - at).total_seconds() <= 20 for at in heard)


def without_power(site: Site, reason: str) -> bool:
    """Whether a drain with this reason was for a node that its provider showed as powered off, not for a check's finding."""
    number = incident_of_reason(reason)
    mine = [i for i in site.store.intents() if i.incident_id == number and i.kind == "CheckInstance"]
    return any(i.result.get("state") in ("stopped", "terminated") for i in mine)


def accused_by_silence_alone(site: Site, name: str) -> bool:
    """Nothing but silence speaks against the node: every open incident on it is of that kind, or it has none."""
    mine = site.book.open_on(name)
    return all(i.kind.value == "silence" and not i.repair_attempt for i in mine)


__all__ = ["Cuts", "accused_by_silence_alone", "reports", "without_power"]
