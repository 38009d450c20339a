"""The machines' agents: heartbeats, reports, and orders carried out at most once."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.controller.observing.agents import AgentRegistry, Hello
from holdfast.model.actions.action import Intent, SendOrder, Verb
from holdfast.model.agents.report import Clear, Finding, Inventory, OrderOutcome, Report, Statement
from holdfast.model.errors import Unavailable
from holdfast.model.incidents.observed import would_be
from holdfast.model.jobs.output_signs import signs_of
from holdfast.ports import Store
from holdfast_checks.result import Remedy, Severity
from support.simulated.clock import SimClock
from support.simulated.machines import Machine
from support.simulated.pair_probes import SimProbes

HEARTBEAT_S = 10.0


class SimAgents:
    """All agents of a site."""

    def __init__(
        self, clock: SimClock, store: Store, machines: dict[str, Machine], serving: Callable[[str], Machine]
    ) -> None:
        self._clock = clock
        self._store = store
        self._machines = machines
        self._serving = serving
        self.registry = AgentRegistry()
        self.probes = SimProbes(clock)
        self.waiting: list[Report] = []
        """Reports that the controller did not accept yet: an agent keeps them and sends them again."""
        self.node_at: Callable[[str], str] = lambda address: f"n{address.rsplit('.', 1)[1]}"
        self.end_job: Callable[[Machine, int, int], str] = lambda _machine, _job_id, _restarts: "nothing to end here"
        """End the processes that a job (id, Restarts at its requeue) left on the machine; returns why that failed, or nothing."""
        self.outputs: dict[int, str] = {}
        """Job → its latest reported output."""
        self.stacks: Callable[[Machine, int], dict[str, Any]] = lambda _machine, _job_id: {"ranks": []}
        """What py-spy reads of a job's ranks on the machine: the outcome's detail."""
        self.survey: Callable[[Machine, Mapping[str, Any]], Statement | None] = lambda _machine, _args: None
        """What the machine's agent finds in the directory that the arguments name; None: it does not come to an end."""
        self.leave: Callable[[Machine, int, int], str] = lambda _machine, _job_id, _restarts: "no launcher listens"
        """Order a group (job id, Restarts) to leave; returns why the order could not be delivered, or nothing."""

    def step(self) -> None:
        now_s = self._clock.elapsed_s
        for machine in list(self._machines.values()):
            if machine.speaks(now_s) and now_s >= machine.next_beat_s:
                machine.next_beat_s = now_s + (machine.heartbeat_s or HEARTBEAT_S)
                self._beat(machine)
        self.send()
        self.obey()

    def _beat(self, machine: Machine) -> None:
        hello = Hello(
            machine.node,
            machine.instance_id,
            machine.boot_id,
            interval_s=machine.claims_interval_s or machine.heartbeat_s or HEARTBEAT_S,
            all_ok=machine.all_ok,
            gres=machine.gres,
            fabric_silent_s=machine.fabric_silent_s(self._clock.elapsed_s),
        )
        fresh = self.registry.heard(hello, self._clock.now(), self._clock.monotonic_s())
        if fresh:
            gpus = {uuid: {"minor": n} for n, uuid in enumerate(machine.gpu_uuids)}
            self.report(machine, inventory=Inventory(gpus))

    def report(self, machine: Machine, **items: Any) -> Report:
        """Queue one report; it is sent once the machine reports and the store answers."""
        machine.sequence += 1
        envelope = Report(
            machine.node, machine.instance_id, machine.boot_id, "box", machine.sequence, self._clock.now()
        )
        self.waiting.append(replace(envelope, **items))
        self.send()
        return self.waiting[-1] if self.waiting else replace(envelope, **items)

    def send(self) -> None:
        for report in list(self.waiting):
            machine = self._machines[report.instance_id]
            if not machine.speaks(self._clock.elapsed_s):
                continue
            try:
                self._store.accept(replace(report, received_at=self._clock.now()))
            except Unavailable:
                return
            self.waiting.remove(report)

    def find(self, machine: Machine, **changed: Any) -> Finding:
        """Report a finding: an Xid 79 of GPU 3 unless said otherwise."""
        minor = changed.pop("minor", 3)
        uuid = machine.gpu_uuids[minor] if minor is not None else None
        plain = Finding(
            id=0,
            node=machine.node,
            instance_id=machine.instance_id,
            boot_id=machine.boot_id,
            check="gpu.xid",
            component=uuid or "node",
            code="79",
            severity=Severity.FATAL,
            remedy=Remedy.REPLACE,
            failed=True,
            summary="GPU has fallen off the bus",
            fault_at=self._clock.now(),
            received_at=self._clock.now(),
            gpu_uuid=uuid,
            gpu_minor=minor,
        )
        finding = replace(plain, **changed)
        would = would_be(finding.evidence, finding.severity, finding.remedy)  # as the API reads it
        if would is not None:
            finding = replace(finding, would_severity=would.severity, would_remedy=would.remedy)
        self.report(machine, findings=(finding,))
        return finding

    def clear(self, machine: Machine, check: str, component: str) -> None:
        self.report(machine, clears=(Clear(check, component, self._clock.now()),))

    def state(self, machine: Machine, kind: str, job_id: int, restarts: int, **changed: Any) -> None:
        """A job's own report on its node (uid 1000)."""
        said = Statement(kind, job_id, changed.pop("uid", 1000), restarts, self._clock.now(), **changed)
        self.report(machine, statements=(said,))

    def obey(self) -> None:
        """Each agent asks for its orders and carries them out."""
        now = self._clock.now()
        for machine in list(self._machines.values()):
            if not machine.speaks(self._clock.elapsed_s):
                continue
            try:
                orders = self._store.take_orders(machine.node, machine.instance_id, machine.boot_id, now)
            except Unavailable:
                return
            for order in orders:
                if order.key not in machine.taken:
                    machine.taken.add(order.key)
                    self._take(machine, order)
        for machine, outcome in self.probes.late():
            self.report(machine, outcomes=(outcome,))

    def _take(self, machine: Machine, order: Intent) -> None:
        if isinstance(order.action, SendOrder) and order.action.verb is Verb.PROBE_PAIR:
            for side, outcome in self.probes.begin(machine, order):
                self.report(side, outcomes=(outcome,))
        elif isinstance(order.action, SendOrder) and order.action.verb is Verb.SURVEY:
            self.report(machine, outcomes=(self._survey(machine, order),))
        else:
            self.report(machine, outcomes=(self._carry_out(machine, order),))

    def _survey(self, machine: Machine, order: Intent) -> OrderOutcome:
        said = self.survey(machine, order.action.args) if isinstance(order.action, SendOrder) else None
        if said is not None:
            self.report(machine, statements=(said,))
        return OrderOutcome(order.key, True, "is being read", self._clock.now())

    def _carry_out(self, machine: Machine, order: Intent) -> OrderOutcome:
        action = order.action
        assert isinstance(action, SendOrder)
        now = self._clock.now()
        if action.verb is Verb.PROBE_PEER:
            return self._probe(machine, order.key, action.args)
        if action.verb is Verb.VALIDATE:
            detail = {"gpu_uuids": list(machine.gpu_uuids)}
            return OrderOutcome(order.key, machine.healthy, "ok" if machine.healthy else "bad", now, detail)
        if action.verb is Verb.CHECK:
            return self.probes.check(machine, order)
        if action.verb is Verb.SAVE:
            return OrderOutcome(order.key, not machine.deaf, "asked", now)
        if action.verb is Verb.STACKS:
            return OrderOutcome(order.key, True, "read", now, self.stacks(machine, int(action.args["job_id"])))
        if action.verb is Verb.OUTPUT:
            text = self.outputs.get(int(action.args["job_id"]))
            clues = [{"sign": c.sign.value, "line": c.line, "node": c.node} for c in signs_of(text or "")]
            why = "no such file" if text is None else "read"
            return OrderOutcome(order.key, text is not None, why, now, {} if text is None else {"clues": clues})
        if action.verb is Verb.END_JOB:
            why_not = self.end_job(machine, int(action.args["job_id"]), int(action.args["restarts"]))
            return OrderOutcome(order.key, not why_not, why_not or "ended", now)
        if action.verb is Verb.LEAVE:
            why_not = self.leave(machine, int(action.args["job_id"]), int(action.args["restarts"]))
            return OrderOutcome(order.key, not why_not, why_not or "told", now)
        return OrderOutcome(order.key, True, "done", now)

    def _probe(self, machine: Machine, key: str, args: Mapping[str, Any]) -> OrderOutcome:
        target = self._serving(self.node_at(str(args["address"])))
        now = self._clock.now()
        if target.node in machine.says_it_reaches or self._reaches(machine, target):
            return OrderOutcome(key, True, "connected", now)
        detail: dict[str, Any] = {"errno": errno.ETIMEDOUT, "reached_before_s": self._clock.elapsed_s}
        if "control" in args:
            other = self._serving(self.node_at(str(args["control"]["address"])))
            detail["control"] = "reached" if self._reaches(machine, other) else "unreached"
        return OrderOutcome(key, False, "timed out", now, detail)

    def _reaches(self, machine: Machine, target: Machine) -> bool:
        booted = target.powered and self._clock.elapsed_s >= target.boots_at_s
        return booted and machine.node not in target.unreachable_by
