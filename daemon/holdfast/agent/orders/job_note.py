"""Order to leave a note for a job's owner: a few lines in a file alongside the job's output, written with the owner's rights, in a child
with a deadline.

The agent forms the file's name itself, and takes only the folder from the output's path: no order names a file to write."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from holdfast.agent.node.readers import READERS, ReaderPool
from holdfast.agent.orders.orders import OrderHandler, OrderResult, ReceivedOrder
from holdfast.agent.orders.output import path_of
from holdfast.agent.orders.verbs import job_id_of, number
from holdfast.model.errors import Rejected, Unavailable
from holdfast.model.jobs.output_path import users_own

_DEADLINE_S, _DEADLINE_MAX_S = 5.0, 30.0
_MARGIN_S = 3.0
"""Additional time for the start of the child and its answer."""
_MOST_CHARS, _MOST_MARK = 2000, 200
_WRITE = """
uid, within_s, folder, name = sys.argv[1:]
from holdfast_checkpoint.owner_file import MOST_BYTES, add_once
mark, text = os.environ.pop("NOTE_MARK"), os.environ.pop("NOTE_TEXT")
try:
    become_user(int(uid), float(within_s), MOST_BYTES)
    answer = {"written": add_once(folder, name, mark, text)}
except FAULTS as error:
    answer = {"error": printable(str(error))}
sys.stdout.write(json.dumps(answer))
"""
"""The text is in the environment, as every user may read a process's arguments."""


def leave_job_note(host: str, readers: ReaderPool = READERS) -> OrderHandler:
    """``host``: this machine's host name. ok: the note is in the file. ``detail``: ``path``, and ``written`` (false: it was there)."""

    def verb(order: ReceivedOrder) -> OrderResult:
        uid, folder, name = _uid(order.args), _folder(order.args, host), _name(order.args)
        text, mark = _words(order.args, "text", _MOST_CHARS), _words(order.args, "mark", _MOST_MARK)
        if "\n" in mark or mark not in text:
            raise Rejected("argument mark must be a part of the text, in one line")
        deadline_s = number(order.args, "deadline_s", _DEADLINE_S, _DEADLINE_MAX_S)
        path, note = f"{folder.rstrip('/')}/{name}", {"NOTE_TEXT": f"{text}\n\n", "NOTE_MARK": mark}
        try:
            done = readers.run(uid, _WRITE, (uid, deadline_s, folder, name), deadline_s + _MARGIN_S, env=note)
            written = _written(done.out)
        except Unavailable as error:
            return OrderResult(False, f"{path} cannot be written: {error}"[:300], {"path": path})
        return OrderResult(True, "written" if written else "it was there", {"path": path, "written": written})

    return verb


def _uid(args: Mapping[str, Any]) -> int:
    uid = args.get("uid")
    if isinstance(uid, bool) or not isinstance(uid, int) or uid < 0:
        raise Rejected("argument uid (the job's owner) is needed")
    if uid == 0 and os.geteuid() == 0:
        raise Rejected("nothing is written as root: the job is root's")
    return uid


def _folder(args: Mapping[str, Any], host: str) -> str:
    path = path_of(args, host)
    folder = os.path.dirname(os.path.normpath(path))
    if not users_own(path):
        raise Rejected(f"the job's output goes to {folder}, which is no folder of its user's")
    return folder


def _name(args: Mapping[str, Any]) -> str:
    array, task = args.get("array_job_id"), args.get("array_task_id")
    if type(array) is int and type(task) is int and array > 0 <= task:
        return f"holdfast-{array}_{task}.txt"
    return f"holdfast-{job_id_of(args)}.txt"


def _words(args: Mapping[str, Any], name: str, most: int) -> str:
    """Text without control characters except the ends of lines. Raises Rejected."""
    text = args.get(name)
    if not isinstance(text, str) or not text.strip() or len(text) > most:
        raise Rejected(f"argument {name} must be a text of at most {most} characters")
    if not text.replace("\n", "").isprintable():
        raise Rejected(f"argument {name} holds control characters")
    return text


def _written(answer: bytes) -> bool:
    """Parse the child's answer, which the user controls. Raises Unavailable: nothing is in the file."""
    try:
        raw = json.loads(answer)
    except (ValueError, RecursionError):
        raw = None
    if not isinstance(raw, dict) or not isinstance(raw.get("written"), bool):
        raise Unavailable(str(raw.get("error") or "no answer") if isinstance(raw, dict) else "no answer")
    return bool(raw["written"])
