"""The order that reads why a job died: the last lines of what it wrote, with its user's rights, in a child with a deadline.

What goes to the controller are the lines that name a cause (:mod:`holdfast.model.output_signs`), not the output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.agent.orders import Done, Handler, Order
from holdfast.agent.statements import Malformed, absolute_path
from holdfast.agent.verbs import job_id_of, number
from holdfast.model.errors import Rejected
from holdfast.model.output_path import OutputOf, filled_in
from holdfast.model.output_signs import signs_of

_DEADLINE_S, _DEADLINE_MAX_S = 5.0, 30.0


def read_output(host: str) -> Handler:
    """``host``: this machine's host name. ok: it was read. ``detail``: ``clues``, a list of ``sign``, ``line`` and ``node``; ``path``."""

    def verb(order: Order) -> Done:
        job_id, uid = job_id_of(order.args), order.args.get("uid")
        if isinstance(uid, bool) or not isinstance(uid, int) or uid < 0:
            raise Rejected("argument uid (the job's owner) is needed")
        path = path_of(order.args, host)
        deadline_s = number(order.args, "deadline_s", _DEADLINE_S, _DEADLINE_MAX_S)
        # Not imported at the start: the agent loads little.
        from holdfast_checkpoint.as_user import identity_of, tail_as  # noqa: PLC0415
        from holdfast_checkpoint.confined import Limits  # noqa: PLC0415
        from holdfast_checkpoint.model import CheckpointError  # noqa: PLC0415

        try:
            end = tail_as(path, identity_of(uid), from_byte=_from_byte(order), limits=Limits(deadline_s=deadline_s))
        except (CheckpointError, OSError) as error:
            return Done(False, f"{path} cannot be read: {error}"[:300], {"path": path})
        clues = [{"sign": c.sign.value, "line": c.line, "node": c.node} for c in signs_of(end.text)]
        return Done(
            True,
            f"job {job_id}: {len(clues)} telling lines",
            {"path": path, "clues": clues, "size_bytes": end.size_bytes, "quiet_s": round(end.quiet_s, 1)},
        )

    return verb


def _from_byte(order: Order) -> int:
    """Where the run's own output begins, in a file that an earlier run has written to; 0: not known."""
    said = order.args.get("from_byte")
    return said if type(said) is int and said > 0 else 0


def path_of(args: Mapping[str, Any], host: str) -> str:
    """The file: some releases of Slurm show the path as it was given. Raises Rejected."""
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
