"""Background reads of slow-changing data, every few minutes and outside the cycle: weeks of events, Slurm's topology. Data that cannot be
read keeps its previous value."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path

from holdfast.controller.observing.head_reach import resolve
from holdfast.controller.timing.clock_steps import ClockStep, not_to_come
from holdfast.decisions.common import slurm_view
from holdfast.decisions.incidents import node_history
from holdfast.decisions.spares.pool import P99, by_rule, kept, wanted
from holdfast.model.background import Background, Outage
from holdfast.model.book import World
from holdfast.model.errors import OutsideError
from holdfast.model.event import Event
from holdfast.model.policies.lookback import KeptData, longest
from holdfast.ports import Scheduler, Store
from holdfast_checks.whole_file import write_whole

log = logging.getLogger(__name__)

READ_EVERY_S = 300.0
LEMONS_HOLD_S = 3 * READ_EVERY_S
"""How long the list of lemons is valid after it was written."""
PAGE = 5000
"""Events read with one query."""
MOST_INCIDENTS = 20_000


@dataclass
class BackgroundWatch:
    """Newest background reading. One thread at a time calls :meth:`refresh`."""

    store: Store
    scheduler: Scheduler
    newest: Background = field(default_factory=Background)
    resolve: Callable[[Mapping[str, str]], Mapping[str, str]] = resolve
    """Node → name, to node → IP address."""
    steps: tuple[ClockStep, ...] = ()
    """By which the clock was set."""
    _slurm_failed: bool = False

    def refresh(self, world: World) -> None:
        """Read everything again for the policy of this world. Raises no error of an external system."""
        before = self.newest
        try:
            since, outages = self._outages(world)
        except OutsideError as error:
            log.warning("event=history_unavailable error=%r", str(error))
            return
        policy = world.policy
        serving = {n.name: n.instance_id for n in world.book.nodes.values()}
        excluded = node_history.excluding_users(world)
        if policy.history.lemon_file:  # job_submit.lua excludes these for its users
            excluded = {node: users for node, users in excluded.items() if not before.lemon(node, world.now)}
        lemons = node_history.lemons(outages, serving, excluded, policy.history, policy.repair.fresh_s, world.now)
        now = replace(before, read_at=world.now, since=since, outages=outages, lemons=lemons)
        if policy.spares.wanted == P99 and world.view is not None:
            now = replace(now, by_rule=by_rule(replace(world, background=now), world.view))
        now = replace(
            self._slurm_user(self._slurm(now, world)), short_since=_short_since(replace(world, background=now), before)
        )
        self.newest = now
        if policy.history.lemon_file:
            write_lemons(Path(policy.history.lemon_file), (n for n in lemons if now.lemon(n, world.now)), world.now)

    def _outages(self, world: World) -> tuple[datetime | None, tuple[Outage, ...]]:
        since = world.now - longest(world.policy, KeptData.RECORD)
        events: list[Event] = []
        while page := self._page(since, events[-1].id if events else 0):
            events += page
            if len(page) < PAGE:
                break
        found = self.store.incidents(since=since, limit=MOST_INCIDENTS)
        if len(found) == MOST_INCIDENTS:
            log.warning("event=history_cut incidents=%d oldest=%s", MOST_INCIDENTS, found[-1].opened_at)
        incidents = {i.id: i for i in found}
        first = self.store.events(limit=1)
        events = not_to_come(events, self.steps, world.now)
        outages = node_history.outages(events, incidents, self.store.recoveries(since=since))
        return (first[0].at if first else None), outages

    def _page(self, since: datetime, after_id: int) -> tuple[Event, ...]:
        return self.store.events(since=since, after_id=after_id, kinds=node_history.KINDS, limit=PAGE)

    def _slurm(self, background: Background, world: World) -> Background:
        """The topology, SlurmdTimeout, and the addresses of the nodes that Slurm shows by name."""
        nodes = world.view.nodes.values() if world.view is not None else ()
        addresses = self.resolve({n.name: n.address for n in nodes if not _is_ip(n.address)})
        background = replace(background, addresses={**background.addresses, **addresses})
        try:
            topology = self.scheduler.topology()
            config = self.scheduler.config()
        except OutsideError as error:
            if not self._slurm_failed:
                log.warning("event=topology_unavailable error=%r", str(error))
            self._slurm_failed = True
            return background
        self._slurm_failed = False
        returns = config.get("ReturnToService", "")
        return replace(
            background,
            topology=topology,
            slurmd_timeout_s=slurm_view.slurmd_timeout_s(config),
            return_to_service=int(returns) if returns.isdecimal() else None,
        )

    def _slurm_user(self, background: Background) -> Background:
        if background.slurm_user:
            return background
        try:
            named = self.scheduler.config().get("SlurmUser", "")
        except OutsideError as error:
            log.warning("event=slurm_user_unavailable error=%r", str(error))
            return background
        return replace(background, slurm_user=named.partition("(")[0])


def _is_ip(address: str) -> bool:
    try:
        ip_address(address)
    except ValueError:
        return False
    return True


def _short_since(world: World, before: Background) -> datetime | None:
    """Since when the pool has been smaller than wanted, to the precision of these readings."""
    if world.view is None:
        return before.short_since
    number = wanted(world).number
    if number is None or len(kept(world, world.view)) >= number:
        return None
    return before.short_since or world.now


def write_lemons(path: Path, names: Iterable[str], now: datetime) -> None:
    """Write the list of lemons for ``job_submit.lua`` atomically: ``# until UNIXTIME``, then one name a line. After that time the list is
    void. A failure is only logged: lemons are a preference. Group-writable, because slurmctld opens the file for writing too, the only way
    in which opening a FIFO does not block. Its group is the folder's (set-gid); others have no access."""
    text = f"# until {int(now.timestamp() + LEMONS_HOLD_S)}\n" + "".join(f"{name}\n" for name in names)
    try:
        write_whole(path, text, 0o660)
    except OSError as error:
        log.warning("event=lemons_not_written path=%s error=%r", path, str(error))
