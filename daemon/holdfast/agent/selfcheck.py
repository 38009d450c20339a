"""``holdfast-agent check``: test each step from the settings to a controller that accepts this agent's reports, for real.

It needs no running agent and does not disturb one: nothing is reported, no order is taken. One line for each failed step."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from holdfast import __version__
from holdfast.agent.sending.authorities import trust_context
from holdfast.agent.sending.client import (
    CONNECT_TIMEOUT_S,
    READ_TIMEOUT_S,
    ControllerAnswer,
    ControllerClient,
    Controllers,
    NoAnswer,
)
from holdfast.agent.sending.contact import ContactState
from holdfast.agent.sending.failures import SendFailure, SendFailureKind, of_error
from holdfast.agent.sending.memory import OWN_FOLDER, others_may_write
from holdfast.agent.sending.pace import UNTOLD_S
from holdfast.agent.sending.reporting import ReportingStatus, read_status
from holdfast.config.agent import AgentConfig
from holdfast.model.agents.report import WIRE_VERSION

CLOCK_WARNING_S, CLOCK_FAILURE_S = 2.0, 300.0
"""Same limits as the doctor's: beyond the first, logs cannot be compared; beyond the second, munge(7) rejects the node."""
ENDS_SOON_S = 14 * 86_400.0
ROUTE = "/v1/agent/self"


class SelfcheckLevel(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class SelfcheckLine:
    """The outcome of one step."""

    level: SelfcheckLevel
    step: str
    text: str

    def __str__(self) -> str:
        return f"{self.level.value:8} {self.step:15} {self.text}"


def token(config: AgentConfig) -> SelfcheckLine:
    """Check that the token exists, is one word, and is not readable by other users."""
    path = config.token_file
    if path is None:
        return SelfcheckLine(
            SelfcheckLevel.FAILED,
            SendFailureKind.TOKEN,
            "token_file is not set in agent.toml; the controller refuses agents without one",
        )
    try:
        text, found = path.read_text(encoding="utf-8"), path.stat()
    except OSError as error:
        denied = isinstance(error, PermissionError)
        hint = "run this as root" if denied else "make one on the head node: holdfast token create agent NODE"
        return SelfcheckLine(SelfcheckLevel.FAILED, SendFailureKind.TOKEN, f"{path}: {error.strerror}: {hint}")
    except UnicodeDecodeError:
        return SelfcheckLine(SelfcheckLevel.FAILED, SendFailureKind.TOKEN, f"{path}: not a token")
    if len(text.split()) != 1:
        return SelfcheckLine(
            SelfcheckLevel.FAILED,
            SendFailureKind.TOKEN,
            f"{path}: {len(text.split())} words: it must contain only the token",
        )
    if found.st_uid not in (0, os.geteuid()):
        text = f"{path} belongs to uid {found.st_uid}, who may read it: chown root {path}, then replace the token"
        return SelfcheckLine(SelfcheckLevel.WARNING, SendFailureKind.TOKEN, text)
    if (mode := found.st_mode & 0o777) & 0o077:
        return SelfcheckLine(
            SelfcheckLevel.WARNING,
            SendFailureKind.TOKEN,
            f"{path}: other users may read it (mode {mode:04o}): chmod 0600 {path}",
        )
    return SelfcheckLine(SelfcheckLevel.OK, SendFailureKind.TOKEN, str(path))


def controller(url: str, config: AgentConfig) -> Iterator[SelfcheckLine]:
    """The steps of one connection, up to the first that fails."""
    try:
        context = trust_context(config.ca_file)
    except OSError as error:
        yield SelfcheckLine(SelfcheckLevel.FAILED, SendFailureKind.TLS, str(error))
        return
    parts = urllib.parse.urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        yield SelfcheckLine(
            SelfcheckLevel.OK,
            SendFailureKind.NAME,
            f"{url}: {', '.join(dict.fromkeys(str(a[4][0]) for a in addresses))}",
        )
        with socket.create_connection((host, port), CONNECT_TIMEOUT_S) as connection:
            yield SelfcheckLine(
                SelfcheckLevel.OK, SendFailureKind.TCP, f"{url}: connected to {connection.getpeername()[0]}"
            )
            if parts.scheme == "https":
                yield from _tls(url, host, connection, context)
    except OSError as error:  # includes ssl.SSLError and socket.gaierror
        yield _failed(of_error(url, error))
        return
    if parts.scheme == "http" and config.ca_file is not None:
        yield SelfcheckLine(
            SelfcheckLevel.WARNING,
            SendFailureKind.TLS,
            f"{url}: ca_file is set, but this is not https: the token is sent unencrypted",
        )
    yield from _answer(url, config)


def _tls(url: str, host: str, connection: socket.socket, context: ssl.SSLContext | None) -> Iterator[SelfcheckLine]:
    """Raises ssl.SSLError as a handshake of the agent would."""
    agreed = (context or ssl.create_default_context()).wrap_socket(connection, server_hostname=host)
    with contextlib.closing(agreed):
        ends = ssl.cert_time_to_seconds(str((agreed.getpeercert() or {}).get("notAfter")))
        shown = f"{agreed.version()}, certificate until {datetime.fromtimestamp(ends, UTC):%Y-%m-%d}"
        if ends - time.time() < ENDS_SOON_S:
            yield SelfcheckLine(
                SelfcheckLevel.WARNING, SendFailureKind.TLS, f"{url}: {shown}: holdfast tls renew on the head node"
            )
        else:
            yield SelfcheckLine(SelfcheckLevel.OK, SendFailureKind.TLS, f"{url}: {shown}")


def strictly(url: str, config: AgentConfig) -> SelfcheckLine | None:
    """A warning if Python 3.13 would refuse the certificate, which this interpreter may accept."""
    parts = urllib.parse.urlsplit(url)
    context = trust_context(config.ca_file) or ssl.create_default_context()
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    host = parts.hostname or ""
    try:
        with (
            socket.create_connection((host, parts.port or 443), CONNECT_TIMEOUT_S) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return None
    except ssl.SSLError as error:
        return SelfcheckLine(
            SelfcheckLevel.WARNING,
            SendFailureKind.TLS,
            f"agents with Python 3.13 would not connect: {of_error(url, error)}",
        )
    except OSError:
        return None


def _answer(url: str, config: AgentConfig) -> Iterator[SelfcheckLine]:
    client = ControllerClient(Controllers((url,)), config.token_file, config.ca_file)
    sent_s, begun = time.monotonic(), datetime.now(UTC)
    try:
        answer = client.get(ROUTE, {}, READ_TIMEOUT_S)
    except NoAnswer as error:
        yield _failed(error.failure)
        return
    finally:
        client.close()
    middle = begun.timestamp() + (time.monotonic() - sent_s) / 2
    if answer.status == 404:
        text = f"{url}: the controller is older than this agent ({__version__}): the token was not tried"
        yield SelfcheckLine(SelfcheckLevel.WARNING, SendFailureKind.VERSION, text)
        return
    if (failure := answer.failure) is not None and answer.status != 200:
        yield _failed(failure)
        return
    yield from _told(url, config, answer, middle)
    if failure is not None:
        yield SelfcheckLine(SelfcheckLevel.WARNING, SendFailureKind.CONTROLLER, str(failure))
    elif url.startswith("https://") and (line := strictly(url, config)) is not None:
        yield line


def _told(url: str, config: AgentConfig, answer: ControllerAnswer, middle_s: float) -> Iterator[SelfcheckLine]:
    """The controller's view of this agent."""
    body = answer.body
    node = str(body.get("node", ""))
    if node != config.node:
        text = f"{url}: the token belongs to node {node!r}, this is {config.node!r}"
        yield SelfcheckLine(
            SelfcheckLevel.FAILED,
            SendFailureKind.AUTHENTICATION,
            f"{text}: make one for it, or correct `node` in agent.toml",
        )
    else:
        yield SelfcheckLine(SelfcheckLevel.OK, SendFailureKind.AUTHENTICATION, f"{url}: the token is {node}'s")
    yield _clock(url, str(body.get("time", "")), middle_s)
    versions = body.get("wire_versions")
    theirs = str(body.get("version", "?"))
    if isinstance(versions, list) and WIRE_VERSION not in versions:
        text = f"{url}: controller {theirs} takes messages of versions {versions}, this agent sends {WIRE_VERSION}"
        yield SelfcheckLine(SelfcheckLevel.FAILED, SendFailureKind.VERSION, f"{text}: upgrade the older side")
    else:
        yield SelfcheckLine(
            SelfcheckLevel.OK, SendFailureKind.VERSION, f"{url}: controller {theirs}, agent {__version__}"
        )
    if body.get("leader") is True:
        yield _heard(url, config, body.get("last_heard_s"))


def _heard(url: str, config: AgentConfig, heard_s: object) -> SelfcheckLine:
    """When the controller last received a message. No agent on this machine: no failure."""
    missing = (
        SelfcheckLevel.FAILED if running(config.run_dir).level is not SelfcheckLevel.WARNING else SelfcheckLevel.WARNING
    )
    if not isinstance(heard_s, int | float):
        return SelfcheckLine(
            missing, "reporting", f"{url}: no report of this node's agent since the controller started"
        )
    late = heard_s > max(config.not_reporting_after_s, 2.5 * (config.heartbeat_s or UNTOLD_S))
    text = f"{url}: the controller last received a report from this node's agent {heard_s:.0f} s ago"
    return SelfcheckLine(missing if late else SelfcheckLevel.OK, "reporting", text)


def _clock(url: str, told: str, middle_s: float) -> SelfcheckLine:
    try:
        offset_s = middle_s - datetime.fromisoformat(told).timestamp()
    except ValueError:
        return SelfcheckLine(
            SelfcheckLevel.WARNING, SendFailureKind.CLOCK, f"{url}: the controller does not report its time"
        )
    text = f"{url}: this node's clock is {offset_s:+.1f} s off the controller's"
    if abs(offset_s) > CLOCK_FAILURE_S:
        return SelfcheckLine(
            SelfcheckLevel.FAILED,
            SendFailureKind.CLOCK,
            f"{text}, and munge shuts it out: systemctl enable --now chrony",
        )
    if abs(offset_s) > CLOCK_WARNING_S:
        return SelfcheckLine(SelfcheckLevel.WARNING, SendFailureKind.CLOCK, f"{text}: systemctl enable --now chrony")
    return SelfcheckLine(SelfcheckLevel.OK, SendFailureKind.CLOCK, text)


def _failed(failure: SendFailure) -> SelfcheckLine:
    return SelfcheckLine(SelfcheckLevel.FAILED, failure.kind.value, str(failure))


def running(run_dir: Path) -> SelfcheckLine:
    """Status that the agent on this machine reports. Raises nothing."""
    try:
        status = read_status(run_dir)
    except (OSError, ValueError) as error:
        return SelfcheckLine(SelfcheckLevel.FAILED, "agent", f"its status cannot be read: {error}")
    if status is None or not status.running:
        return SelfcheckLine(
            SelfcheckLevel.WARNING, "agent", "no agent runs on this machine: systemctl status holdfast-agent"
        )
    return _standing(status)


def _standing(status: ReportingStatus) -> SelfcheckLine:
    if status.standing == ContactState.NOT_REPORTING:
        why = " | ".join(status.reasons)
        return SelfcheckLine(
            SelfcheckLevel.FAILED, "agent", f"the running agent is not reporting since {status.since}: {why}"
        )
    if status.standing == ContactState.REPORTING:
        return SelfcheckLine(
            SelfcheckLevel.OK, "agent", f"the running agent reports to {status.url} since {status.since}"
        )
    return SelfcheckLine(
        SelfcheckLevel.OK, "agent", f"the running agent started at {status.since}; no controller has answered yet"
    )


def check(config: AgentConfig) -> Iterator[SelfcheckLine]:
    """Run every step. A failing controller is only a warning while another one leads, because the agent works."""
    yield token(config)
    found = {url: tuple(controller(url, config)) for url in config.controllers}
    serves = any(
        all(line.level is not SelfcheckLevel.FAILED for line in lines) and _leads(lines) for lines in found.values()
    )
    for lines in found.values():
        for line in lines:
            spared = serves and line.level is SelfcheckLevel.FAILED
            yield SelfcheckLine(SelfcheckLevel.WARNING, line.step, line.text) if spared else line
    if not serves and not any(line.level is SelfcheckLevel.FAILED for lines in found.values() for line in lines):
        yield SelfcheckLine(
            SelfcheckLevel.FAILED,
            SendFailureKind.CONTROLLER,
            "none of `controllers` answers as leader: holdfast doctor on the head node",
        )
    yield state_dir(config.state_dir)
    yield running(config.run_dir)


def settings(path: Path) -> SelfcheckLine:
    """Check that no other user may change agent.toml: it says what root runs on this node, and to whom the token is sent."""
    for place in (path, path.parent):
        if others := others_may_write(place):
            text = f"{place} may be written to by {others}: chown root {place} && chmod go-w {place}"
            return SelfcheckLine(SelfcheckLevel.WARNING, "settings", text)
    return SelfcheckLine(SelfcheckLevel.OK, "settings", str(path))


def state_dir(folder: Path) -> SelfcheckLine:
    """Check that no other user may write to the agent's folder: the agent is root and would follow their links."""
    if others := others_may_write(folder):
        return SelfcheckLine(
            SelfcheckLevel.WARNING, "state_dir", f"{folder} may be written to by {others}: {OWN_FOLDER}"
        )
    return SelfcheckLine(SelfcheckLevel.OK, "state_dir", str(folder))


def _leads(lines: tuple[SelfcheckLine, ...]) -> bool:
    return not any(line.step == SendFailureKind.CONTROLLER for line in lines)
