"""State of the agents as they report it; in memory only, rebuilt within one heartbeat after a start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from holdfast.model.agents.report import AgentView
from holdfast_checks.acting import Lists

GAP_HEARTBEATS = 2.5
"""A longer silence than this many intervals ends the span that ``first_heard`` counts from (DeathPolicy's default)."""
MACHINES_PER_NODE = 4
"""One serves and one is being validated; any others are leftovers, and the one that is silent for longest is dropped."""
KEPT_MOST_S = 10.0
"""An agent that reports a far shorter interval than it keeps is judged by the interval that it keeps, up to this maximum (the longest
interval that agents are given)."""
KEPT_AT_LEAST = 1.5
"""An agent does not keep its reported interval when two heartbeats are this many intervals apart."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Sender fields of a heartbeat or a report. None: not reported. Only a heartbeat has an interval."""

    node: str
    instance_id: str
    boot_id: str
    agent_version: str = ""
    interval_s: float | None = None
    wall_time: datetime | None = None
    all_ok: bool | None = None
    failing: tuple[str, ...] | None = None
    fabric_silent_s: float | None = None
    """None in a heartbeat: nothing is known about the fabric (any more)."""
    authorities: tuple[str, ...] | None = None
    """Fingerprints of the certificate authorities that it trusts."""
    acting: Lists | None = None
    """Which checks act there."""
    checks_version: str | None = None
    """Version of the policy of checks that it goes by; None: not reported."""
    checks_off: tuple[str, ...] | None = None
    """Checks that are switched off there by the site's policy; None: not reported."""
    checks_refused: str = ""
    """Why it refused the newest policy."""
    gres: Mapping[str, tuple[int, ...]] | None = None
    """None in a heartbeat: nothing is proved (any more)."""
    gres_problem: str = ""
    set_aside: int | None = None
    """Files and items of its memory that it cannot read and has set aside."""
    set_aside_s: float | None = None
    """For how long the oldest of them."""
    words_wait_s: float | None = None
    """How long the oldest progress report of a job has waited on the node; None: not reported."""


class AgentRegistry:
    """Agents by node and machine. For one event loop: no locks, every call is short."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[AgentView, ...]] = {}
        self._heard_s: dict[tuple[str, str], float] = {}
        self._beats_s: dict[tuple[str, str], tuple[float, ...]] = {}
        """The newest heartbeats of each machine, the last one last."""

    def heard(self, hello: Hello, received_at: datetime, monotonic_s: float) -> bool:
        """Record a message from an agent. True: the control loop should run (agent new, back, another boot, other failing checks)."""
        agents = self._nodes.get(hello.node, ())
        before = next((a for a in agents if a.instance_id == hello.instance_id), None)
        key = (hello.node, hello.instance_id)
        gap_s = monotonic_s - self._heard_s.get(key, monotonic_s)
        self._heard_s[key] = monotonic_s
        after, news = _updated(before, self._as_kept(key, hello, monotonic_s), received_at, gap_s)
        others = [a for a in agents if a.instance_id != hello.instance_id]
        self._nodes[hello.node] = self._bounded([*others, after])
        return news

    def views(self) -> Mapping[str, tuple[AgentView, ...]]:
        """Node → its agents, the most recent reporter last; an immutable copy."""
        return dict(self._nodes)

    def replace_all(self, changed: Callable[[AgentView], AgentView]) -> None:
        """Change the state of every agent. A message that arrives meanwhile may be lost: the next one follows within a heartbeat."""
        self._nodes = {node: tuple(map(changed, agents)) for node, agents in dict(self._nodes).items()}

    def forget(self, node: str, instance_id: str) -> None:
        """Drop a machine that is gone for good (terminated). One that is not known is a success."""
        self._drop(node, instance_id)
        left = tuple(a for a in self._nodes.get(node, ()) if a.instance_id != instance_id)
        if left:
            self._nodes[node] = left
        else:
            self._nodes.pop(node, None)

    def _bounded(self, agents: list[AgentView]) -> tuple[AgentView, ...]:
        while len(agents) > MACHINES_PER_NODE:
            gone = agents.pop(0)
            self._drop(gone.node, gone.instance_id)
        return tuple(agents)

    def _drop(self, node: str, instance_id: str) -> None:
        self._heard_s.pop((node, instance_id), None)
        self._beats_s.pop((node, instance_id), None)

    def _as_kept(self, key: tuple[str, str], hello: Hello, monotonic_s: float) -> Hello:
        """The message with the interval that the agent keeps, where that is far longer than the reported one. One late or lost heartbeat
        changes nothing."""
        if hello.interval_s is None:
            return hello
        beats_s = (*self._beats_s.get(key, ())[-2:], monotonic_s)
        self._beats_s[key] = beats_s
        gaps_s = [later - earlier for earlier, later in pairwise(beats_s)]
        kept_s = min(*gaps_s, KEPT_MOST_S) if len(gaps_s) > 1 else 0.0
        return replace(hello, interval_s=kept_s) if kept_s > KEPT_AT_LEAST * hello.interval_s else hello


def _updated(before: AgentView | None, hello: Hello, received_at: datetime, gap_s: float) -> tuple[AgentView, bool]:
    if before is None or before.boot_id != hello.boot_id:
        return _fresh(hello, received_at), True
    interval_s = before.heartbeat_interval_s if hello.interval_s is None else hello.interval_s
    back = gap_s > GAP_HEARTBEATS * max(interval_s, before.heartbeat_interval_s)
    after = replace(
        before,
        last_heard=received_at,
        first_heard=received_at if back else before.first_heard,
        heartbeat_interval_s=interval_s,
        agent_version=hello.agent_version or before.agent_version,
        clock_offset_s=_offset_s(hello, received_at, before.clock_offset_s),
        failing=before.failing if hello.failing is None else hello.failing,
        all_ok=before.all_ok if hello.all_ok is None else hello.all_ok,
        authorities=before.authorities if hello.authorities is None else hello.authorities,
        acting=before.acting if hello.acting is None else hello.acting,
        checks_version=before.checks_version if hello.interval_s is None else hello.checks_version,
        checks_off=before.checks_off if hello.interval_s is None else hello.checks_off,
        checks_refused=before.checks_refused if hello.interval_s is None else hello.checks_refused,
        set_aside=before.set_aside if hello.set_aside is None else hello.set_aside,
        set_aside_since=before.set_aside_since if hello.set_aside is None else _ago(hello.set_aside_s, received_at),
        gres=before.gres if hello.interval_s is None else hello.gres,
        gres_problem=before.gres_problem if hello.interval_s is None else hello.gres_problem,
        fabric_moved_at=before.fabric_moved_at
        if hello.interval_s is None
        else _ago(hello.fabric_silent_s, received_at),
        words_until=before.words_until if hello.interval_s is None else _ago(hello.words_wait_s, received_at),
    )
    return after, back or after.all_ok != before.all_ok or after.failing != before.failing


def _fresh(hello: Hello, received_at: datetime) -> AgentView:
    return AgentView(
        node=hello.node,
        instance_id=hello.instance_id,
        boot_id=hello.boot_id,
        last_heard=received_at,
        first_heard=received_at,
        heartbeat_interval_s=10.0 if hello.interval_s is None else hello.interval_s,
        agent_version=hello.agent_version,
        clock_offset_s=_offset_s(hello, received_at, 0.0),
        failing=hello.failing or (),
        all_ok=bool(hello.all_ok),
        authorities=hello.authorities,
        acting=hello.acting,
        checks_version=hello.checks_version,
        checks_off=hello.checks_off,
        checks_refused=hello.checks_refused,
        set_aside=hello.set_aside or 0,
        set_aside_since=_ago(hello.set_aside_s, received_at),
        gres=hello.gres,
        gres_problem=hello.gres_problem,
        fabric_moved_at=_ago(hello.fabric_silent_s, received_at),
        words_until=_ago(hello.words_wait_s, received_at),
    )


def _ago(seconds: float | None, received_at: datetime) -> datetime | None:
    return None if seconds is None else received_at - timedelta(seconds=seconds)


def _offset_s(hello: Hello, received_at: datetime, otherwise_s: float) -> float:
    return otherwise_s if hello.wall_time is None else (hello.wall_time - received_at).total_seconds()
