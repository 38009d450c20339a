"""Notifications: each address separately, by real HTTP through Apprise; no error of an address ends a process."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from holdfast.config.sections import NotifySection, RouteSection
from holdfast.head.addresses import addresses
from holdfast.head.notify import AddressesNotifier, WatchedNotifier, notifier_for, wrong_addresses
from holdfast.model.errors import Unavailable
from support.simulated.clock import SimClock

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # apprise imports imghdr where there is one


class Place:
    """An address that accepts messages, or answers 500."""

    def __init__(self) -> None:
        self.status, self.asked, self.got = 200, 0, list[str]()
        place = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                place.asked += 1
                if place.status == 200:
                    place.got.append(body["title"])
                self.send_response(place.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://127.0.0.1:{self.server.server_address[1]}/secret"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()


@pytest.fixture
def places() -> Iterator[tuple[Place, Place]]:
    made = Place(), Place()
    yield made
    for place in made:
        place.server.shutdown()
        place.server.server_close()
        place.thread.join()


def sending_to(*urls: str) -> AddressesNotifier:
    return AddressesNotifier(addresses("urls", urls, SimClock()), SimClock())


def watched(urls: list[str]) -> WatchedNotifier:
    return notifier_for(NotifySection(tuple(urls)), Path("/"), SimClock())


def test_a_page_of_a_process_goes_by_routes_too(places: tuple[Place, Place]) -> None:
    """The notifier of those who are called fails: only a route can say so."""
    bad, good = places
    bad.status = 500
    others = RouteSection((bad.url,), levels=("healed",)), RouteSection((bad.url,), topics=("job_held",))
    routes = (RouteSection((good.url,)), *others)
    pager = notifier_for(NotifySection((bad.url,), routes=routes), Path("/"), SimClock())
    with pytest.raises(Unavailable, match="the others have it"):
        pager.notify("Holdfast on head: notifier failed", "not delivered")
    assert pager.state().addresses == 2
    assert len(good.got) == 1


def wrong(urls: list[str]) -> tuple[str, ...]:
    return wrong_addresses(addresses("urls", urls, SimClock()))


def test_one_that_fails_is_tried_again_and_the_others_get_each_message_once(places: tuple[Place, Place]) -> None:
    bad, good = places
    bad.status = 500
    notifier = sending_to(bad.url, good.url)
    for _ in range(3):
        with pytest.raises(Unavailable, match="the others have it") as error:
            notifier.notify("n1 needs an operator", "why")
        assert "secret" not in str(error.value)
    assert (bad.asked, good.got) == (3, ["n1 needs an operator"])
    with pytest.raises(Unavailable):
        notifier.notify("n2 needs an operator", "why")
    bad.status = 200
    notifier.notify("n1 needs an operator", "why")
    notifier.notify("n2 needs an operator", "why")
    assert bad.got == good.got == ["n1 needs an operator", "n2 needs an operator"]


def test_the_same_words_a_day_later_are_another_message(places: tuple[Place, Place]) -> None:
    notifier = sending_to(*(place.url for place in places))
    for _ in range(2):
        notifier.notify("brake", "holds")
    assert [place.got for place in places] == [["brake", "brake"]] * 2


def test_an_address_that_cannot_be_used_is_said_and_costs_no_other_its_message(places: tuple[Place, Place]) -> None:
    assert "SECRET" not in str(wrong(["hooks.example/services/SECRET", "SECRET", "SECRET:x@y"]))
    urls = ["nonsense://user:secret@example", places[1].url]
    assert wrong(urls) == ("notify.urls[0] nonsense://…: apprise does not understand this address",)
    notifier = watched(urls)
    assert "nonsense" in notifier.state().error
    with pytest.raises(Unavailable, match="nonsense"):
        notifier.notify("brake", "holds")
    assert places[1].got == ["brake"]


def test_without_the_package_the_log_has_it_and_nothing_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    notifier = watched(["mailto://a:b@example"])
    for _ in range(2):
        with pytest.raises(Unavailable, match="apprise is missing"):
            notifier.notify("brake", "holds")
    assert "apprise is missing" in notifier.state().error
    assert sum("event=notify" in line for line in caplog.messages) == 1
