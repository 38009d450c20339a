"""The order that reads why a job died: the last lines of what it wrote, with its user's rights, in a child with a deadline.

What goes to the controller are the lines that name a cause (:mod:`holdfast.model.output_signs`), not the output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.agent.orders import Done, Handler, Order
from holdfast.agent.statements import Malformed, absolute_path
from holdfast.agent.verbs import job_id_of, number
from holdfast.model.errors import Rejected
from holdfast.model.output_signs import signs_of

_DEADLINE_S, _DEADLINE_MAX_S = 5.0, 30.0
_PATTERN = re.compile(r"%(?P<width>\d{0,2})(?P<letter>[%AaJjNnstux])")
_FIRST = {"n": "0", "s": "batch", "t": "0"}


def read_output(node: str) -> Handler:
    """ok: it was read. ``detail``: ``clues``, a list of ``sign``, ``line`` and ``node``; ``path``."""

    def verb(order: Order) -> Done:
        job_id, uid = job_id_of(order.args), order.args.get("uid")
        if isinstance(uid, bool) or not isinstance(uid, int) or uid < 0:
            raise Rejected("argument uid (the job's owner) is needed")
        path = path_of(order.args, node)
        deadline_s = number(order.args, "deadline_s", _DEADLINE_S, _DEADLINE_MAX_S)
        # Not imported at the start: the agent loads little.
        from holdfast_checkpoint.as_user import identity_of, tail_as  # noqa: PLC0415
        from holdfast_checkpoint.confined import Limits  # noqa: PLC0415
        from holdfast_checkpoint.model import CheckpointError  # noqa: PLC0415

        try:
            text = tail_as(path, identity_of(uid), limits=Limits(deadline_s=deadline_s))
        except (CheckpointError, OSError) as error:
            return Done(False, f"{path} cannot be read: {error}"[:300], {"path": path})
        clues = [{"sign": c.sign.value, "line": c.line, "node": c.node} for c in signs_of(text)]
        return Done(True, f"job {job_id}: {len(clues)} telling lines", {"path": path, "clues": clues})

    return verb


def path_of(args: Mapping[str, Any], node: str) -> str:
    """The file, with Slurm's patterns filled in: some releases show them as they were given. Raises Rejected."""
    job = str(job_id_of(args))
    array, task = args.get("array_job_id"), args.get("array_task_id")
    known = {
        "j": job,
        "J": job,
        "A": str(array) if isinstance(array, int) else job,
        "a": str(task) if isinstance(task, int) else "4294967294",
        "N": node.partition(".")[0],
        "u": str(args.get("user", "")),
        "x": str(args.get("name", "")),
        "%": "%",
        **_FIRST,
    }

    def filled(found: re.Match[str]) -> str:
        value = known[found["letter"]]
        return value.zfill(int(found["width"])) if found["width"] and value.isdigit() else value

    try:
        path = absolute_path(_PATTERN.sub(filled, str(args.get("path", ""))))
    except Malformed as error:
        raise Rejected(f"argument path: {error}") from error
    if path is None:
        raise Rejected("argument path is needed")
    return path
