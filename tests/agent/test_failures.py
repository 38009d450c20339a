"""Why no controller accepts what is sent, in plain words: each reason from a real connection."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.agent.sending.client import ControllerClient, Controllers, NoAnswer
from holdfast.agent.sending.failures import SendFailure, SendFailureKind, of_answer
from holdfast.tls.folder import Maker, TlsFolder
from holdfast.tls.plan import Issue, MakeAuthority
from support.agent_bench import FakeController
from tls.authorities import former


def site(folder: Path, *names: str, now: datetime | None = None, days: int = 30) -> Path:
    folder.mkdir()
    maker = Maker(TlsFolder(folder), now or datetime.now(UTC), days, authority_days=400)
    for step in (MakeAuthority(), Issue(names or ("127.0.0.1",), False, "test")):
        maker.do(step)
    return folder


@contextmanager
def serving(etc: Path) -> Iterator[str]:
    """A TLS server that completes the handshake and then sends nothing that is HTTP."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(etc / "tls.pem", etc / "tls.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(connection, server_side=True).close()
                except OSError:
                    connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def failure(url: str, ca_file: Path | None = None) -> SendFailure:
    client = ControllerClient(Controllers((url,)), None, ca_file)
    try:
        with pytest.raises(NoAnswer) as caught:
            client.get("/v1/agent/self", {}, 1.0)
    finally:
        client.close()
    assert caught.value.failure.url == url
    return caught.value.failure


def test_connection_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    told = failure(f"http://127.0.0.1:{port}")
    assert (told.kind, told.reason) == (SendFailureKind.TCP, "connection refused")


@pytest.mark.slow
def test_no_answer_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told = failure(f"http://127.0.0.1:{listener.getsockname()[1]}")
    assert (told.kind, told.reason) == (SendFailureKind.TCP, "no answer in time")


def test_a_name_that_is_not_known() -> None:
    told = failure("http://no-such-host.invalid:8460")
    assert (told.kind, told.reason) == (SendFailureKind.NAME, "the host name is not known here")


def test_a_port_that_speaks_no_tls(controller: FakeController) -> None:
    told = failure(controller.url.replace("http:", "https:"))
    assert told.kind is SendFailureKind.TLS
    assert told.reason.startswith("no TLS was agreed")


@pytest.mark.parametrize(
    ("names", "trust", "age_days", "words"),
    [
        (("127.0.0.1",), "other", 0, "an authority that ca_file does not hold"),
        (("127.0.0.1",), "", 0, "an authority that ca_file does not hold"),
        (("head",), "own", 0, "the name in the URL is not in the certificate"),
        (("127.0.0.1",), "own", 60, "the certificate has ended"),
        (("127.0.0.1",), "own", -60, "not valid yet by this node's clock"),
    ],
)
def test_a_certificate_that_is_refused(
    tmp_path: Path, names: tuple[str, ...], trust: str, age_days: int, words: str
) -> None:
    etc = site(tmp_path / "own", *names, now=datetime.now(UTC) - timedelta(days=age_days))
    site(tmp_path / "other")
    with serving(etc) as url:
        told = failure(url, tmp_path / trust / "ca.pem" if trust else None)
    assert told.kind is SendFailureKind.TLS
    assert words in told.reason
    assert "holdfast" in told.remedy or "ca.pem" in told.remedy or "clock" in told.remedy


def test_an_authority_that_python_3_13_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etc = former(tmp_path / "former")
    plain = ssl.create_default_context

    def strict(**named: str) -> ssl.SSLContext:
        context = plain(cafile=named["cafile"])
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    with serving(etc) as url:
        told = failure(url.replace("127.0.0.1", "localhost"), etc / "ca.pem")
    assert "Python 3.13 demands" in told.reason
    assert "--new-ca" in told.remedy


@pytest.mark.parametrize(
    ("status", "leader", "kind"),
    [
        (200, None, None),
        (200, True, None),
        (200, False, SendFailureKind.CONTROLLER),
        (401, None, SendFailureKind.AUTHENTICATION),
        (403, None, SendFailureKind.AUTHENTICATION),
        (404, None, SendFailureKind.CONTROLLER),
        (422, None, SendFailureKind.VERSION),
        (500, None, SendFailureKind.CONTROLLER),
        (503, None, SendFailureKind.CONTROLLER),
    ],
)
def test_answers(status: int, leader: bool | None, kind: SendFailureKind | None) -> None:
    told = of_answer("http://h", status, "why", leader=leader)
    assert (told.kind if told is not None else None) is kind


def test_a_file_of_authorities_that_is_replaced_is_read_after_a_refusal(tmp_path: Path) -> None:
    """No restart of the agent: the same client connects once ca.pem has the authority."""
    etc, other = site(tmp_path / "own"), site(tmp_path / "other")
    trust = tmp_path / "ca.pem"
    trust.write_bytes((other / "ca.pem").read_bytes())
    with serving(etc) as url:
        client = ControllerClient(Controllers((url,)), None, trust)
        kinds = []
        for _ in range(2):
            with pytest.raises(NoAnswer) as caught:
                client.get("/", {}, 1.0)
            kinds.append(caught.value.failure.kind)
            trust.write_bytes((etc / "ca.pem").read_bytes() + b"\n")
        with pytest.raises(NoAnswer) as caught:
            client.get("/", {}, 1.0)
        client.close()
    assert kinds == [SendFailureKind.TLS, SendFailureKind.TLS]
    assert caught.value.failure.kind is SendFailureKind.TCP, "the handshake is done; the server then says nothing"


@pytest.mark.parametrize(("text", "words"), [(None, "No such file"), ("nonsense", "no PEM file with certificates")])
def test_a_file_of_authorities_that_cannot_be_used_is_named(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "ca.pem").write_text(text)
    with pytest.raises(OSError, match=f"ca_file .*ca.pem: .*{words}"):
        ControllerClient(Controllers(("https://h",)), None, tmp_path / "ca.pem")
