"""Failures to reach a controller: for each one kind, one sentence and one remedy. Pure."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import urllib3

# Numbers of OpenSSL's x509_vfy.h (X509_V_ERR_…), which Python passes on as verify_code.
_NOT_YET, _EXPIRED = frozenset({9}), frozenset({10})
_UNKNOWN_ISSUER = frozenset({2, 7, 18, 19, 20, 21, 30})
"""The issuer is missing, is self-signed and not trusted, or is another one with the same name."""
_NAME = frozenset({62, 64})
_STRICT = frozenset({32, 41, *range(79, 95)})
"""Requirements of RFC 5280 on extensions that X509_V_FLAG_X509_STRICT enforces."""


class SendFailureKind(StrEnum):
    """Kind of failure, in the order of a connection."""

    CONFIGURATION = "configuration"
    TOKEN = "token"  # noqa: S105 - the name of a step
    NAME = "name"
    TCP = "tcp"
    TLS = "tls"
    AUTHENTICATION = "authentication"
    CONTROLLER = "controller"
    """It answers but cannot or will not serve the request."""
    VERSION = "version"
    CLOCK = "clock"


@dataclass(frozen=True, slots=True)
class SendFailure:
    """One failed step."""

    kind: SendFailureKind
    reason: str
    """What happened, in one sentence."""
    remedy: str
    """What an operator can do."""
    url: str = ""
    """URL of the controller; empty: it concerns none of them."""

    def __str__(self) -> str:
        where = f"{self.url}: " if self.url else ""
        return f"{where}{self.reason}: {self.remedy}"


_ON_HEAD = "on the head node"
_ANSWERS: dict[int, tuple[SendFailureKind, str, str]] = {
    401: (
        SendFailureKind.AUTHENTICATION,
        "the token is refused",
        f"make one {_ON_HEAD} (holdfast token create agent NODE) and put it into token_file, or run enrol.sh --now",
    ),
    403: (
        SendFailureKind.AUTHENTICATION,
        "the token is not one of this node's agent",
        "make one for this node's name in Slurm, or correct `node` in agent.toml",
    ),
    404: (
        SendFailureKind.CONTROLLER,
        "no Holdfast controller of this version answers",
        "correct `controllers` in agent.toml",
    ),
    422: (SendFailureKind.VERSION, "it does not take this agent's messages", "upgrade the older side"),
    429: (SendFailureKind.CONTROLLER, "too many requests", f"see holdfast doctor {_ON_HEAD}"),
    503: (SendFailureKind.CONTROLLER, "it cannot serve now", f"see holdfast doctor {_ON_HEAD}"),
}
STANDBY = (SendFailureKind.CONTROLLER, "it is the standby", "another URL of `controllers` has to answer as leader")


def of_answer(url: str, status: int, message: str = "", *, leader: bool | None = None) -> SendFailure | None:
    """Failure from a controller's answer; None: it served the request and is not a standby."""
    if status == 200:
        return SendFailure(*STANDBY, url) if leader is False else None
    otherwise = (
        SendFailureKind.CONTROLLER,
        f"it answers {status}",
        f"see journalctl -u holdfast-controller {_ON_HEAD}",
    )
    kind, reason, remedy = _ANSWERS.get(status, otherwise)
    return SendFailure(kind, f"{reason} ({status}{': ' if message else ''}{message})", remedy, url)


def of_error(url: str, error: BaseException) -> SendFailure:
    """Failure from any error of the HTTP client, however deep its cause is."""
    chain = list(_causes(error))
    for told in (_certificate, _name, _handshake, _refused, _time_out):
        found = told(chain)
        if found is not None:
            return SendFailure(*found, url)
    cause = next((e for e in reversed(chain) if isinstance(e, OSError)), error)
    text = str(getattr(cause, "strerror", None) or cause)[:200]
    return SendFailure(SendFailureKind.TCP, text, f"check the network and holdfast-controller {_ON_HEAD}", url)


_Told = tuple[SendFailureKind, str, str] | None


def _certificate(chain: list[BaseException]) -> _Told:
    error = next((e for e in chain if isinstance(e, ssl.SSLCertVerificationError)), None)
    if error is None:
        return None
    code = error.verify_code
    reason, remedy = "the certificate is refused", f"see holdfast tls show {_ON_HEAD}"
    for codes, *words in _CERTIFICATE:
        if code in codes:
            reason, remedy = words
    return SendFailureKind.TLS, f"{reason} ({error.verify_message or error})", remedy


_CERTIFICATE: tuple[tuple[frozenset[int], str, str], ...] = (
    (_NAME, "the name in the URL is not in the certificate", f"holdfast tls renew --name NAME {_ON_HEAD}"),
    (_EXPIRED, "the certificate has ended", f"holdfast tls renew {_ON_HEAD}, and check this node's clock"),
    (_NOT_YET, "the certificate is not valid yet by this node's clock", "set this node's clock"),
    (
        _UNKNOWN_ISSUER,
        "the certificate is signed by an authority that ca_file does not hold",
        "copy ca.pem from the head node, and set ca_file in agent.toml",
    ),
    (
        _STRICT,
        "the certificate or its authority lacks an extension that Python 3.13 demands",
        f"holdfast tls renew --new-ca {_ON_HEAD}",
    ),
)


def _name(chain: list[BaseException]) -> _Told:
    if not any(isinstance(e, socket.gaierror | urllib3.exceptions.NameResolutionError) for e in chain):
        return None
    return (
        SendFailureKind.NAME,
        "the host name is not known here",
        "correct `controllers` in agent.toml, or the name service",
    )


def _handshake(chain: list[BaseException]) -> _Told:
    error = next((e for e in chain if isinstance(e, ssl.SSLError)), None)
    if error is None:
        return None
    remedy = "the port must speak TLS: see [server] tls_cert in controller.toml, and the port in `controllers`"
    return SendFailureKind.TLS, f"no TLS was agreed ({error.reason or error})", remedy


def _refused(chain: list[BaseException]) -> _Told:
    if not any(isinstance(e, ConnectionRefusedError) for e in chain):
        return None
    remedy = "does holdfast-controller run, and does it listen on that address? ([server] host in controller.toml)"
    return SendFailureKind.TCP, "connection refused", remedy


def _time_out(chain: list[BaseException]) -> _Told:
    if not any(isinstance(e, TimeoutError | urllib3.exceptions.TimeoutError) for e in chain):
        return None
    return SendFailureKind.TCP, "no answer in time", "check the network, firewalls and the load of the head node"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes: urllib3 keeps some causes only in ``args``."""
    todo, seen = [error], set[int]()
    while todo:
        one = todo.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = (one.__cause__, one.__context__, getattr(one, "reason", None), *one.args)
        todo += [each for each in inner if isinstance(each, BaseException)]
