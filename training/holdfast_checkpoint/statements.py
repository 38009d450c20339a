"""Statements of a job to the agent of its node: one JSON object per line on a Unix stream socket. Only rejections are answered.

The agent gets the sender from the kernel (SO_PEERCRED: pid, uid) and not from the line. The library never waits for
the agent and never fails without one: a statement that cannot be sent at once is dropped. docs/checkpoints.md has the
table of fields.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from typing import NamedTuple, Union

from holdfast_checkpoint.base.runs import RunId

log = logging.getLogger(__name__)

VERSION = 1
SOCKET_ENV = "HOLDFAST_AGENT_SOCKET"
DEFAULT_SOCKET = "/run/holdfast/agent.sock"
LINE_BYTES_MAX = 8192
"""Longer lines are not sent, and an agent may close the connection on one."""
_RETRY_S = 5.0
_AGAIN_S = 0.6
"""slurmd may not know a job that has just started; the agent asks it twice a second."""
_QUESTION = b'{"v":1,"kind":"ask.standing"}\n'
"""A request that every release of the agent answers at once."""
_NOSIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
"""PyPy lacks this constant; Python itself ignores SIGPIPE."""
_PROGRESS_EVERY_S = 0.2

Value = Union[str, int, bool, list[int], None]
StatementFields = dict[str, Value]
_COMPONENT = re.compile(r"SLURM_JOB_ID_HET_GROUP_\d+")


def register(
    directory: str, run: RunId, *, layout: str = "auto", fenced: bool = False, save_signal: str | None = None
) -> StatementFields:
    """Register the job's checkpoint directory. ``fenced``: every writer uses this library, so a cut-off run can do no harm."""
    return _statement(
        "checkpoint.register",
        run,
        dir=os.path.abspath(directory),
        layout=layout,
        fenced=fenced,
        save_signal=save_signal,
    )


def takes_signal(save_signal: str, run: RunId) -> StatementFields:
    """The job's processes on this node also save on this signal. An agent sends only registered signals."""
    return _statement("checkpoint.signal", run, save_signal=save_signal)


def saved(step: int, path: str, size_bytes: int, run: RunId) -> StatementFields:
    """A checkpoint is complete and on the disk."""
    return _statement("checkpoint.saved", run, step=step, path=path, bytes=size_bytes)


def resumed(step: int, path: str | None, run: RunId) -> StatementFields:
    """The run continues from this step; path None: from zero."""
    return _statement("checkpoint.resumed", run, step=step, path=path)


def progress(step: int, run: RunId) -> StatementFields:
    """The run has finished this step."""
    return _statement("progress", run, step=step)


def encode(statement: Mapping[str, Value]) -> bytes:
    """Encode one line; empty when it would be too long to be accepted."""
    line = json.dumps(statement, separators=(",", ":")).encode() + b"\n"
    return line if len(line) <= LINE_BYTES_MAX else b""


def components(env: Mapping[str, str]) -> list[int]:
    """Job ids of the components of a heterogeneous job; empty for all other jobs.

    Slurm gives tasks of every component the leader's SLURM_JOB_ID, but keeps their processes under the component's own id."""
    return sorted(int(v) for name, v in env.items() if _COMPONENT.fullmatch(name) and v.isascii() and v.isdigit())


def _statement(kind: str, run: RunId, **fields: Value) -> StatementFields:
    het = components(os.environ)
    if het:
        fields["components"] = het
    return {
        "v": VERSION,
        "kind": kind,
        "job_id": _number(run.job_id),
        "restarts": run.restarts,
        "run": str(run),
        **fields,
    }


class Teller:
    """A connection to the agent that never blocks for more than a system call and never raises.

    It connects when there is something to send, tries again 5 s after a failure, and repeats the registration on each
    new connection, so that a restarted agent gets it again. A job that never reached an agent logs that once."""

    def __init__(self, path: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path or os.environ.get(SOCKET_ENV) or DEFAULT_SOCKET
        self._clock = clock
        self._socket: socket.socket | None = None
        self._owner_pid = 0
        self._retry_at = float("-inf")
        self._progress_at = float("-inf")
        self._registration = b""
        self._unsent = b""
        self._warns = "SLURM_JOB_ID" in os.environ

    def tell(self, statement: StatementFields) -> bool:
        """Send the statement; False when it was dropped."""
        line = encode(statement)
        if statement["kind"] == "checkpoint.register":
            self._registration = line
        elif statement["kind"] == "progress":
            if self._clock() < self._progress_at + _PROGRESS_EVERY_S:
                return False
            self._progress_at = self._clock()
        if not line:
            return False
        fresh = self._connect()
        if self._socket is None:
            return False
        greeting = self._registration if fresh and line != self._registration else b""
        return self._send(greeting + line)

    def close(self) -> None:
        """Close the connection; a later statement opens a new one."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._unsent = None, b""

    def _connect(self) -> bool:
        if self._socket is not None and self._owner_pid != os.getpid():
            self.close()  # inherited over fork: the kernel would report the parent as the sender
        if self._socket is not None or self._clock() < self._retry_at:
            return False
        fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            fresh.connect(self._path)
        except (OSError, ValueError) as error:
            fresh.close()
            self._warn(error)
            self._retry_at = self._clock() + _RETRY_S
            return False
        self._socket, self._owner_pid, self._unsent, self._warns = fresh, os.getpid(), b"", False
        return True

    def _warn(self, error: OSError | ValueError) -> None:
        """Log once if no agent was ever reached; an agent that went away later will come back."""
        if self._warns:
            log.warning("%s; training continues without it", unreached(self._path, error))
        self._warns = False

    def _send(self, data: bytes) -> bool:
        """Finish a line that was cut by a full buffer before the next one is sent."""
        if self._socket is None:
            return False
        try:
            if self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent, _NOSIGNAL) :]
            if self._unsent:
                return False
            sent = self._socket.send(data, _NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            self.close()
            self._retry_at = self._clock() + _RETRY_S
            return False
        self._unsent = data[sent:]
        return True


def unreached(path: str, error: OSError | ValueError) -> str:
    """Why no agent could be reached; one line."""
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return f"no Holdfast agent at {path} ({why}){mount_hint(path)}"


def mount_hint(path: str | None = None) -> str:
    """What to do where the socket's folder is missing, as it is in a container that does not mount it; else empty."""
    folder = os.path.dirname(path or os.environ.get(SOCKET_ENV) or DEFAULT_SOCKET)
    return "" if os.path.isdir(folder) else f"; in a container, mount {folder} at the same place"


class StatementResult(Enum):
    """Result of a statement that waited for the agent."""

    YES = "taken"
    NO_AGENT = "no agent"
    REFUSED = "refused"
    """The agent gave a reason."""
    CLOSED = "closed"
    """The agent closed the connection without an answer: it has no free slot, or it is stopping."""
    NO_ANSWER = "no answer"


class Receipt(NamedTuple):
    """Whether the agent accepted a statement, and its reason if not."""

    taken: StatementResult
    detail: str = ""
    again: bool = False
    """The same statement may be accepted later."""


def send_once(statement: StatementFields, path: str | None = None, timeout_s: float = 5.0) -> Receipt:
    """Send one statement and wait until the agent has accepted it, for command-line use.

    A statement has no answer, but a following request on the same connection has one: the agent reads lines in order and reports
    rejections at once, so an answer to the request without a rejection before it means that the statement was accepted."""
    line = encode(statement)
    if not line:
        return Receipt(StatementResult.REFUSED, f"the line is longer than {LINE_BYTES_MAX} bytes")
    where = path or os.environ.get(SOCKET_ENV) or DEFAULT_SOCKET
    deadline_s = time.monotonic() + timeout_s
    while True:
        receipt = _send_once(line, where, deadline_s)
        if not receipt.again or time.monotonic() + _AGAIN_S >= deadline_s:
            return receipt
        time.sleep(_AGAIN_S)


def _send_once(line: bytes, path: str, deadline_s: float) -> Receipt:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(max(0.01, deadline_s - time.monotonic()))
            connection.connect(path)
        except (OSError, ValueError) as error:
            return Receipt(StatementResult.NO_AGENT, unreached(path, error))
        with suppress(OSError):  # refused before the line was sent: the agent may have given a reason
            connection.sendall(line + _QUESTION)
        said = b""
        while b"\n" not in said and len(said) < LINE_BYTES_MAX:
            try:
                connection.settimeout(max(0.01, deadline_s - time.monotonic()))
                chunk = connection.recv(4096)
            except socket.timeout:
                return Receipt(StatementResult.NO_ANSWER)
            except OSError:
                chunk = b""
            if not chunk:
                return Receipt(StatementResult.CLOSED, again=True)
            said += chunk
    return _receipt(said)


def _receipt(said: bytes) -> Receipt:
    """Parse the first line of the answer."""
    try:
        answer = json.loads(said.split(b"\n")[0])
    except ValueError:
        return Receipt(StatementResult.NO_ANSWER)
    if not isinstance(answer, dict):
        return Receipt(StatementResult.NO_ANSWER)
    if "error" in answer:
        return Receipt(StatementResult.REFUSED, _printable(str(answer["error"])), again=answer.get("retry") is True)
    return Receipt(StatementResult.YES if answer.get("kind") == "standing" else StatementResult.NO_ANSWER)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:200])


def _number(job_id: str) -> int | str:
    """Slurm's job ids are numbers on the wire; ``local`` is sent unchanged, and the agent rejects it."""
    return int(job_id) if job_id.isdigit() else job_id
