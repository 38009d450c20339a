"""Orders for checks of spares that are due now. Pure.

A light check (all periodic checks run again) every hour, a deep one (active checks) once a night, each spare at a different time within the
window. Only a few at once, so that a spare is ready at any time."""

from __future__ import annotations

import zlib
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from holdfast.decisions.common import node_agents, slurm_view
from holdfast.decisions.common.part import Part
from holdfast.decisions.spares import spare_checks
from holdfast.decisions.spares.choose import busy_nodes, why_not_ready
from holdfast.decisions.spares.pool import kept
from holdfast.model.actions import steps
from holdfast.model.actions.action import Proposal, Verb
from holdfast.model.book import NodeRecord, World
from holdfast.model.ids import UPKEEP
from holdfast.model.policies.lookback import CHECK_EXPIRES_S, STEP_HOUR_S
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import ClusterView

LIGHT_EXPIRES_S = 120.0
DEEP_DEADLINE_S = 1200.0
"""Level 2 of DCGM's diagnostics takes about 2 min on eight GPUs, each active test less than one."""
_DAY = timedelta(days=1)  # rule undeclared-window: of the calendar
_SPREAD = 0.75
"""Share of the night's window over which the start times of the spares are spread."""


def check_spares(world: World) -> Part:
    """Orders for spares whose check is due. None in observe mode or while paused: a check by order costs the node something."""
    view = slurm_view.fresh_view(world)
    if view is None or world.frozen is not None or world.policy.mode is Mode.OBSERVE or world.book.paused is not None:
        return Part()
    pool = kept(world, view)
    proposals: list[Proposal] = []
    for kind in (spare_checks.DEEP, spare_checks.LIGHT):
        tested = spare_checks.under_test(world, kind)
        room = max(1, int(len(pool) * world.policy.spares.test_share)) - len(tested)
        due = [n for n in pool if n not in tested and n in view.nodes and _due(world, kind, world.book.nodes.get(n))]
        for name in _ready(world, view, sorted(due, key=lambda name: (_last(world, kind, name), name)))[: max(0, room)]:
            proposals += _order(world, kind, name)
    return Part(tuple(proposals))


def _ready(world: World, view: ClusterView, names: list[str]) -> list[str]:
    if not names:
        return names  # nearly always: who is busy need not be known
    busy = busy_nodes(view)
    return [name for name in names if why_not_ready(world, view, view.nodes[name], busy) is None]


def _last(world: World, kind: str, name: str) -> float:
    record = world.book.nodes[name]
    at = record.deep_at if kind == spare_checks.DEEP else record.checked_at
    return at.timestamp() if at is not None else 0.0


def _due(world: World, kind: str, record: NodeRecord | None) -> bool:
    if record is None or not record.boot_id:
        return False
    if kind == spare_checks.LIGHT:
        every_s = world.policy.spares.check_every_s
        return every_s > 0 and (
            record.checked_at is None or world.now - record.checked_at >= timedelta(seconds=every_s)
        )
    window = night(world)
    if window is None or not world.policy.spares.deep_checks:
        return False
    begin, end = window
    turn = begin + (end - begin) * (_SPREAD * zlib.crc32(record.name.encode()) / 2**32)
    return world.now >= turn and (record.deep_at is None or record.deep_at < begin)


def night(world: World) -> tuple[datetime, datetime] | None:
    """The window for deep checks that now lies in; None: it does not, or there is none."""
    spares = world.policy.spares
    if spares.deep_from == spares.deep_until:
        return None
    local = world.now.astimezone(ZoneInfo(spares.zone))
    opens, closes = time.fromisoformat(spares.deep_from), time.fromisoformat(spares.deep_until)
    for day in (local.date(), local.date() - _DAY):
        begin = datetime.combine(day, opens, local.tzinfo)
        end = datetime.combine(day if closes > opens else day + _DAY, closes, local.tzinfo)
        if begin <= local < end:
            return begin.astimezone(world.now.tzinfo), end.astimezone(world.now.tzinfo)
    return None


def _order(world: World, kind: str, name: str) -> list[Proposal]:
    agent = node_agents.agent_of(world, name)
    record = world.book.nodes[name]
    if agent is None or (agent.instance_id, agent.boot_id) != (record.instance_id, record.boot_id):
        return []
    period_s = (
        min(max(world.policy.spares.check_every_s, 60), STEP_HOUR_S) if kind == spare_checks.LIGHT else STEP_HOUR_S
    )
    step = steps.check_spare(kind, name, int(world.now.timestamp()) // period_s)
    if not world.may_try(UPKEEP, step):
        return []
    if kind == spare_checks.LIGHT:
        args: dict[str, object] = {"checks": [], "expect_no_job": True}
        order = node_agents.order_to(agent, Verb.VALIDATE, LIGHT_EXPIRES_S, args)
    else:
        args = {"checks": list(world.policy.spares.deep_checks), "deadline_s": DEEP_DEADLINE_S}
        order = node_agents.order_to(agent, Verb.CHECK, CHECK_EXPIRES_S, args)
    return [Proposal(UPKEEP, step, order, f"{kind} check of spare {name}", order=95)]
