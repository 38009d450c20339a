"""A database of an earlier release, upgraded and run on: every row is read, what was in flight is finished, and nothing happens twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.api.client import ApiClient
from holdfast.cli.app import run
from holdfast.model.actions.action import Intent, Launch, Terminate
from holdfast.store import SqlStore, open_store
from recording import world
from recording.releases import Recorded, moments
from recording.stores import copy_to_postgresql
from support.postgres import PostgresServer
from support.served_site import ServedSite
from support.simulated.site import Site

ALL = moments()
WITH_MUCH = ("for_a_human", "planned", "hung", "dead-", "braked", "groups_recover", "store_lost")
"""Scenes with a lot to show."""
RUN_S = 700
"""Longer than the time after which a planned step is decided again (``actor.STALE_S``)."""


@dataclass
class Upgraded:
    """An old database under this release."""

    recorded: Recorded
    store: SqlStore

    def site(self) -> Site:
        """The world of that moment around it, with a controller and an actor of this release."""
        return world.around(self.store, self.recorded.world)


@pytest.fixture(params=ALL, ids=lambda m: f"{m.release}-{m.name}")
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Upgraded]:
    recorded: Recorded = request.param
    with closing(open_store(f"sqlite:///{recorded.database(tmp_path / 'holdfast.db')}")) as store:
        yield Upgraded(recorded, store)


@pytest.fixture(params=ALL, ids=lambda m: f"{m.release}-{m.name}")
def old_in_postgresql(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_server: PostgresServer
) -> Iterator[Upgraded]:
    recorded: Recorded = request.param
    url = postgres_server.url(postgres_server.create())
    copy_to_postgresql(recorded.database(tmp_path / "holdfast.db"), url)
    with closing(open_store(url)) as store:
        yield Upgraded(recorded, store)


def test_there_are_records() -> None:
    assert ALL, "tests/fixtures/releases is empty: python tests/fixtures/record.py RELEASE"


def test_it_is_read(old: Upgraded) -> None:
    read_all(old.store)
    old.site().turn()


def in_flight(old: Recorded) -> set[object]:
    """Each scene of each release, and what is in flight in it."""
    return {(old.release, old.scene), *((old.scene, *step) for step in old.in_flight())}


@pytest.mark.sampled(of=in_flight)
def test_it_is_read_and_run_on(old: Upgraded) -> None:
    read_all(old.store)
    site = old.site()
    site.turn()
    assert_served(ServedSite(site, old.store))
    run_on(site)


@pytest.mark.sampled(of=lambda old_in_postgresql: [(old_in_postgresql.release, old_in_postgresql.scene)])
@pytest.mark.postgresql
def test_it_is_read_in_postgresql(old_in_postgresql: Upgraded) -> None:
    read_all(old_in_postgresql.store)
    old_in_postgresql.site().run(20)


@pytest.mark.parametrize("name", WITH_MUCH)
def test_the_command_line_shows_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = next(m for m in ALL if m.name.startswith(name))
    with closing(open_store(f"sqlite:///{recorded.database(tmp_path / 'holdfast.db')}")) as store:
        site = Upgraded(recorded, store).site()
        site.turn()
        served = ServedSite(site, store)

        def send(_client: ApiClient, method: str, path: str, body: bytes | None, *_more: object) -> bytes:
            got = served.call(method, path, content=body)
            assert got.status_code == 200, got.text
            return got.content

        monkeypatch.setenv("HOLDFAST_TOKEN", "any")
        monkeypatch.setattr(ApiClient, "_send", send)
        for verb in ("nodes", "incidents", "jobs", "spares", "suppressions"):
            assert run((verb,)) == 0
        for incident in store.incidents():
            assert run(("incident", "show", incident.id)) == 0
            shown = capsys.readouterr().out
            assert incident.headline in shown
            assert incident.state.value in shown


def assert_served(served: ServedSite) -> None:
    """Every page of the API, for every incident."""
    pages = [
        "nodes",
        "incidents",
        "actions?limit=1000",
        "events?limit=1000",
        "jobs",
        "spares",
        "suppressions",
        "metrics",
    ]
    pages += [f"incidents/{i.id}" for i in served.store.incidents()]
    pages += [f"nodes/{name}" for name in served.site.slurm.nodes]
    for page in pages:
        got = served.call("GET", f"/v1/{page}")
        assert got.status_code == 200, f"{page}: {got.text}"
    assert served.call("GET", "/metrics").status_code == 200


def read_all(store: SqlStore) -> None:
    """Every row of every table, as people and programs read them."""
    for incident in store.incidents(limit=1000):
        assert store.incident(incident.id) == incident
        store.evidence(incident.id)
    store.events()
    store.recoveries()
    store.intents()
    store.findings()
    store.due_intents()
    store.tokens()


def run_on(site: Site) -> None:
    """Let the site run on with this release; what was done before must not be done again, and what was in flight ends."""
    before = {i.key: i for i in site.store.intents()}
    done = doings(site)
    site.run(10)
    site.run(60, step_s=5)
    site.run(RUN_S - 70, step_s=70)
    after = {i.key: i for i in site.store.intents()}
    assert before.keys() <= after.keys()
    for key, intent in before.items():
        assert after[key] == intent or not intent.settled, f"{key} was settled, and has changed"
    assert_once(site, done)
    if site.book.paused is None:
        late = [i.key for i in after.values() if not i.settled and key_age_s(site, i) > RUN_S / 2]
        assert not late, f"still in flight after {RUN_S} s"


def key_age_s(site: Site, intent: Intent) -> float:
    return (site.clock.now() - intent.planned_at).total_seconds()


@dataclass(frozen=True)
class Doings:
    """Actions outside Holdfast, counted where doing them twice would show."""

    terminated: Mapping[str, int]
    launched: int


def doings(site: Site) -> Doings:
    return Doings(dict(site.provider.terminated), len(site.provider.tokens))


def assert_once(site: Site, before: Doings) -> None:
    assert all(n == 1 for n in site.slurm.requeued.values()), f"a run was requeued twice: {site.slurm.requeued}"
    assert all(n == 1 for n in site.provider.terminated.values()), "a machine was terminated twice"
    planned = Counter(type(i.action) for i in site.store.intents() if i.started_at is not None)
    assert len(site.provider.tokens) <= max(planned[Launch] + planned_in_place(site), before.launched)
    assert sum(site.provider.terminated.values()) <= planned[Terminate] + planned_in_place(site)


def planned_in_place(site: Site) -> int:
    return sum(1 for i in site.store.intents() if i.kind == "Replace")
