"""Addresses by real protocols: SMTP, webhooks, an Alertmanager's API; no secret is shown, no text breaks a line."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.app import run
from holdfast.config.controller import load
from holdfast.config.notify import urls_of
from holdfast.decisions.notices.texts import NoticeLinks
from holdfast.head.addresses import BrokenAddress, address, one_line
from holdfast.head.alertmanager import HOLD_S
from holdfast.head.bounded_address import BoundedAddress
from holdfast.head.notify import notifier_for, places_of
from holdfast.model.errors import ConfigError, Unavailable
from holdfast.model.notice import Matter, Message, NoticeLevel, Topic
from support.mail_server import MailServer
from support.simulated.clock import SimClock

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # apprise imports imghdr where there is one
CLOCK = SimClock()


def message(subject: str = "n1 needs an operator", *, over: bool = False, count: int = 1) -> Message:
    matters = tuple(
        Matter(Topic.AWAITING_HUMAN, f"t{n}", subject, incident_id=f"id{n}", nodes=(f"n{n}",), since=CLOCK.now())
        for n in range(count)
    )
    return Message(
        "m1",
        CLOCK.now(),
        NoticeLevel.NEEDS_SOMEBODY,
        Topic.AWAITING_HUMAN,
        subject,
        "why\nYou can: act",
        count,
        over,
        matters,
    )


@pytest.fixture
def mails() -> Iterator[MailServer]:
    with MailServer() as server:
        yield server


def mail_url(server: MailServer) -> str:
    return f"mailto://u:SECRET@127.0.0.1:{server.port}?from=hf@site.example&to=ops@site.example&mode=insecure"


class Receiver:
    """An HTTP server that keeps what is posted, and answers ``status``."""

    def __init__(self) -> None:
        self.status = 200
        self.got: list[tuple[str, Any, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.got.append((self.path, body, self.headers.get("Authorization", "")))
                self.send_response(outer.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join()


def test_no_text_of_a_finding_calls_a_whole_channel_or_hides_where_a_link_goes(receiver: Receiver) -> None:
    address("urls[0]", f"mmost://127.0.0.1:{receiver.port}/3ccdd113474722377935511fc85d3dd4", CLOCK).send(
        message("n1 fails: @everyone @Channel @here @all, [holdfast docs](http://evil.example), ask ops@site.example")
    )
    ((_, posted, _),) = receiver.got
    assert "n1 fails: @ everyone @ Channel @ here @ all, [holdfast docs] (http://evil.example)" in posted["text"]
    assert "ops@site.example" in posted["text"]


def test_a_mail_arrives_and_no_text_of_a_finding_adds_a_header(mails: MailServer) -> None:
    to = address("urls[0]", mail_url(mails), CLOCK)
    to.send(message("n1 fails\r\nBcc: all@site.example\x1b[2J"))
    ((recipients, mail),) = mails.mails
    assert recipients == ("ops@site.example",)
    assert mail["Bcc"] is None
    (subject,) = mails.subjects()
    assert "\x1b" not in subject
    assert subject.startswith("n1 fails")
    assert "You can: act" in str(mail)


@pytest.mark.parametrize(
    ("level", "over", "kind"),
    [
        (NoticeLevel.NEEDS_SOMEBODY, False, "failure"),
        (NoticeLevel.NEEDS_SOMEBODY, True, "info"),
        (NoticeLevel.HEALED, False, "info"),
        (NoticeLevel.DIGEST, False, "info"),
    ],
)
def test_a_message_has_the_type_of_its_level(receiver: Receiver, level: NoticeLevel, over: bool, kind: str) -> None:
    to = address("urls[0]", f"json://127.0.0.1:{receiver.port}/", CLOCK)
    to.send(replace(message(over=over), level=level))
    assert [body["type"] for _, body, _ in receiver.got] == [kind]


def test_a_refused_mail_is_not_delivered_and_shows_no_secret(mails: MailServer) -> None:
    mails.refuses = True
    to = address("urls[0]", mail_url(mails), CLOCK)
    with pytest.raises(Unavailable) as refused:
        to.send(message())
    assert "SECRET" not in f"{refused.value} {to!r} {to.name}"
    assert to.name == "urls[0] mailto://…"


def test_an_alert_has_labels_texts_and_an_end_and_the_end_of_what_is_over_is_now(receiver: Receiver) -> None:
    links = NoticeLinks("https://docs.example", "https://hf.example/incidents", "prod")
    to = address("urls[0]", f"alertmanager://ops:SECRET@127.0.0.1:{receiver.port}/am/", CLOCK, links)
    to.send(message())
    to.send(message(over=True))
    (path, (alert,), login), (_, (ended,), _) = receiver.got
    assert (path, login) == ("/am/api/v2/alerts", "Basic b3BzOlNFQ1JFVA==")
    assert (
        alert["labels"]
        == ended["labels"]
        == {
            "alertname": "HoldfastAwaitingHuman",
            "severity": "critical",
            "topic": "awaiting_human",
            "cluster": "prod",
            "node": "n0",
            "incident": "id0",
        }
    )
    assert alert["annotations"]["runbook_url"] == "https://docs.example/runbooks/awaiting-human.md"
    assert alert["generatorURL"] == "https://hf.example/incidents/id0"
    lasts = datetime.fromisoformat(alert["endsAt"]) - CLOCK.now()
    assert lasts.total_seconds() == HOLD_S
    assert datetime.fromisoformat(ended["endsAt"]) == CLOCK.now()
    assert "SECRET" not in f"{to!r} {to.name}"


def test_a_storm_is_one_alert_for_each_node_in_few_requests(receiver: Receiver) -> None:
    to = address("urls[0]", f"alertmanager://127.0.0.1:{receiver.port}", CLOCK)
    to.send(message(count=450))
    assert [len(alerts) for _, alerts, _ in receiver.got] == [200, 200, 50]


@pytest.mark.parametrize("status", [302, 400, 500])
def test_an_alertmanager_that_does_not_take_an_alert_is_said(receiver: Receiver, status: int) -> None:
    receiver.status = status
    with pytest.raises(Unavailable, match=f"answered {status}"):
        address("urls[0]", f"alertmanager://127.0.0.1:{receiver.port}", CLOCK).send(message())


@pytest.mark.parametrize("url", ["alertmanager://", "alertmanager://:9093", "alertmanagers://u:SECRET@[::1"])
def test_a_wrong_address_of_an_alertmanager_is_one_line_without_secrets(url: str) -> None:
    to = address("urls[0]", url, CLOCK)
    assert isinstance(to, BrokenAddress)
    with pytest.raises(Unavailable) as wrong:
        to.send(message())
    assert "SECRET" not in str(wrong.value)


def test_a_page_of_a_process_ends_when_it_is_over(tmp_path: Path, receiver: Receiver) -> None:
    config = tmp_path / "controller.toml"
    config.write_text(f'[notify]\nurls = ["alertmanager://127.0.0.1:{receiver.port}"]\n')
    pager = notifier_for(load(config).notify, tmp_path, CLOCK)
    pager.notify("Holdfast on head: store failed", "disk full")
    pager.notify("over: Holdfast on head: store failed", "", over_of="Holdfast on head: store failed")
    (_, (alert,), _), (_, (ended,), _) = receiver.got
    assert alert["labels"] == ended["labels"]
    assert datetime.fromisoformat(alert["endsAt"]) > CLOCK.now() == datetime.fromisoformat(ended["endsAt"])


class Trickle:
    """A receiver whose answer begins well and never ends; ``head``: not even its head does."""

    def __init__(self, *, head: bool) -> None:
        self.enough, self.listener = threading.Event(), socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.begin = b"HTTP/1.1 200 OK\r\n" if head else b"HTTP/1.1 500 No\r\nContent-Length: 1000000\r\n\r\n"
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        with self.listener, self.listener.accept()[0] as peer, contextlib.suppress(OSError):
            peer.recv(65536)
            peer.sendall(self.begin)
            while not self.enough.wait(0.02):
                peer.sendall(b"x")


@pytest.mark.parametrize("kind", ["alertmanager", "json"])
@pytest.mark.parametrize("head", [True, False])
def test_a_receiver_that_answers_byte_by_byte_keeps_no_message_from_the_others(kind: str, head: bool) -> None:
    slow = Trickle(head=head)
    to = address("urls[0]", f"{kind}://127.0.0.1:{slow.port}", CLOCK)
    assert isinstance(to, BoundedAddress)
    to.answer_s = 0.1
    with pytest.raises(Unavailable, match="no complete answer within"):
        to.send(message())
    with pytest.raises(Unavailable, match="has not ended its answer"):
        to.keep(())
    slow.enough.set()
    slow.thread.join()


def test_addresses_come_from_a_file_of_systemds_credentials(tmp_path: Path) -> None:
    (tmp_path / "cred").mkdir()
    (tmp_path / "cred" / "urls").write_text("# on call\n json://a.example/SECRET \n\n")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path / "cred")}
    assert urls_of(("json://b.example",), Path("urls"), tmp_path, environ) == (
        "json://b.example",
        "json://a.example/SECRET",
    )
    with pytest.raises(ConfigError, match=r"notify\.urls_file: .*urls: No such file"):
        urls_of((), Path("urls"), tmp_path, {})


ROUTES = """
[notify]
urls = ["json://127.0.0.1/a"]
[[notify.routes]]
urls = ["json://127.0.0.1/b"]
levels = ["healed", "digest"]
topics = ["healed"]
quiet_hours = "22:00-07:00 Europe/Berlin"
"""


def test_routes_are_read(tmp_path: Path) -> None:
    config = tmp_path / "controller.toml"
    config.write_text(ROUTES)
    first, second = places_of(load(config).notify, tmp_path, CLOCK)
    assert (first.address.name, second.address.name) == ("urls[0] json://…", "routes[0].urls[0] json://…")
    assert second.rule.levels == {NoticeLevel.HEALED, NoticeLevel.DIGEST}
    assert second.rule.quiet is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[[notify.routes]]\nurls = ["x://a"]\nlevels = ["urgent"]',
            r"routes\[0\]\.levels: 'urgent' is none of needs_somebody",
        ),
        ('[[notify.routes]]\nurls = ["x://a"]\nlevels = []', "levels is empty"),
        ('[[notify.routes]]\nurls = ["x://a"]\ntopics = ["brakes"]', "'brakes' is none of"),
        ('[[notify.routes]]\nurls = ["x://a"]\nquiet_hours = "22-7"', "is not like 22:00-07:00"),
        ('[[notify.routes]]\nurls = ["x://a"]\nquiet_hours = "22:00-07:00 Mars"', "no time zone 'Mars'"),
        ('[[notify.routes]]\nlevels = ["digest"]', "neither urls nor urls_file"),
        ('[[notify.routes]]\nurl = ["x://a"]', "unknown key 'url'; did you mean 'urls'"),
        ('[notify]\ndigest_at = "8"', "no time of day such as 08:00"),
    ],
)
def test_a_wrong_setting_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "controller.toml"
    config.write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        load(config)
    assert "\n" not in str(error.value)


def test_the_test_says_for_each_address_whether_it_was_taken(
    tmp_path: Path, mails: MailServer, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "controller.toml"
    urls = [mail_url(mails), f"json://127.0.0.1:{receiver.port}/SECRET"]
    config.write_text(f"[notify]\nurls = {json.dumps(urls)}\n")
    assert run(["notify", "test", "-c", str(config)]) == 0
    assert capsys.readouterr().out == "urls[0] mailto://…: taken\nurls[1] json://…: taken\n"
    assert mails.subjects() == ["test of Holdfast's messages: action needed"]
    receiver.status = 500
    assert run(["notify", "test", "-c", str(config)]) != 0
    said = capsys.readouterr()
    assert "urls[1] json://…: NOT taken" in said.out
    assert "1 of 2 addresses did not take the test" in said.err
    assert "SECRET" not in said.out + said.err
    assert run(["notify", "test", "--level", "digest", "-c", str(config)]) != 0
    assert "no address takes digest" in capsys.readouterr().err


def test_an_address_that_apprise_does_not_understand_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    to = address("urls[0]", "nonsense://u:SECRET@x", CLOCK)
    with pytest.raises(Unavailable, match="does not understand"):
        to.send(message())
    assert "SECRET" not in caplog.text


def test_texts_of_agents_are_one_line_without_controls() -> None:
    assert one_line("a\nb\x1b[31m\u202ec") == "a b [31m c"
