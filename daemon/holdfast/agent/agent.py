"""Wiring of one node's agent: sources in, outbox out. Each part is in its own file."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from functools import partial

from holdfast import unexpected
from holdfast.agent.acting import Acting
from holdfast.agent.findings import wire
from holdfast.agent.findings.finding_state import OpenFindings
from holdfast.agent.findings.flaps import Events
from holdfast.agent.findings.trust import ResultTrust, Weighed
from holdfast.agent.jobs.job_socket import JobSocket
from holdfast.agent.jobs.launchers import ask_group_to_leave
from holdfast.agent.jobs.priority import Stretch, room_for_files, step_back
from holdfast.agent.jobs.rendezvous import Rooms
from holdfast.agent.node.job_gate import JobGate
from holdfast.agent.node.processes import SlurmNode
from holdfast.agent.node.system import read_id, utc_ms
from holdfast.agent.orders import checkpoint_verbs, probing, verbs
from holdfast.agent.orders.evidence import collect_evidence
from holdfast.agent.orders.inspect import Inspector
from holdfast.agent.orders.job_note import leave_job_note
from holdfast.agent.orders.orders import OrderHandler, Orders
from holdfast.agent.orders.output import read_output
from holdfast.agent.orders.resetting import Held, reset_gpu
from holdfast.agent.orders.save_signals import SaveSignals
from holdfast.agent.orders.stacks import collect_stacks
from holdfast.agent.orders.stuck_job import end_stuck_job
from holdfast.agent.orders.surveys import CheckpointSurveys, look
from holdfast.agent.sending.authorities import Authorities
from holdfast.agent.sending.client import ControllerClient, Controllers
from holdfast.agent.sending.memory import AgentMemory, only_agent
from holdfast.agent.sending.outbox import Outbox, OutboxItem
from holdfast.agent.sending.pace import INTERVAL, HeartbeatPace
from holdfast.agent.sending.reporting import Reporting
from holdfast.agent.sending.sender import Sender, SenderIdentity
from holdfast.agent.sources.checks import HostChecks, on_demand_checks, periodic_checks, settings_of, split_by_need
from holdfast.agent.sources.fabric import Fabric
from holdfast.agent.sources.gpus import INVENTORY_KEY, KnownGpus, pci_gpus
from holdfast.agent.sources.gres import GresWatch
from holdfast.agent.sources.kernel import CURSOR_KEY, KernelLog
from holdfast.agent.sources.machine_id import machine_id
from holdfast.agent.sources.neighbours import NeighbourProbes
from holdfast.agent.sources.nvml import DEADLINE_TASK, NvmlAnswer, NvmlSource
from holdfast.agent.timing.jitter import JITTER
from holdfast.agent.timing.loop import Loop, Task
from holdfast.config.agent import AgentConfig
from holdfast.model.actions.action import Verb
from holdfast.systemd import sd_notify, watchdog_interval_s
from holdfast_checks.active.pair import run_side
from holdfast_checks.checks import efa_silence
from holdfast_checks.kernel.xid import from_event
from holdfast_checks.known import all_checks
from holdfast_checks.probes.nvml import NvmlEvent
from holdfast_checks.registry import Check, Context
from holdfast_checks.result import Result
from holdfast_checks.runner import Samples, run
from holdfast_checks.seen_right import SeenRight, places_of
from holdfast_checks.settings.thresholds import with_thresholds

log = logging.getLogger(__name__)

STANDING_KEY = "standing"
SEEN_RIGHT_KEY = "seen_right"
WITHHELD_KEY = "gpus_not_given_out"
HEARTBEAT_TASK = "heartbeat"
NVML_TASK = "nvml"
_NVML_AHEAD_S = 1.0
"""NVML is read this long before the host checks, so that its answer is evaluated before they start: two threads at once would switch the
interpreter lock at each call."""
EXIT_BROKEN = 70
"""EX_SOFTWARE of sysexits.h: a bug; systemd restarts the agent."""
_CURSOR_S = 30.0
"""How often the kernel log's cursor is saved when nothing was found."""


class Agent:
    """Everything that runs on a node. Raises ConfigError or OSError when it cannot start."""

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        boot_id = read_id(config.boot_id_path, "boot id")
        self.identity = SenderIdentity(config.node, machine_id(config), boot_id)
        self._broken = False
        self._lock_fd = only_agent(config.state_dir)
        self.memory = AgentMemory(config.state_dir)
        self.outbox = Outbox(self.memory, boot_id, max_items=config.outbox_items, max_bytes=config.outbox_bytes)
        self.standing = OpenFindings(config.reminder_s)
        checks = periodic_checks(config)
        self.nvml_checks, self.host_checks = split_by_need(checks)
        self.acting = Acting(
            (config.act_on, config.observe_only), config.state_dir, lambda: self.loop.call(self._take_policy)
        )
        self.settings = with_thresholds(settings_of(config), self.acting.thresholds)
        self.trust = ResultTrust(
            {**all_checks(), **on_demand_checks(config), **checks},
            self.acting.lists,
            SeenRight(places_of(checks, self.settings)),
        )
        self.trust.seen_right.load(self.memory.get(SEEN_RIGHT_KEY))
        self.trust.withheld.load(self.memory.get(WITHHELD_KEY))
        self.standing.expected, self.standing.off = frozenset(checks), self.acting.off
        self.standing.load(self.memory.get(STANDING_KEY))
        self.events = Events()
        self.fabric = Fabric(self._interval_s(efa_silence.CHECK))
        self.samples = Samples()
        self.controllers = Controllers(config.controllers)
        self.authorities = Authorities(config.ca_file)
        self.reporting = Reporting(config.not_reporting_after_s, config.run_dir)
        gate = JobGate()
        self.slurm = SlurmNode(config.node, config.slurmd_pid_file, config.scontrol, config.slurm_conf)
        self.neighbours = NeighbourProbes(self.slurm.address_of)
        self.surveys = CheckpointSurveys(lambda item: self.report([item], durable=False), look)
        self.pace = HeartbeatPace(config.heartbeat_s, lambda: self.loop.call(self._take_pace))
        self.sender = Sender(
            self._client(),
            self.outbox,
            self.identity,
            config.state_dir,
            self.reporting,
            gate,
            self.neighbours.told,
            self.pace,
            self.surveys.told,
            self.acting.answered,
        )
        self.gres = GresWatch(self.slurm, lambda: self.loop.call(self._heartbeat))
        self.kernel = KernelLog(
            config.kmsg_path, boot_id, self.memory.get(CURSOR_KEY), config.sysfs_path, off=config.disabled_checks
        )
        self.nvml = NvmlSource(
            config,
            KnownGpus.remembered(self.memory.get(INVENTORY_KEY), boot_id),
            checks=self.nvml_checks,
            on_answer=self._gpus_answered,
            on_event=self._gpu_event,
            on_inventory=self._tell_inventory,
        )
        self.host = HostChecks(self._host_checked, room_for_files())
        self.stretch = Stretch()
        self.loop = Loop(self._tasks(), JITTER.random(), {NVML_TASK: _NVML_AHEAD_S})
        inspector = Inspector(
            config,
            lambda: self.settings,
            self.loop,
            self.nvml,
            checks,
            self.trust,
            lambda: self.gres.listed,
            lambda: self.acting.off,
        )
        self.save_signals = SaveSignals(self.memory)
        rooms = Rooms(self._client, len(self.controllers))
        self.jobs = JobSocket(config.run_dir, self.slurm, self._stated, rooms, self.save_signals)
        handlers = {verb.value: handler for verb, handler in self._handlers(inspector).items()}
        self.orders = Orders(self._client(), self.memory, self.identity, handlers, lambda item: self.report([item]))
        self.jobs.answers.fatal, self.jobs.answers.gate = self.standing.fatal, gate

    def _client(self) -> ControllerClient:
        return ControllerClient(self.controllers, self.config.token_file, self.config.ca_file)

    def _handlers(self, inspector: Inspector) -> dict[Verb, OrderHandler]:
        """Order handlers: one for each verb."""
        config = self.config
        return {
            Verb.VALIDATE: verbs.validate(
                inspector.run_checks,
                inspector.checks,
                inspector.gpu_uuids,
                lambda: len(pci_gpus(config.sysfs_path)),
                self.slurm,
                inspector.named,
            ),
            Verb.EVIDENCE: collect_evidence(
                config.state_dir / "evidence", config.kmsg_path, config.pstore_path, inspector.gpu_evidence
            ),
            Verb.END_STEP: verbs.end_leftover_step(self.slurm),
            Verb.END_JOB: end_stuck_job(self.slurm),
            Verb.PROBE_PEER: verbs.probe_peer(self.neighbours, self.slurm),
            Verb.SAVE: verbs.ask_job_to_save(self.slurm, self.save_signals),
            Verb.LEAVE: ask_group_to_leave(self.jobs.launchers),
            Verb.STACKS: collect_stacks(self.slurm),
            Verb.OUTPUT: read_output(os.uname().nodename),
            Verb.JOB_NOTE: leave_job_note(os.uname().nodename),
            Verb.RESET_GPU: reset_gpu(Held(self.loop, self.nvml), self.slurm, self.settings.gpu),
            Verb.PROBE_PAIR: probing.probe_pair(lambda side: run_side(side, self.settings.active), self.slurm),
            Verb.SURVEY: self.surveys.handler(),
            Verb.CHECK: probing.run_checks(inspector.run_checks, inspector.named, self.slurm),
        }

    def _tasks(self) -> dict[str, tuple[float, Task]]:
        tasks: dict[str, tuple[float, Task]] = {
            HEARTBEAT_TASK: (self.pace.every_s, self._heartbeat),
            DEADLINE_TASK: (float("inf"), self.nvml.tick),
            "cursor": (_CURSOR_S, self._save_cursor),
        }
        if self.nvml_checks:
            tasks[NVML_TASK] = (min(map(self._interval_s, self.nvml_checks)), self.nvml.snapshot)
        for check in self.host_checks:
            tasks[check.id] = (self._interval_s(check), partial(self._begin, check))
        if (interval_s := watchdog_interval_s()) is not None:
            tasks["watchdog"] = (interval_s, lambda: sd_notify("WATCHDOG=1"))
        return tasks

    def run(self) -> int:
        """Run until SIGTERM or SIGINT; the exit status."""
        step_back(self.config.nice, self.config.cpus)
        threading.excepthook = self._thread_broke
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self.loop.stop())
        log.info(
            "event=started boot=%s instance=%s waiting=%d",
            self.identity.boot_id,
            self.identity.instance_id,
            len(self.outbox),
        )
        checkpoint_verbs.place(self.config.run_dir)
        self.jobs.start()
        self.reporting.begin()
        self.sender.start()
        self.neighbours.start()
        self.surveys.start()
        self.orders.start()
        self.gres.start()
        self.loop.watch(self.kernel, self.read_kernel)
        self.nvml.attach(self.loop)
        if self.nvml.known.this_boot:
            self._tell_inventory()
        self.read_kernel()
        sd_notify("READY=1")
        try:
            self.loop.run()
        finally:
            self.close()
        return EXIT_BROKEN if self._broken else 0

    def _thread_broke(self, fault: threading.ExceptHookArgs) -> None:
        """Exit when a thread dies, so that systemd restarts the agent: with half its threads it would look healthy and report nothing."""
        name = fault.thread.name if fault.thread else "?"
        log.critical(
            "event=thread_broke thread=%s error=%r effect=agent_ends", name, fault.exc_value, exc_info=fault.exc_value
        )
        self._broken = True
        self.loop.stop()

    def close(self) -> None:
        sd_notify("STOPPING=1")
        self.orders.stop()
        self.gres.stop()
        self.jobs.stop()
        self.host.close()
        self.nvml.close()
        self.neighbours.stop()
        self.surveys.stop()
        self.sender.stop()
        self.reporting.end()
        self.kernel.close()
        self.loop.close()
        self.memory.close()
        os.close(self._lock_fd)
        log.info("event=stopped")

    def read_kernel(self) -> None:
        """Process new kernel log records: items and cursor go to disk in one transaction."""
        now_s = time.monotonic()
        items = [
            self._finding(self.trust.weigh(result), now_s, history=seen.history)
            for seen in self.kernel.read(self.nvml.gpus, now_s)
            if seen.result.check not in self.acting.off
            and (result := seen.result if seen.history else self._admit(seen.result, now_s)) is not None
        ]
        if items:
            self.report(items, {CURSOR_KEY: self.kernel.cursor} if self.kernel.settled else {})
            self.nvml.snapshot()  # read what NVML has on the fault now

    def _stated(self, item: OutboxItem) -> None:
        """Queue a job's statement, from the socket's thread. Progress does not trigger a message; it goes with the next one."""
        if item.key:
            self.outbox.put([item], durable=False)
        else:
            self.report([item])

    def report(self, items: list[OutboxItem], facts: dict[str, str] | None = None, *, durable: bool = True) -> None:
        """Put items into the outbox and wake the sender."""
        self.outbox.put(items, facts, durable=durable)
        self.sender.wake(urgent=any(item.kind == "finding" for item in items))

    def _heartbeat(self) -> None:
        aside = self.memory.set_aside()
        gpus = self.nvml.known.inventory.gpus
        gres, gres_problem = self.gres.told(ref.minor for ref in gpus if ref.minor is not None)
        if gres is not None and self.trust.withheld.learn(gres["gpu"], gpus):
            self.outbox.put((), {WITHHELD_KEY: self.trust.withheld.dump()})
        self.sender.beat(
            {
                INTERVAL: self.pace.said_s,
                "wall_time": utc_ms(),
                "all_ok": self.standing.all_ok and not unexpected.standing(),
                "failing": (*self.standing.failing, *(f"agent.{part}" for part in sorted(unexpected.standing()))),
                "fabric_silent_s": self.fabric.silent_s(time.monotonic()),
                "authorities": self.authorities.known(),
                "act_on": self.trust.lists.act_on,
                "observe_only": self.trust.lists.observe_only,
                "checks_off": sorted(self.acting.off),
                "checks_version": self.acting.version,
                "checks_refused": self.acting.refused,
                "gres": gres,
                "gres_problem": gres_problem,
                "set_aside": aside.count,
                "set_aside_s": None if aside.since_s is None else max(0.0, time.time() - aside.since_s),
            }
        )

    def _take_pace(self) -> None:
        self.loop.schedule.every(HEARTBEAT_TASK, self.pace.every_s, time.monotonic())
        log.info("event=heartbeat_interval seconds=%g", self.pace.every_s)

    def _take_policy(self) -> None:
        self.trust.lists = self.acting.lists
        self.standing.off = self.acting.off
        self.jobs.answers.fatal = self.standing.fatal
        self.settings = with_thresholds(settings_of(self.config), self.acting.thresholds)

    def _save_cursor(self) -> None:
        if self.kernel.settled:
            self.outbox.put((), {CURSOR_KEY: self.kernel.cursor}, durable=False)

    def _admit(self, result: Result, now_s: float) -> Result | None:
        """The event as it is to be reported; None: it was reported already, or it is part of a storm."""
        return self.events.admit(result, now_s if result.fault_monotonic_s is None else result.fault_monotonic_s)

    def _finding(self, found: Weighed, now_s: float, *, history: bool = False) -> OutboxItem:
        named = (found.result.check, found.result.code, found.result.component)
        log.warning("event=finding check=%s code=%s component=%s history=%s", *named, history)
        return wire.finding(found, now_s, utc_ms(), history=history)

    def _interval_s(self, check: Check) -> float:
        return self.config.intervals.get(check.id, check.interval_s)

    def context(self, answer: NvmlAnswer | None = None) -> Context:
        """The facts that checks may read now."""
        return Context(self.settings, answer or self.nvml.latest, self.nvml.known.inventory, self.gres.listed)

    def _begin(self, check: Check) -> None:
        if check.id in self.acting.off:
            return
        self.loop.schedule.put_off(check.id, self.stretch.now(time.monotonic()) - 1.0)
        self._judged(check, self.host.begin(check, self.context()))

    def _host_checked(self, check: Check, results: tuple[Result, ...], soon: bool) -> None:
        self.loop.call(lambda: self._judged(check, results), soon=soon)

    def _gpus_answered(self, answer: NvmlAnswer) -> None:
        self.read_kernel()  # records that waited for the GPUs to be known
        context = self.context(answer)
        for check in self.nvml.checks_of(answer):
            if check.id not in self.acting.off:
                self._judged(check, run(check, context, self.samples))

    def _judged(self, check: Check, results: tuple[Result, ...]) -> None:
        """Report changes, and store the open findings in the same transaction. Nothing of a check that was switched off while it ran."""
        if check.id in self.acting.off:
            return
        now_s = time.monotonic()
        if check.id == efa_silence.CHECK_ID:
            self.fabric.told(results, now_s)
        if self.trust.seen_right.learn(results):
            self.outbox.put((), {SEEN_RIGHT_KEY: self.trust.seen_right.dump()})
        news = self.standing.judge(map(self.trust.weigh, results), now_s, check.hysteresis)
        if not news:
            return
        items = [self._finding(found, now_s) for found in news.findings]
        for name, component in news.clears:
            log.info("event=clear check=%s component=%s", name, component)
            items.append(wire.clear(name, component, now_s))
        self.jobs.answers.fatal = self.standing.fatal
        self.report(items, {STANDING_KEY: self.standing.dump()})

    def _gpu_event(self, event: NvmlEvent) -> None:
        now_s = time.monotonic()
        if event.kind == "xid":
            told = from_event(event.data, self.nvml.known.named(event.gpu), monotonic_s=event.monotonic_s)
            if told.bad and told.check not in self.acting.off and (result := self._admit(told, now_s)) is not None:
                self.report([self._finding(self.trust.weigh(result), now_s)])
        self.nvml.snapshot()

    def _tell_inventory(self) -> None:
        known = self.nvml.known
        self.report([OutboxItem(known.wire(), time.monotonic(), key="inventory")], {INVENTORY_KEY: known.dump()})
        self._heartbeat()
