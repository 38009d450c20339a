"""Order to find out why a job died: reads the last lines of its output, with its user's rights, in a child with a deadline.

Only lines that name a cause (:mod:`holdfast.model.jobs.output_signs`) are sent to the controller, not the output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.agent.node.readers import READERS, ReaderPool
from holdfast.agent.orders.orders import OrderHandler, OrderResult, ReceivedOrder
from holdfast.agent.orders.verbs import job_id_of, number
from holdfast.agent.sending.statements import Malformed, absolute_path
from holdfast.model.errors import Rejected, Unavailable
from holdfast.model.jobs.output_path import OutputOf, filled_in
from holdfast.model.jobs.output_signs import signs_of

_DEADLINE_S, _DEADLINE_MAX_S = 5.0, 30.0
_MARGIN_S = 3.0
"""Additional time for the start of the reader and its answer."""
_ANSWER_BYTES_MAX = 1 << 20
"""64 KiB of text, each byte of which may be six in JSON."""
_READ = """
path, uid, within_s, from_byte = sys.argv[1:]
try:
    become_user(int(uid), float(within_s))
    answer = tail(os.path.abspath(path), from_byte=int(from_byte))._asdict()
except FileNotFoundError:
    answer = {"error": "there is no such file"}
except FAULTS as error:
    answer = {"error": printable(str(error))}
sys.stdout.write(json.dumps(answer))
"""


@dataclass(frozen=True, slots=True)
class OutputEnd:
    """The end of a file, as the reader reported it."""

    text: str
    """Whole lines."""
    size_bytes: int
    quiet_s: float
    """Time since the last write."""


def read_output(host: str, readers: ReaderPool = READERS) -> OrderHandler:
    """``host``: this machine's host name. ok: it was read. ``detail``: ``clues``, a list of ``sign``, ``line`` and ``node``; ``path``."""

    def verb(order: ReceivedOrder) -> OrderResult:
        job_id, uid = job_id_of(order.args), order.args.get("uid")
        if isinstance(uid, bool) or not isinstance(uid, int) or uid < 0:
            raise Rejected("argument uid (the job's owner) is needed")
        path = path_of(order.args, host)
        deadline_s = number(order.args, "deadline_s", _DEADLINE_S, _DEADLINE_MAX_S)
        try:
            args = (path, uid, deadline_s, _from_byte(order))
            end = parse(readers.run(uid, _READ, args, deadline_s + _MARGIN_S, max_bytes=_ANSWER_BYTES_MAX).out)
        except Unavailable as error:
            return OrderResult(False, f"{path} cannot be read: {error}"[:300], {"path": path})
        clues = [{"sign": c.sign.value, "line": c.line, "node": c.node} for c in signs_of(end.text)]
        return OrderResult(
            True,
            f"job {job_id}: {len(clues)} relevant lines",
            {"path": path, "clues": clues, "size_bytes": end.size_bytes, "quiet_s": round(end.quiet_s, 1)},
        )

    return verb


def parse(answer: bytes) -> OutputEnd:
    """Parse the reader's answer, which the user controls. Raises Unavailable: it reports an error, or is invalid."""
    try:
        raw = json.loads(answer)
    except (ValueError, RecursionError):
        raw = None
    if not isinstance(raw, dict):
        raise Unavailable("the reader gave no answer")
    text, size_bytes, quiet_s = raw.get("text"), raw.get("size_bytes"), raw.get("quiet_s")
    if isinstance(text, str) and type(size_bytes) is int and isinstance(quiet_s, int | float):
        return OutputEnd(text, size_bytes, float(quiet_s))
    raise Unavailable(str(raw.get("error") or "the reader gave no answer"))


def _from_byte(order: ReceivedOrder) -> int:
    """Start of the run's own output in a file that an earlier run has written to; 0: not known."""
    said = order.args.get("from_byte")
    return said if type(said) is int and said > 0 else 0


def path_of(args: Mapping[str, Any], host: str) -> str:
    """The file's absolute path: some releases of Slurm show the path as it was given. Raises Rejected."""
    array, task, restarts = (args.get(name) for name in ("array_job_id", "array_task_id", "restarts"))
    of = OutputOf(
        job_id_of(args),
        str(args.get("name", "")),
        str(args.get("user", "")),
        host,
        array if isinstance(array, int) else None,
        task if isinstance(task, int) else None,
        restarts if isinstance(restarts, int) else 0,
    )
    try:
        path = absolute_path(filled_in(str(args.get("path", "")), of))
    except Malformed as error:
        raise Rejected(f"argument path: {error}") from error
    if path is None:
        raise Rejected("argument path is needed")
    return path
