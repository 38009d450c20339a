"""Provider notices in the state machine of :mod:`anything`: they arrive, are postponed, withdrawn, and take effect."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from holdfast.model.ids import incident_of_reason
from holdfast.model.machine import Notice, NoticeKind
from holdfast_checks.result import Remedy, Severity
from support.simulated.provider import SimProvider
from support.simulated.site import Site

CODES = {
    NoticeKind.IMPAIRED: "system-status",
    NoticeKind.REBOOT: "instance-reboot",
    NoticeKind.STOP: "instance-retirement",
    NoticeKind.INTERRUPTION: "spot",
    NoticeKind.REBALANCE: "rebalance",
    NoticeKind.CAPACITY_END: "capacity-block-end",
}
_GO = frozenset({NoticeKind.STOP, NoticeKind.INTERRUPTION})
names = st.sampled_from([f"n{n + 1}" for n in range(6)])


class _Machinery(Protocol):
    site: Site
    provider: SimProvider
    guilty: set[str]


class Announcements(RuleBasedStateMachine):
    """Rules for the provider's own notices."""

    @rule(name=names, kind=st.sampled_from(sorted(CODES)), in_s=st.sampled_from([20, 120, 2000, 8000]))
    def provider_announces(self: _Machinery, name: str, kind: NoticeKind, in_s: int) -> None:
        at = self.site.clock.now() + timedelta(seconds=in_s)
        notice = Notice(self.site.machine(name).instance_id, name, kind, CODES[kind], "announced", at)
        self.provider.announced = [n for n in self.provider.announced if n.node != name] + [notice]
        self.guilty.add(name)
        self.site.run(20, step_s=10)

    @rule(name=names)
    def provider_takes_it_back(self: _Machinery, name: str) -> None:
        self.provider.announced = [n for n in self.provider.announced if n.node != name]

    @rule(name=names, in_s=st.sampled_from([20, 120]))
    def metadata_tells_of_an_interruption(self: _Machinery, name: str, in_s: int) -> None:
        at = self.site.clock.now() + timedelta(seconds=in_s)
        self.guilty.add(name)
        self.site.agents.find(
            self.site.machine(name),
            check="cloud.interruption",
            component="node",
            code="terminate",
            minor=None,
            severity=Severity.FATAL,
            remedy=Remedy.REPLACE,
            sticky=True,
            evidence={"notice": "interruption", "goes_at": at.isoformat()},
        )
        self.site.react()

    @rule(name=names)
    def metadata_takes_it_back(self: _Machinery, name: str) -> None:
        self.site.agents.clear(self.site.machine(name), "cloud.interruption", "node")
        self.site.react()

    @rule()
    def what_was_announced_happens(self: _Machinery) -> None:
        """Machines whose announced time has come lose their power, unless they serve no node any more."""
        for notice in list(self.provider.announced):
            due = notice.kind in _GO and notice.at is not None and notice.at <= self.site.clock.now()
            machine = self.site.machine(notice.node)
            if due and machine.instance_id == notice.instance_id:
                machine.powered = False
                self.provider.announced.remove(notice)


def planned_nodes(site: Site) -> set[str]:
    """Nodes whose machine was announced to be taken away: the brakes neither count nor withhold actions on them."""
    return {i.node for i in site.store.incidents() if i.goes_at is not None}


def by_announcement(site: Site, reason: str) -> bool:
    """Whether a drain with this reason was for such an incident."""
    number = incident_of_reason(reason)
    return number is not None and any(i.id == number and i.goes_at is not None for i in site.store.incidents())
