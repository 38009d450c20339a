"""The picture of the parts: each state of each part, what is ready, and what a process writes about itself."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.decisions.parts import Certificate, Vitals, parts_of, worst
from holdfast.head.disk import disk_room
from holdfast.head.notify import WatchedNotifier
from holdfast.head.pager import pages_of
from holdfast.head.process_state import WRITE_EVERY_S, StateReader, StateWriter
from holdfast.model.errors import Unavailable
from holdfast.model.machine import CAN_NOTHING, ProviderView
from holdfast.model.parts import (
    Condition,
    ConnectionsSeen,
    DiskRoom,
    NotifierState,
    PartName,
    ProcessSeen,
    ProcessState,
    not_ready,
)
from holdfast.model.policies.policy import Mode
from support.simulated.clock import EPOCH, SimClock

GOOD, WARNING, FAILED, UNKNOWN = Condition.GOOD, Condition.WARNING, Condition.FAILED, Condition.UNKNOWN
ACTOR = ProcessState(999.0, "0.1", notifier=NotifierState(2))
WELL = Vitals(
    now=EPOCH,
    now_s=1000.0,
    mode=Mode.ACT,
    turned_s=999.5,
    committed_s=999.0,
    disk=DiskRoom(50 * 2**30, 100 * 2**30, 2**20),
    actor=ProcessSeen(1.0, ACTOR),
    slurm_read_at=EPOCH,
    slurm_fresh=True,
    provider=ProviderView("ec2", CAN_NOTHING, EPOCH),
    agents={"heard": 4},
    certificate=Certificate(EPOCH + timedelta(days=90)),
    connections=ConnectionsSeen(9, 8, 100),
)


def seen(**changes: object) -> Vitals:
    return replace(WELL, **changes)  # type: ignore[arg-type]


def state(problem: str = "", **notifier: object) -> ProcessSeen:
    return ProcessSeen(1.0, replace(ACTOR, problem=problem, notifier=NotifierState(**notifier)))  # type: ignore[arg-type]


def held_back(silent_s: float, **changes: object) -> Vitals:
    """An actor that reports that its own limit holds steps back, as it does while the controller sees a step untaken."""
    text = "the actor's own limit holds back further steps: 32 nodes"
    return seen(actor=ProcessSeen(silent_s, replace(ACTOR, problem=text, held_back=text)), **changes)


def test_a_limit_of_the_actors_own_pages_and_names_no_restart() -> None:
    (page,) = pages_of(parts_of(held_back(1.0, untaken="no actor takes steps (Drain n1)")), "head").values()
    assert "own limit" in page.body
    assert "restart" not in page.body.partition("Next step")[2]


def test_all_is_well() -> None:
    parts = parts_of(WELL)
    assert [p.name for p in parts] == list(PartName)
    assert {p.condition for p in parts} == {GOOD}
    assert not_ready(parts) is None


TABLE = [
    (PartName.CONNECTIONS, GOOD, True, seen(), "9 open of 100 at most, 8 of them"),
    (PartName.CONNECTIONS, WARNING, True, seen(connections=ConnectionsSeen(100, 8, 100, 7, "10.0.0.9")), "10.0.0.9"),
    (PartName.CONNECTIONS, UNKNOWN, True, seen(connections=None), "not counted"),
    (PartName.STORE, FAILED, False, seen(ping_problem="refused"), "refused"),
    (PartName.STORE, FAILED, False, seen(committed_s=980.0), "no write for 20 s"),
    (PartName.STORE, GOOD, True, seen(committed_s=980.0, leads=False), "answers"),
    (PartName.STORE, FAILED, False, seen(committed_s=980.0, leads=False, trouble="disk full"), "disk full"),
    (PartName.STORE, GOOD, True, seen(committed_s=None), "written nothing"),
    (PartName.STORE, GOOD, True, seen(committed_s=900.0, turned_s=900.0), "answers"),
    (PartName.DISK, FAILED, True, seen(disk=DiskRoom(2**20, 2**40, 2**20)), "1 MiB free"),
    (PartName.DISK, WARNING, True, seen(disk=DiskRoom(2**29, 2**40, 2**20)), "512 MiB free"),
    (PartName.DISK, WARNING, True, seen(disk=DiskRoom(2**31, 2**40, 2**32, "/a/b.db", "/a")), "b.db has 4.0 GiB"),
    (
        PartName.DISK,
        FAILED,
        True,
        seen(disk=DiskRoom(2**20, 2**40, 0, "/a/b.db", "/a")),
        "on /a (99 % used); the store /a/b.db",
    ),
    (PartName.DISK, UNKNOWN, True, seen(disk=None), "not on this machine"),
    (PartName.LOOP, UNKNOWN, False, seen(turned_s=None), "not turned yet"),
    (PartName.LOOP, FAILED, False, seen(turned_s=960.0), "not turned for 40 s"),
    (PartName.LOOP, FAILED, False, seen(trouble="the last 9 cycles failed"), "9 cycles"),
    (PartName.LEASE, GOOD, False, seen(leads=False, led_by="head2/ab"), "is a standby: head2/ab leads"),
    (PartName.LEASE, GOOD, False, seen(leads=False), "which one does, if any, is not known"),
    (PartName.LEASE, WARNING, False, seen(leads=False, trouble="disk full"), "could not renew"),
    (PartName.ACTOR, FAILED, False, seen(untaken="no actor takes steps (Drain n1)"), "Drain n1"),
    (PartName.ACTOR, FAILED, True, held_back(1.0), "own limit"),
    (PartName.ACTOR, FAILED, True, held_back(1.0, untaken="no actor takes steps (Drain n1)"), "own limit"),
    (PartName.ACTOR, FAILED, False, held_back(40.0, untaken="no actor takes steps (Drain n1)"), "Drain n1"),
    (PartName.ACTOR, FAILED, False, seen(actor=ProcessSeen(40.0, ACTOR)), "no sign of life for 40 s"),
    (PartName.ACTOR, FAILED, False, seen(actor=ProcessSeen(40.0)), "no sign of life for 40 s"),
    (PartName.ACTOR, WARNING, True, seen(actor=ProcessSeen(40.0), mode=Mode.OBSERVE), "no sign of life"),
    (PartName.ACTOR, UNKNOWN, True, seen(actor=ProcessSeen(3.0)), "not reported yet"),
    (PartName.ACTOR, UNKNOWN, True, seen(actor=None), "not looked for"),
    (PartName.ACTOR, WARNING, True, seen(actor=state("no step is read from the store: x")), "no step is read"),
    (PartName.NOTIFIER, FAILED, True, seen(actor=state(addresses=1, error="SMTP 550")), "SMTP 550"),
    (PartName.NOTIFIER, WARNING, True, seen(actor=state(addresses=0)), "log alone"),
    (PartName.NOTIFIER, UNKNOWN, True, seen(actor=ProcessSeen(40.0)), "not reported"),
    (PartName.SLURM, UNKNOWN, True, seen(slurm_read_at=None), "not read yet"),
    (PartName.SLURM, FAILED, True, seen(slurm_read_at=None, slurm_error="munge"), "munge"),
    (PartName.SLURM, FAILED, True, seen(slurm_fresh=False, slurm_read_at=EPOCH - timedelta(seconds=90)), "for 90 s"),
    (PartName.PROVIDER, UNKNOWN, True, seen(provider=None), "not asked"),
    (PartName.PROVIDER, WARNING, True, seen(provider=ProviderView("ec2", CAN_NOTHING, EPOCH, error="403")), "403"),
    (
        PartName.PROVIDER,
        WARNING,
        True,
        seen(provider=ProviderView("ec2", CAN_NOTHING, EPOCH - timedelta(minutes=3))),
        "last asked at",
    ),
    (PartName.AGENTS, WARNING, True, seen(agents={"heard": 3, "silent": 1}), "3 report, 1 silent"),
    (PartName.AGENTS, UNKNOWN, True, seen(agents={}), "none"),
    (PartName.AGENTS, GOOD, True, seen(agents={"heard": 3}, older_checks=2), "2 go by an older policy of checks"),
    (
        PartName.AGENTS,
        WARNING,
        True,
        seen(agents={"heard": 9}, refused_checks=tuple("abcdefg")),
        "7 refused the policy of checks: a, b, c, d, e, …",
    ),
    (PartName.CERTIFICATE, GOOD, True, seen(certificate=None), "no TLS"),
    (PartName.CERTIFICATE, UNKNOWN, True, seen(certificate=Certificate(None)), "cannot be read"),
    (PartName.CERTIFICATE, WARNING, True, seen(certificate=Certificate(EPOCH + timedelta(days=9))), "2026-03-10"),
    (PartName.CERTIFICATE, FAILED, True, seen(certificate=Certificate(EPOCH - timedelta(days=1))), "ended"),
]


@pytest.mark.parametrize(("name", "condition", "ready", "vitals", "says"), TABLE)
def test_a_part(name: PartName, condition: Condition, ready: bool, vitals: Vitals, says: str) -> None:
    parts = parts_of(vitals)
    (part,) = [p for p in parts if p.name is name]
    assert (part.condition, part.ready) == (condition, ready)
    assert says in part.text
    assert "\n" not in part.text
    assert part.next_step or condition is not FAILED, "what has failed has a next step"
    if not ready:
        assert not_ready(parts) is not None
    assert (worst(parts) is FAILED) == any(p.condition is FAILED for p in parts)


class TestProcessState:
    def test_one_process_sees_the_other(self, tmp_path: Path) -> None:
        clock, path = SimClock(), tmp_path / "actor.state"
        clock.advance(100)
        told = NotifierState(1, "SMTP 550", datetime(2026, 3, 1, tzinfo=UTC))
        writer, reader = StateWriter(path, clock.monotonic_s, lambda: told), StateReader(path, clock.monotonic_s)
        assert reader.look() == ProcessSeen(0.0)
        clock.advance(5)
        assert reader.look() == ProcessSeen(5.0), "as long as there is nothing, the wait counts from the first poll"
        writer.beat("the store is away", "own limit")
        clock.advance(40)
        look = reader.look()
        assert look.silent_s == 40.0
        assert look.state is not None
        assert (look.state.problem, look.state.notifier) == ("the store is away", told)
        assert look.state.held_back == "own limit"

    def test_it_is_written_every_two_seconds(self, tmp_path: Path) -> None:
        clock, path = SimClock(), tmp_path / "actor.state"
        writer = StateWriter(path, clock.monotonic_s)
        writer.beat()
        path.unlink()
        clock.advance(WRITE_EVERY_S / 2)
        writer.beat()
        assert not path.exists()
        clock.advance(WRITE_EVERY_S)
        writer.beat()
        assert path.exists()

    def test_a_folder_that_takes_nothing_ends_no_process(self, tmp_path: Path) -> None:
        StateWriter(tmp_path / "no" / "actor.state", SimClock().monotonic_s).beat()

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"at_s": "x"}', "\x00", '{"at_s": 1, "notifier": 3}', "7"])
    def test_nonsense_is_nothing(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "actor.state"
        path.write_text(text)
        assert StateReader(path, SimClock().monotonic_s).look().state is None

    def test_one_of_another_boot_is_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "actor.state"
        path.write_text(json.dumps({"at_s": 1e6}))
        assert StateReader(path, SimClock().monotonic_s).look().state is None


def test_a_notifier_remembers_since_when_it_fails() -> None:
    clock, fails = SimClock(), [True]

    class Mail:
        def notify(self, subject: str, body: str, *, over_of: str = "") -> None:
            if fails:
                raise Unavailable("SMTP 550")

    notifier = WatchedNotifier(Mail(), clock, 1)
    assert notifier.state() == NotifierState(1)
    for _ in range(2):
        with pytest.raises(Unavailable):
            notifier.notify("n1 needs an operator", "why")
        clock.advance(60)
    assert notifier.state() == NotifierState(1, "SMTP 550", EPOCH)
    fails.clear()
    notifier.notify("n1 needs an operator", "why")
    assert notifier.state() == NotifierState(1)


def test_the_disk_is_read(tmp_path: Path) -> None:
    store = tmp_path / "holdfast.db"
    assert disk_room(store) is None
    assert disk_room(None) is None
    store.write_bytes(b"x" * 1000)
    store.with_name("holdfast.db-wal").write_bytes(b"x" * 500)
    room = disk_room(store)
    assert room is not None
    assert room.store_bytes == 1500
    assert 0 <= room.free_bytes <= room.total_bytes
    assert room.store == str(store)
    assert Path(room.mount).is_mount()
    assert store.resolve().is_relative_to(room.mount)


def test_a_page_of_a_full_disk_names_the_disk() -> None:
    full = seen(disk=DiskRoom(2**20, 2**40, 2**20, "/var/lib/holdfast/holdfast.db", "/var"), committed_s=900.0)
    pages = pages_of(parts_of(full), "head1")
    for name in ("disk", "store"):
        assert "df -h /var" in pages[name].body
    assert "1 MiB free of 1024.0 GiB on /var (99 % used)" in pages["disk"].body


DOCS = Path(__file__).parents[2] / "docs"


def test_each_alert_asks_for_a_metric_that_exists_and_names_a_runbook_that_does() -> None:
    text = (DOCS / "examples" / "prometheus-alerts.yml").read_text()
    known = set(re.findall(r"`(holdfast_\w+)`", (DOCS / "reference" / "metrics.md").read_text()))
    asked = set(re.findall(r"\b(holdfast_[a-z_]+)\b", text))
    assert asked <= known, asked - known
    assert set(re.findall(r'part="(\w+)"', text)) <= {name.value for name in PartName}
    runbooks = re.findall(r"runbook: (\S+?)}", text)
    assert len(runbooks) == text.count("- alert:")
    assert [book for book in runbooks if not (DOCS.parent / book).is_file()] == []


def test_a_next_step_names_a_page_that_exists() -> None:
    pages = {page for row in TABLE for p in parts_of(row[3]) for page in re.findall(r"docs/\S+\.md", p.next_step)}
    assert pages
    assert [page for page in pages if not (DOCS.parent / page).is_file()] == []


def test_of_a_standby_nothing_is_said_that_only_the_leader_reads() -> None:
    parts = parts_of(seen(leads=False, slurm_fresh=False, agents={}, provider=None))
    assert {p.name for p in parts if p.condition is UNKNOWN} == {PartName.SLURM, PartName.PROVIDER, PartName.AGENTS}
    assert worst(parts) is not FAILED
