"""The agent of one node: sources in, outbox out. Wiring; each part is in a file of its own."""

from __future__ import annotations

import logging
import random
import signal
import time

from holdfast.agent import wire
from holdfast.agent.client import Client, Controllers
from holdfast.agent.gpus import INVENTORY_KEY, Inventory
from holdfast.agent.kernel import CURSOR_KEY, KernelLog
from holdfast.agent.loop import Loop, Task
from holdfast.agent.memory import Memory
from holdfast.agent.nvml import DEADLINE_TASK, Answer, NvmlSource
from holdfast.agent.outbox import Item, Outbox
from holdfast.agent.sender import Identity, Sender
from holdfast.agent.standing import Events, Standing
from holdfast.agent.system import read_id, sd_notify, utc_ms, watchdog_interval_s
from holdfast.config.agent import AgentConfig
from holdfast_checks.checks.xid import from_event
from holdfast_checks.probes.nvml import NvmlEvent
from holdfast_checks.result import Result

log = logging.getLogger(__name__)

STANDING_KEY = "standing"
GPU_INTERVAL_S = 30.0
"""Between two NVML snapshots (facts, section 10: 15–30 s)."""
_CURSOR_S = 30.0
"""How often the kernel log's cursor is saved when nothing was found."""


class Agent:
    """Everything that runs on a node. Raises ConfigError or OSError when it cannot start."""

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        boot_id = read_id(config.boot_id_path, "boot id")
        self.identity = Identity(config.node, read_id(config.instance_id_path, "instance id"), boot_id)
        self.memory = Memory(config.state_dir)
        self.outbox = Outbox(self.memory, boot_id, max_items=config.outbox_items, max_bytes=config.outbox_bytes)
        self.standing = Standing(config.reminder_s)
        self.standing.load(self.memory.get(STANDING_KEY))
        self.events = Events()
        self.controllers = Controllers(config.controllers)
        client = Client(self.controllers, config.token_file, config.ca_file)
        self.sender = Sender(client, self.outbox, self.identity, config.state_dir)
        self.kernel = KernelLog(config.kmsg_path, boot_id, self.memory.get(CURSOR_KEY))
        self.nvml = NvmlSource(
            config,
            Inventory.remembered(self.memory.get(INVENTORY_KEY), boot_id),
            on_answer=self._gpus_answered,
            on_event=self._gpu_event,
            on_inventory=self._tell_inventory,
        )
        self.loop = Loop(self._tasks(), random.random())  # noqa: S311 - jitter

    def _tasks(self) -> dict[str, tuple[float, Task]]:
        tasks: dict[str, tuple[float, Task]] = {
            "heartbeat": (self.config.heartbeat_s, self._heartbeat),
            "gpus": (self.config.intervals.get("gpu", GPU_INTERVAL_S), self.nvml.snapshot),
            DEADLINE_TASK: (float("inf"), self.nvml.tick),
            "cursor": (_CURSOR_S, self._save_cursor),
        }
        if (interval_s := watchdog_interval_s()) is not None:
            tasks["watchdog"] = (interval_s, lambda: sd_notify("WATCHDOG=1"))
        return tasks

    def run(self) -> None:
        """Until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self.loop.stop())
        log.info(
            "event=started boot=%s instance=%s waiting=%d",
            self.identity.boot_id,
            self.identity.instance_id,
            len(self.outbox),
        )
        self.sender.start()
        self.loop.watch(self.kernel, self.read_kernel)
        self.nvml.attach(self.loop)
        if self.nvml.inventory.gpus:
            self._tell_inventory()
        self.read_kernel()
        sd_notify("READY=1")
        try:
            self.loop.run()
        finally:
            self.close()

    def close(self) -> None:
        sd_notify("STOPPING=1")
        self.nvml.close()
        self.sender.stop()
        self.kernel.close()
        self.loop.close()
        self.memory.close()
        log.info("event=stopped")

    def read_kernel(self) -> None:
        """Deal with what the kernel has logged: items and cursor go to disk in one transaction."""
        now_s = time.monotonic()
        items = [
            self._finding(seen.result, now_s, history=seen.history)
            for seen in self.kernel.read(self.nvml.gpus, now_s)
            if seen.history or self._fresh(seen.result, now_s)
        ]
        if items:
            self.report(items, {CURSOR_KEY: self.kernel.cursor} if self.kernel.settled else {})
            self.nvml.snapshot()  # what NVML keeps of the fault is worth seeing now

    def report(self, items: list[Item], facts: dict[str, str] | None = None, *, durable: bool = True) -> None:
        """Put items into the outbox and wake the sender."""
        self.outbox.put(items, facts, durable=durable)
        self.sender.wake(urgent=any(item.kind == "finding" for item in items))

    def _heartbeat(self) -> None:
        self.sender.beat(
            {
                "interval_s": self.config.heartbeat_s,
                "wall_time": utc_ms(),
                "all_ok": self.standing.all_ok,
                "failing": self.standing.failing,
            }
        )

    def _save_cursor(self) -> None:
        if self.kernel.settled:
            self.outbox.put((), {CURSOR_KEY: self.kernel.cursor}, durable=False)

    def _fresh(self, result: Result, now_s: float) -> bool:
        return self.events.fresh(result, now_s if result.fault_monotonic_s is None else result.fault_monotonic_s)

    def _finding(self, result: Result, now_s: float, *, history: bool = False) -> Item:
        named = (result.check, result.code, result.component)
        log.warning("event=finding check=%s code=%s component=%s history=%s", *named, history)
        return wire.finding(result, now_s, utc_ms(), history=history)

    def _gpus_answered(self, answer: Answer) -> None:
        self.read_kernel()  # records that waited for the GPUs to be known

    def _gpu_event(self, event: NvmlEvent) -> None:
        now_s = time.monotonic()
        if event.kind == "xid":
            result = from_event(event.data, self.nvml.inventory.named(event.gpu), monotonic_s=event.monotonic_s)
            if result.bad and self._fresh(result, now_s):
                self.report([self._finding(result, now_s)])
        self.nvml.snapshot()

    def _tell_inventory(self) -> None:
        inventory = self.nvml.inventory
        self.report([Item(inventory.wire(), time.monotonic(), key="inventory")], {INVENTORY_KEY: inventory.dump()})
