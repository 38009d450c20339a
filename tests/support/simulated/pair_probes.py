"""Both sides of pair probes, and checks by order, as the machines' agents would answer them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.model.actions.action import Intent, SendOrder
from holdfast.model.agents.report import OrderOutcome
from support.simulated.clock import SimClock
from support.simulated.machines import Machine

DEADLINE_S = 10.0
Answer = tuple[Machine, OrderOutcome]


class SimProbes:
    """A side waits for the other; alone it gives up after its deadline."""

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._waiting: dict[tuple[str, str], tuple[Machine, Intent, float]] = {}
        self.pairs: list[tuple[str, str]] = []
        """Nodes that were actually probed with each other, in order."""
        self.busy: Callable[[str], bool] = lambda _node: False
        """Whether a job holds the node, as its agent sees it."""

    def begin(self, machine: Machine, order: Intent) -> list[Answer]:
        assert isinstance(order.action, SendOrder)
        if self.busy(machine.node):
            return [(machine, self._said(order, "unknown", held="a job"))]
        name = (order.incident_id, str(order.action.args["probe"]))
        if name not in self._waiting:
            self._waiting[name] = (machine, order, self._clock.elapsed_s + DEADLINE_S)
            return []
        other, others_order, _ = self._waiting.pop(name)
        self.pairs.append((other.node, machine.node))
        spoilt = other.node in machine.spoils_probes_with or machine.node in other.spoils_probes_with
        broken = machine.path_broken or other.path_broken or spoilt
        said = {"said": "failed"} if broken else {"said": "done", "wrong": 0, "rounds": 8, "gigabytes_s": 1.0}
        return [(m, self._said(o, **said)) for m, o in ((other, others_order), (machine, order))]

    def late(self) -> list[Answer]:
        """Sides whose partner did not come."""
        now_s = self._clock.elapsed_s
        over = {name: each for name, each in self._waiting.items() if now_s >= each[2]}
        for name in over:
            del self._waiting[name]
        answers = []
        for machine, order, _ in over.values():
            assert isinstance(order.action, SendOrder)
            said = "failed" if order.action.args["role"] == "listen" else "unknown"
            answers.append((machine, self._said(order, said)))
        return answers

    def _said(self, order: Intent, said: str, **detail: Any) -> OrderOutcome:
        return OrderOutcome(order.key, said == "done", said, self._clock.now(), {"said": said, **detail})

    def check(self, machine: Machine, order: Intent) -> OrderOutcome:
        """Named checks: bad on a machine that fails the deep ones."""
        assert isinstance(order.action, SendOrder)
        outcome = "held" if self.busy(machine.node) else "ok" if machine.deep_ok else "bad"
        bad = list(order.action.args["checks"]) if outcome == "bad" else []
        failed = {"verdict": "failed", "severity": "fatal", "remedy": "replace", "summary": "sums differ"}
        detail: dict[str, Any] = {"outcome": outcome, "bad": bad}
        if outcome != "held":
            detail["results"] = [{"check": name, "component": "node", **failed} for name in bad]
        return OrderOutcome(order.key, outcome == "ok", outcome, self._clock.now(), detail)
