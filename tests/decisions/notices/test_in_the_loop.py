"""Messages to people by the real loop and actor: a storm, an address that fails, what is healed, restarts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from holdfast.actor.notice_desk import Place
from holdfast.api.reads.notices import newest_notices
from holdfast.decisions.notices.routes import RouteRule
from holdfast.model.errors import Unavailable
from holdfast.model.event import EventKind
from holdfast.model.machine import CAN_NOTHING
from holdfast.model.notice import NOTE, Matter, Message, NoticeLevel, Topic
from holdfast.model.policies.lookback import SHIPPED
from holdfast.notice_note import read_state
from holdfast.store import open_store
from support.simulated import Site
from support.simulated.clock import EPOCH
from support.simulated.site import NO_BUDGET

NO_BRAKE = replace(
    NO_BUDGET,
    brake=replace(
        NO_BUDGET.brake,
        drains_10min=1000,
        drains_60min=1000,
        drains_10min_share=1.0,
        drains_60min_share=1.0,
        stopped_jobs_60min=1000,
    ),
)


class Flaky:
    """An address that refuses while it is down. Implements :class:`holdfast.ports.Address`."""

    name = "urls[1] mailto://…"

    def __init__(self) -> None:
        self.down = True
        self.tried = 0
        self.got: list[Message] = []

    def send(self, message: Message) -> None:
        self.tried += 1
        if self.down:
            raise Unavailable("SMTP 550")
        self.got.append(message)

    def keep(self, matters: Sequence[Matter]) -> None:
        pass


def with_place(site: Site, place: Place) -> Site:
    site.places.append(place)
    site.start_actor()
    return site


def needs_operators(nodes: int) -> Site:
    """A site whose provider can repair nothing."""
    return Site(nodes, policy=NO_BRAKE, can=CAN_NOTHING)


def told(site: Site, topic: Topic) -> list[Message]:
    return [m for m in site.notices.messages if m.topic is topic]


def test_a_storm_of_200_nodes_sends_few_messages_that_stand_for_all_of_them() -> None:
    site = needs_operators(200)
    for number in range(1, 201):
        site.fault(f"n{number}")
    site.run(240, step_s=20.0)
    messages = [m for m in told(site, Topic.AWAITING_HUMAN) if not m.over]
    assert len(site.store.incidents(only_open=True, limit=300)) == 200
    assert sum(m.stands_for for m in messages) == 200
    assert len(site.notices.sent) <= 4, site.notices.sent
    assert len(site.notices.kept) == 200, "all are open"


def test_an_address_that_fails_is_alarmed_and_gets_each_message_once_it_works() -> None:
    flaky = Flaky()
    site = with_place(needs_operators(4), Place(flaky))
    site.fault("n1")
    site.run(120, step_s=5.0)
    assert len(told(site, Topic.AWAITING_HUMAN)) == 1, "the other address has it, once"
    assert 2 <= flaky.tried <= 4
    desk = site.actor.desk
    assert desk is not None
    assert desk.state().error == "urls[1] mailto://…: SMTP 550"
    (failed,) = site.store.events(kinds=(EventKind.NOTICE_FAILED,))
    assert (failed.detail["address"], failed.detail["error"]) == (flaky.name, "SMTP 550")
    site.start_actor()
    flaky.down = False
    site.run(900, step_s=15.0)
    assert [m.topic for m in flaky.got] == [Topic.AWAITING_HUMAN], "a restart loses and repeats none"
    assert site.actor.desk is not None
    assert site.actor.desk.state().error == ""
    delivered = site.store.events(kinds=(EventKind.NOTICE_DELIVERED,))
    assert sorted(str(e.detail["address"]) for e in delivered) == ["test", flaky.name]


def test_what_was_repaired_is_told_to_those_who_want_it_and_the_end_to_those_who_were_called() -> None:
    day = Flaky()
    day.down = False
    site = with_place(Site(4), Place(day, RouteRule(frozenset({NoticeLevel.HEALED}))))
    site.run(10)
    site.fault("n1")
    site.run(2400, step_s=5.0)
    assert [(m.topic, m.subject.startswith("n1 is back in service")) for m in day.got] == [(Topic.HEALED, True)]
    assert site.notices.sent == [], "no one was called"


def test_two_nodes_that_were_repaired_together_are_both_told() -> None:
    day = Flaky()
    day.down = False
    site = with_place(Site(6, policy=NO_BRAKE), Place(day, RouteRule(frozenset({NoticeLevel.HEALED}))))
    site.run(10)
    site.fault("n1")
    site.run(30)
    site.fault("n2")
    site.run(900, step_s=10.0)
    assert sorted(name for m in day.got for name in m.nodes) == ["n1", "n2"]


def test_the_end_of_what_people_were_called_for_is_told() -> None:
    site = needs_operators(4)
    site.fault("n1")
    site.run(60, step_s=5.0)
    incident = site.incident("n1")
    site.operate("close", incident.id)
    site.run(60, step_s=5.0)
    called, over = told(site, Topic.AWAITING_HUMAN)
    assert (called.over, over.over) == (False, True)
    assert over.subject == f"over: {called.subject}"
    assert site.notices.kept == []


def test_an_address_that_hangs_keeps_no_new_notice_waiting_in_the_store() -> None:
    site = needs_operators(3)

    class Hangs(Flaky):
        def send(self, message: Message) -> None:
            site.clock.advance(20.0)
            super().send(message)

    slow, other = Hangs(), Hangs()
    other.name = "urls[2] mailto://…"
    with_place(with_place(site, Place(slow)), Place(other))
    site.fault("n1")
    site.run(15, step_s=5.0)
    assert (slow.tried, other.tried) == (1, 1), "each in its own turn"
    assert site.store.due_intents() == ()


def test_a_crash_at_any_boundary_loses_no_message() -> None:
    for moment in ("planned", "started", "acted", "finished"):
        site = needs_operators(2)
        site.kill_at = ("Notify", moment)
        site.fault("n1")
        site.run(90, step_s=5.0)
        assert (moment, site.killed) == (moment, 1)
        assert len(told(site, Topic.AWAITING_HUMAN)) == 1, moment


def test_the_real_store_keeps_what_was_sent_and_the_api_shows_it(tmp_path: Path) -> None:
    flaky = Flaky()
    with closing(open_store(f"sqlite:///{tmp_path}/holdfast.db", SHIPPED)) as store:
        site = with_place(Site(2, policy=NO_BRAKE, can=CAN_NOTHING, store=store), Place(flaky))
        site.fault("n1")
        site.run(60, step_s=5.0)
        site.start_actor()
        flaky.down = False
        site.run(60, step_s=5.0)
        (notice,) = newest_notices(store, EPOCH, limit=10)
        totals = read_state(store.note(NOTE)).totals
    assert (notice.topic, notice.incident_id) == ("awaiting_human", site.notices.messages[0].matters[0].incident_id)
    answers = {d.address: (d.outcome, d.error) for d in notice.deliveries}
    assert answers == {"test": ("delivered", ""), flaky.name: ("delivered", "")}
    assert totals["needs_somebody/made"] == 1
    assert totals["needs_somebody/delivered"] == 2
    assert totals["needs_somebody/failed"] >= 1
