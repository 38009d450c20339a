"""Pages that need neither the store nor the other process: once per outage, also over restarts, again when they were not delivered."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest

from holdfast.api.deps import ApiDeps
from holdfast.api.reads.status import vitals
from holdfast.config.controller import read
from holdfast.decisions.parts import Vitals, parts_of
from holdfast.head import cannot_start as module
from holdfast.head.cannot_start import cannot_start, started, urls_of
from holdfast.head.pager import GONE_S, LASTS_S, REPEAT_S, Page, Pager, pages_of, pages_of_actor
from holdfast.head.paging import ActorPaging, ControllerPaging
from holdfast.head.process_state import StateReader, StateWriter
from holdfast.model.errors import ConfigError, Unavailable
from holdfast.model.parts import DiskRoom, ProcessSeen
from support.simulated import Site
from support.simulated.clock import SimClock

STORE = {"store": Page("Holdfast on head: store failed", "disk full")}
LOOP = {"loop": Page("Holdfast on head: loop failed", "the last 9 cycles failed")}


@dataclass
class Mail:
    """Implements :class:`holdfast.ports.Notifier`."""

    sent: list[str] = field(default_factory=list)
    fails: bool = False
    tried: int = 0

    def notify(self, subject: str, body: str, *, over_of: str = "") -> None:
        self.tried += 1
        if self.fails:
            raise Unavailable("SMTP 550")
        self.sent.append(f"{subject}: {body}")


@dataclass
class Bench:
    """A pager whose process is restarted at will."""

    path: Path
    clock: SimClock = field(default_factory=SimClock)
    mail: Mail = field(default_factory=Mail)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.pager = Pager(self.mail, self.path, self.clock.monotonic_s)

    def look(self, found: dict[str, Page], seconds: float, every_s: float = 5.0) -> None:
        until_s = self.clock.elapsed_s + seconds
        while self.clock.elapsed_s < until_s:
            self.pager.look(found)
            self.clock.advance(every_s)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "controller.pages")
    made.clock.advance(1000)
    return made


def test_once_per_outage(bench: Bench) -> None:
    bench.look(STORE, LASTS_S)
    assert bench.mail.sent == []
    bench.look(STORE, 3600)
    assert bench.mail.sent == ["Holdfast on head: store failed: disk full"]
    bench.look({}, 60)
    assert bench.mail.sent[1:] == ["over: Holdfast on head: store failed: holdfast status"]
    bench.look(STORE, LASTS_S + 10)
    assert len(bench.mail.sent) == 3


def test_what_is_over_soon_is_not_paged(bench: Bench) -> None:
    for _ in range(5):
        bench.look(STORE, LASTS_S - 5)
        bench.look({}, 5)
    assert bench.mail.tried == 0


def test_a_process_that_is_restarted_again_and_again_pages_once(bench: Bench) -> None:
    for _ in range(60):
        bench.restart()
        bench.look(STORE, 10)
    assert len(bench.mail.sent) == 1


def test_an_outage_is_not_over_because_the_process_was_restarted_in_it(bench: Bench) -> None:
    """A fresh controller has not tried to write yet; then it knows only that its cycles fail."""
    bench.look(STORE, LASTS_S + 10)
    bench.restart()
    for found in ({}, LOOP, LOOP):
        for _ in range(20):
            bench.pager.look(found, settled=False)
            bench.clock.advance(5)
    assert len(bench.mail.sent) == 1
    bench.look({}, 10)
    assert bench.mail.sent[1:] == ["over: Holdfast on head: store failed: holdfast status"]


def test_a_loop_that_fails_for_want_of_a_store_is_one_outage(bench: Bench) -> None:
    bench.look(LOOP | STORE, LASTS_S + 10)
    assert len(bench.mail.sent) == 1
    bench.look(LOOP, LASTS_S + 10)
    assert [text.partition(":")[0] for text in bench.mail.sent[1:]] == ["over", "Holdfast on head"]


def test_a_store_that_fails_as_its_disk_fills_is_one_outage(bench: Bench) -> None:
    disk = {"disk": Page("Holdfast on head: disk failed", "0 MiB free")}
    bench.look(disk, 20)
    bench.look(disk | STORE | LOOP, 3600)
    assert bench.mail.sent == ["Holdfast on head: disk failed: 0 MiB free"]
    bench.look({}, 60)
    assert bench.mail.sent[1:] == ["over: Holdfast on head: disk failed: holdfast status"]


def test_a_store_that_stops_long_after_its_disk_was_paged_is_paged(bench: Bench) -> None:
    disk = {"disk": Page("Holdfast on head: disk failed", "200 MiB free")}
    bench.look(disk, 3600)
    bench.look(disk | STORE, LASTS_S + 10)
    assert bench.mail.sent[1:] == ["Holdfast on head: store failed: disk full"]


def test_a_store_that_was_paged_is_not_over_because_the_disk_explains_it(bench: Bench) -> None:
    bench.look(STORE, LASTS_S + 10)
    bench.look(STORE | {"disk": Page("Holdfast on head: disk failed", "0 MiB free")}, LASTS_S + 10)
    assert [text.partition(":")[0] for text in bench.mail.sent] == ["Holdfast on head"] * 2


def test_what_was_not_delivered_is_tried_again_every_minute(bench: Bench) -> None:
    bench.mail.fails = True
    bench.look(STORE, LASTS_S + 5 * REPEAT_S)
    assert bench.mail.tried == 5
    bench.mail.fails = False
    bench.look(STORE, REPEAT_S * 3)
    assert len(bench.mail.sent) == 1


def test_a_notifier_that_raises_something_odd_ends_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.mail, "notify", lambda *_: 1 / 0)
    bench.look(STORE, LASTS_S * 3)


@pytest.mark.parametrize("memory", ["", "[]", '{"store": 7}', '{"store": {"since_s": 9e9, "sent": true}}', None])
def test_a_memory_that_says_nothing_is_none(bench: Bench, memory: str | None) -> None:
    """None: its folder takes no file either."""
    if memory is None:
        bench.path = bench.path / "no" / "folder"
        bench.path.parent.parent.write_text("a file")
    else:
        bench.path.write_text(memory)
    bench.restart()
    bench.look(STORE, LASTS_S + 10)
    assert [text for text in bench.mail.sent if not text.startswith("over")] == [
        "Holdfast on head: store failed: disk full"
    ]


def test_the_actor_pages_for_a_controller_that_is_gone(bench: Bench, tmp_path: Path) -> None:
    clock = bench.clock
    writer = StateWriter(tmp_path / "controller.state", clock.monotonic_s)
    reader = StateReader(tmp_path / "controller.state", clock.monotonic_s)
    actor = ActorPaging(reader, lambda: "no step is read from the store: disk full", bench.pager, "head")
    for alive in (True, False):
        for _ in range(60):
            if alive:
                writer.beat()
            clock.advance(5)
            actor.look()
        assert len(bench.mail.sent) == (0 if alive else 1)
    assert "the controller is gone" in bench.mail.sent[0]
    assert "disk full" in bench.mail.sent[0]
    assert pages_of_actor(ProcessSeen(GONE_S - 1), "x", "head") == {}


def test_a_page_comes_a_minute_after_the_last_sign_of_life(bench: Bench) -> None:
    """Not a minute after it was noticed, which an actor is after half of one."""
    at = datetime(2026, 3, 1, tzinfo=UTC)

    def of_the_controller(silent_s: float) -> dict[str, Page]:
        seen = Vitals(at + timedelta(seconds=silent_s), silent_s, turned_s=silent_s, committed_s=0.0)
        read = replace(seen, actor=ProcessSeen(silent_s), slurm_read_at=at, slurm_fresh=silent_s < 5)
        return pages_of(parts_of(read), "head")

    for pages in (of_the_controller, lambda silent_s: pages_of_actor(ProcessSeen(silent_s), "", "head")):
        bench.path.unlink(missing_ok=True)
        bench.restart()
        bench.mail.sent.clear()
        for silent_s in range(0, 60, 5):
            bench.pager.look(pages(silent_s))
            assert bench.mail.sent == []
            bench.clock.advance(5)
        bench.pager.look(pages(60))
        expected = ["actor", "slurm", "store"] if pages is of_the_controller else ["the controller is gone"]
        subjects = [text.partition(": ")[2] for text in sorted(bench.mail.sent)]
        assert len(subjects) == len(expected)
        assert all(text.startswith(words) for text, words in zip(subjects, expected, strict=True))


def test_the_controller_pages_without_store_and_actor(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its store takes no write any more, its actor is dead; nothing here reads the store."""
    site = Site(2)
    loop, clock = site.loop, site.clock
    bench.pager = Pager(bench.mail, bench.path, clock.monotonic_s)

    def refuses(*_: object) -> None:
        raise Unavailable("the store does not answer: database or disk is full")

    deps = ApiDeps(
        store=None,  # type: ignore[arg-type]
        agents=site.agents.registry,
        clock=clock,
        wake=lambda: None,
        world=lambda: loop.world,
        orders=loop.hub,
        loop_turned_at=clock.monotonic_s,
        leader=lambda: loop.leads,
        committed_at=lambda: loop.committed_s,
        trouble=lambda: loop.trouble,
        disk=lambda: DiskRoom(0, 2**40, 2**30),
        actor=StateReader(tmp_path / "actor.state", clock.monotonic_s).look,
    )
    deps.actor()
    paging = ControllerPaging(
        lambda: vitals(deps), StateWriter(tmp_path / "controller.state", clock.monotonic_s), bench.pager, "head"
    )
    monkeypatch.setattr(site.store, "take_lease", refuses)
    for _ in range(150):
        clock.advance(1.0)
        try:
            loop._lead()
        except Unavailable as error:
            loop.cycles.ended(error)
        asyncio.run(paging.look())
    subjects = sorted(text.partition("\n")[0] for text in bench.mail.sent)
    assert [text.partition(": ")[2].split(" ")[0] for text in subjects] == ["actor", "disk"], "one page for one cause"
    assert "nothing is decided" in subjects[1]
    assert "last" in json.loads((tmp_path / "controller.state").read_text())["problem"]


def test_an_address_that_hangs_delays_no_heartbeat() -> None:
    """The actor would page that the controller is gone."""
    hangs, beats = Event(), list[str]()

    class Hangs:
        def look(self, *_: object, **__: object) -> None:
            hangs.wait()

    class Beats:
        def beat(self, problem: str) -> None:
            beats.append(problem)

    seen = Vitals(datetime(2026, 3, 1, tzinfo=UTC), 0.0, turned_s=0.0)
    paging = ControllerPaging(lambda: seen, Beats(), Hangs(), "head", wait_s=0.01)  # type: ignore[arg-type]

    async def looks() -> None:
        for _ in range(3):
            await paging.look()
        hangs.set()

    asyncio.run(looks())
    assert len(beats) == 3


class TestCannotStart:
    @pytest.fixture
    def mail(self, monkeypatch: pytest.MonkeyPatch) -> Mail:
        mail = Mail()
        monkeypatch.setattr(module, "notifier_for", lambda _section, _folder, _clock: mail)
        monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
        return mail

    @pytest.fixture
    def config(self, tmp_path: Path) -> Path:
        return tmp_path / "controller.toml"

    def test_a_wrong_configuration_is_paged_at_once(self, config: Path, mail: Mail) -> None:
        assert cannot_start("controller", config, None, ConfigError("store.url is none")) == 2
        assert len(mail.sent) == 1
        assert "store.url is none" in mail.sent[0]

    def test_a_database_that_is_away_is_paged_once_it_lasts(
        self, config: Path, mail: Mail, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = SimClock()
        monkeypatch.setattr(module, "SystemClock", lambda: clock)
        settings = read({"run": {"dir": "run"}}, config)
        for _ in range(200):
            assert cannot_start("actor", config, settings, Unavailable("connection refused")) == 1
            clock.advance(1.0)
        assert len(mail.sent) == 1
        assert "connection refused" in mail.sent[0]
        started("actor", settings)
        assert mail.sent[1].startswith("over: ")
        started("actor", settings)
        assert len(mail.sent) == 2

    def test_one_that_was_started_by_hand_pages_nobody(
        self, config: Path, mail: Mail, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("NOTIFY_SOCKET")
        assert cannot_start("actor", config, None, ConfigError("x")) == 2
        assert mail.tried == 0

    @pytest.mark.parametrize(
        ("text", "urls"),
        [
            ('[notify]\nurls = ["a://b"]\n[store]\nurk = 3', ("a://b",)),
            ("[store", ()),
            ("", ()),
            ("[notify]\nurls = 3", ()),
            ("notify = 3", ()),
        ],
    )
    def test_addresses_are_read_from_a_file_that_is_wrong_elsewhere(
        self, config: Path, text: str, urls: tuple[str, ...]
    ) -> None:
        config.write_text(text)
        assert urls_of(config) == urls
        assert urls_of(config.with_name("none")) == ()
