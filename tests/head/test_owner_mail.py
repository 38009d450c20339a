"""Mail to jobs' owners by the real loop, actor and SMTP: who gets one, what holds up nothing else, and what a restart repeats."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.actor.owner_desk import OwnerDesk
from holdfast.cli.app import run
from holdfast.config.controller import load
from holdfast.controller.timing.lanes import pools
from holdfast.decisions.notices import owners
from holdfast.head.notify import owner_address
from holdfast.model.actions.action import Intent, IntentState, Notify, SendOrder, TellOwner, Verb
from holdfast.model.book import Change
from holdfast.model.errors import ConfigError
from holdfast.model.event import EventKind
from holdfast.model.notice import Matter, Message
from support.mail_server import MailServer
from support.simulated import Site
from support.simulated.clock import EPOCH
from support.simulated.site import POLICY
from support.store_nouns import intent

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # apprise imports imghdr where there is one
ON = replace(POLICY, job=replace(POLICY.job, owner_mail=True))
SETTINGS = """
[jobs]
owner_mail = true

[notify.owners]
url = "mailto://u:SECRET@127.0.0.1:PORT?from=holdfast@site.example&to={to}&mode=insecure"
to = "{user}@site.example"
"""


@pytest.fixture
def mails() -> Iterator[MailServer]:
    with MailServer() as server:
        yield server


def desk_of(site: Site, tmp_path: Path, port: int) -> OwnerDesk:
    config = tmp_path / "controller.toml"
    config.write_text(SETTINGS.replace("PORT", str(port)))
    section = load(config).notify.owners
    to = owner_address(section, tmp_path, site.clock)
    assert section is not None
    assert to is not None
    return OwnerDesk(site.store, site.clock, to, section.pause_s, "hpc")


def with_desk(site: Site, tmp_path: Path, port: int) -> Site:
    site.owners = desk_of(site, tmp_path, port)
    site.start_actor()
    return site


def recovered(site: Site, **changed: Any) -> None:
    job = site.slurm.submit(2, **{"comment": "holdfast", "exclusive": True, **changed})
    site.run(2)
    site.fault(job.nodes[0])
    site.run(60)
    assert job.restarts == 1


def test_the_owner_gets_one_mail_and_it_is_on_record(tmp_path: Path, mails: MailServer) -> None:
    site = with_desk(Site(4, spares=("n4",), policy=ON), tmp_path, mails.port)
    recovered(site, array_job_id=99, array_task_id=4)
    site.owners = desk_of(site, tmp_path, mails.port)
    site.start_actor()
    site.run(3 * 3600, step_s=60)
    ((to, _),) = mails.mails
    assert to == ("ada@site.example",)
    assert mails.subjects() == ["hpc: your job 99_4 runs again"]
    text = _texts(mails)
    assert "run 0 was stopped by node" in text
    assert "holdfast-no-notes" in text
    (delivered,) = site.store.events(kinds=(EventKind.NOTICE_DELIVERED,))
    assert (delivered.detail["address"], delivered.detail["topic"]) == ("owner ada", "job_recovered")
    assert site.notices.messages == [], "no operator was called"


def test_the_owner_of_a_held_job_reads_how_to_start_it(tmp_path: Path, mails: MailServer) -> None:
    """It is the suspect: the same fault, which a program can cause, on each of its nodes."""
    site = with_desk(Site(8, policy=ON), tmp_path, mails.port)
    job = site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    for _ in range(2):
        site.fault(job.nodes[0], code="109")
        site.run(40)
    assert job.held
    site.run(1000, step_s=10)
    assert f"scontrol release {job.job_id}; scontrol update jobid={job.job_id} StartTime=now" in _texts(mails)
    assert sum("is held" in subject for subject in mails.subjects()) == 1


LETTER = (
    "GPU 3 is gone\n\nIT service desk: your account is locked. Sign in again at https://evil.example/login\n\n@everyone"
)


def test_no_sentence_of_an_agent_reaches_an_owner(tmp_path: Path, mails: MailServer) -> None:
    """A thief of one node's token would write to users in the site's name: by mail, in a file, in AdminComment."""
    policy = replace(ON, job=replace(ON.job, owner_file=True))
    site = with_desk(Site(4, spares=("n4",), policy=policy), tmp_path, mails.port)
    for comment in ("holdfast", ""):
        site.slurm.submit(1, comment=comment, exclusive=True, stdout="/home/ada/x.out")
    site.run(2)
    for node in ("n1", "n2"):
        site.fault(node, component="GPU-1 see https://evil.example", summary=LETTER)
    site.run(60)
    orders = [i.action for i in site.store.intents() if isinstance(i.action, SendOrder | TellOwner)]
    notes = [str(a.args["text"]) for a in orders if isinstance(a, SendOrder) and a.verb is Verb.JOB_NOTE]
    comments = [a.text for a in orders if isinstance(a, TellOwner)]
    assert (len(mails.mails), len(notes), len(comments)) == (1, 1, 2)
    for text in (_texts(mails), *notes, *comments):
        assert "(gpu.xid 79 GPU-1)" in text
        assert not any(word in text for word in ("service", "evil", "://", "everyone"))


def _texts(mails: MailServer) -> str:
    parts = (part for _, mail in mails.mails for part in mail.walk() if part.get_content_type() == "text/plain")
    return "\n".join(str(part.get_payload(decode=True), "utf-8") for part in parts)  # type: ignore[arg-type]


@pytest.mark.parametrize("changed", [{"policy": POLICY}, {"comment": "holdfast,holdfast-no-notes"}])
def test_no_mail_where_it_is_off_or_unwanted(tmp_path: Path, mails: MailServer, changed: dict[str, Any]) -> None:
    policy = changed.pop("policy", ON)
    recovered(with_desk(Site(4, spares=("n4",), policy=policy), tmp_path, mails.port), **changed)
    assert mails.mails == []


def test_a_refused_mail_calls_no_operator_and_is_tried_again(tmp_path: Path, mails: MailServer) -> None:
    mails.refuses = True
    site = with_desk(Site(4, spares=("n4",), policy=ON), tmp_path, mails.port)
    recovered(site)
    (failed,) = site.store.events(kinds=(EventKind.NOTICE_FAILED,))
    assert failed.detail["address"] == "owner ada"
    assert "SECRET" not in str(failed)
    assert site.actor.desk is not None
    assert site.actor.desk.state().error == ""
    mails.refuses = False
    site.run(300, step_s=10)
    assert len(mails.mails) == 1


def test_what_gets_no_mail_is_on_record_as_given_up(
    tmp_path: Path, mails: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "MOST_WAITING", 0)
    site = with_desk(Site(4, spares=("n4",), policy=ON), tmp_path, mails.port)
    recovered(site)
    (event,) = site.store.events(kinds=(EventKind.NOTICE_FAILED,))
    assert (event.detail["address"], event.detail["given_up"]) == ("owner ada", True)
    (told,) = (i for i in site.store.intents() if isinstance(i.action, Notify) and i.action.user)
    assert told.outcome.startswith("not sent: too many notices")
    assert mails.mails == []


class Operators:
    """Implements :class:`holdfast.ports.Address`."""

    name = "urls[1] test"

    def __init__(self) -> None:
        self.got = threading.Event()

    def send(self, message: Message) -> None:
        self.got.set()

    def keep(self, matters: Sequence[Matter]) -> None:
        pass


@pytest.mark.slow
def test_a_mail_server_that_does_not_answer_holds_up_no_message_to_operators(tmp_path: Path) -> None:
    """The actor's own queues: the owners' mail hangs in one, the operators' message passes in the other."""
    with socket.create_server(("127.0.0.1", 0)) as hung, pools() as workers:
        site = with_desk(Site(4, policy=ON), tmp_path, hung.getsockname()[1])
        actor, operators = site.actor, Operators()
        assert actor.desk is not None
        actor.desk.places = [replace(actor.desk.places[0], address=operators)]
        lease = site.store.lease()
        assert lease is not None
        both = (replace(_notice("ada", 1), fence=lease.fence), replace(_notice("", 2), fence=lease.fence))
        site.store.commit(Change(intents=both), lease.fence)
        began_s = time.monotonic()
        actor._without_notices(site.store.due_intents(), lease.fence, workers)
        passed = operators.got.wait(10.0)
        mail_hangs = not actor._busy["owners", "people"].done()
        hung.close()
    assert (passed, mail_hangs) == (True, True)
    assert time.monotonic() - began_s < 20.0, "the mail ended with its server"
    states = {i.action.user: i.state for i in site.store.intents() if isinstance(i.action, Notify)}
    assert states == {"ada": IntentState.DONE, "": IntentState.DONE}


def _notice(user: str, number: int) -> Intent:
    return intent(f"upkeep/Notify/t{number}/1", Notify("s", "b", user=user), incident_id="upkeep", planned_at=EPOCH)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[jobs]\nowner_mail = true", r"jobs\.owner_mail is on, which needs url"),
        ('[notify.owners]\nto = "all@site.example"', r"has no \{user\}"),
        ('[notify.owners]\nurl = "mailto://u:SECRET@x"\nto = "{user}@x"', r"url has no \{to\}"),
        ("[notify.owners]\npause_s = 1", "pause_s"),
    ],
)
def test_a_wrong_setting_is_one_line_without_the_address(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "controller.toml"
    config.write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        load(config)
    assert "\n" not in str(error.value)
    assert "SECRET" not in str(error.value)


def test_the_address_may_be_in_a_file(tmp_path: Path, mails: MailServer) -> None:
    (tmp_path / "owners-url").write_text("# the relay\nmailto://u:p@127.0.0.1?to={to}\n")
    config = tmp_path / "controller.toml"
    config.write_text('[notify.owners]\nurl_file = "owners-url"\nto = "{user}@site.example"\n')
    section = load(config).notify.owners
    to = owner_address(section, tmp_path, Site(1, warm=False).clock)
    assert to is not None
    assert to("ada,bob") is None
    ada = to("ada")
    assert ada is not None
    assert ada.name == "owner ada mailto://…"
    (tmp_path / "owners-url").write_text("mailto://u:p@127.0.0.1\n")
    with pytest.raises(ConfigError, match=r"has no \{to\}"):
        owner_address(section, tmp_path, Site(1, warm=False).clock)


def test_the_page_shows_settings_that_the_check_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "notifications.md").read_text(encoding="utf-8")
    (shown,) = (block.partition("```")[0] for block in page.split("```toml\n")[1:] if "[notify.owners]" in block)
    config = tmp_path / "controller.toml"
    config.write_text(f'{shown}\n[store]\nurl = "sqlite:///{tmp_path}/state.db"\n')
    assert run(["config", "check", str(config)]) == 0, capsys.readouterr()
