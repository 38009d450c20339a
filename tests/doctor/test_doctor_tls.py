"""The doctor's findings on certificates, from the files of real ones and from a server that serves one."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from doctor.test_doctor import agent, good
from doctor.test_doctor_edge import FewWords, scheduler
from holdfast.config.sections import ServerSection
from holdfast.doctor import AdviceLevel, DoctorFacts, DoctorSite, diagnose, gather
from holdfast.tls.folder import Maker, TlsFolder
from holdfast.tls.plan import Issue, MakeAuthority, ReplaceAuthority, TlsStep
from holdfast.tls.survey import TlsSurvey, survey
from tls.authorities import former

NOW = datetime.now(UTC)


def made(folder: Path, *steps: TlsStep, days: int = 397, authority_days: int = 3650) -> Path:
    folder.mkdir(exist_ok=True)
    maker = Maker(TlsFolder(folder), NOW, days, authority_days)
    for step in steps or (MakeAuthority(), Issue(("localhost",), False, "test")):
        maker.do(step)
    return folder


def surveyed(etc: Path) -> TlsSurvey:
    return survey(TlsFolder(etc).certificate, TlsFolder(etc).trust)


def told(
    etc: Path, running: str = "", at: datetime = NOW, **trusted: tuple[str, ...] | None
) -> list[tuple[str, AdviceLevel]]:
    agents = {name: (replace(agent(name), authorities=known),) for name, known in trusted.items()}
    facts: DoctorFacts = replace(good(), now=at, slurm=None, slurm_problem="", agents=agents or None)
    without = diagnose(facts)
    found = diagnose(replace(facts, tls=surveyed(etc), tls_running=running))
    return [(one.id, one.level) for one in found if one not in without]


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    return made(tmp_path / "etc")


def test_of_good_ones_nothing(etc: Path) -> None:
    assert told(etc) == []


@pytest.mark.parametrize(
    ("days", "level"),
    [(20, AdviceLevel.WARNING), (5, AdviceLevel.ERROR), (0, AdviceLevel.ERROR), (-3, AdviceLevel.ERROR)],
)
def test_one_that_ends(etc: Path, days: int, level: AdviceLevel) -> None:
    at = NOW + timedelta(days=397) - timedelta(days=days)
    assert told(etc, at=at) == [("tls.ends", level)]


def test_an_authority_that_ends(tmp_path: Path) -> None:
    assert told(made(tmp_path / "etc", days=90, authority_days=150)) == [("tls.ends", AdviceLevel.WARNING)]


def test_one_that_strict_verification_refuses(tmp_path: Path) -> None:
    found = told(former(tmp_path / "etc"), at=datetime.now(UTC))
    assert found == [("tls.strict", AdviceLevel.ERROR)]


@pytest.mark.parametrize("spoil", ["gone", "nonsense", "another authority"])
def test_one_that_no_agent_can_verify(etc: Path, tmp_path: Path, spoil: str) -> None:
    if spoil == "gone":
        TlsFolder(etc).certificate.unlink()
    elif spoil == "nonsense":
        TlsFolder(etc).certificate.write_text(spoil)
    else:
        (etc / "ca.pem").write_bytes((made(tmp_path / "other") / "ca.pem").read_bytes())
    assert ("tls.unusable", AdviceLevel.ERROR) in told(etc)


def test_one_that_is_not_served_yet(etc: Path) -> None:
    found = surveyed(etc)
    assert found.served is not None
    assert told(etc, found.served.fingerprint) == []
    assert told(etc, "0123456789abcdef") == [("tls.not_reloaded", AdviceLevel.WARNING)]


def test_an_overlap_names_who_lacks_the_new_authority(etc: Path) -> None:
    made(etc, ReplaceAuthority(), Issue(("localhost",), False, "test"))
    found = surveyed(etc)
    new, old = (one.fingerprint for one in found.trusted)
    assert told(etc, n1=(new, old), n2=(old,), n3=None) == [("tls.overlap", AdviceLevel.HINT)]
    facts = replace(good(), agents={"n1": (replace(agent("n1"), authorities=(old,)),)}, tls=found, now=NOW)
    (advice,) = (one for one in diagnose(facts) if one.id == "tls.overlap")
    assert ("n1" in advice.what, advice.fix_line) == (True, "copy ca.pem to each of them")
    everybody = replace(facts, agents={"n1": (replace(agent("n1"), authorities=(new, old)),)})
    (advice,) = (one for one in diagnose(everybody) if one.id == "tls.overlap")
    assert "--retire-old-ca" in advice.fix_line


@pytest.fixture
def server(etc: Path) -> Iterator[int]:
    """A port that serves the certificate of the folder as it was at the start."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TlsFolder(etc).certificate, TlsFolder(etc).key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            try:
                while True:
                    connection, _ = listener.accept()
                    context.wrap_socket(connection, server_side=True).close()
            except OSError:
                return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_the_edge_compares_the_file_with_what_the_controller_serves(etc: Path, server: int) -> None:
    section = ServerSection("0.0.0.0", server, TlsFolder(etc).certificate, TlsFolder(etc).key)

    def gathered() -> DoctorFacts:
        return gather(scheduler(FewWords()), DoctorSite(server=section), None, NOW)

    facts = gathered()
    assert facts.tls is not None
    assert facts.tls.served is not None
    assert facts.tls_running == facts.tls.served.fingerprint
    made(etc, Issue(("localhost",), False, "test"))
    assert "tls.not_reloaded" in {one.id for one in diagnose(gathered())}


def test_a_site_without_tls_is_not_looked_at() -> None:
    facts = gather(scheduler(FewWords()), DoctorSite(), None, NOW)
    assert (facts.tls, facts.tls_running) == (None, "")
