"""Worker process for pyslurm, the only one that imports it: ``python -m holdfast.slurm.pyslurm_worker``.

One JSON object a line: ``{"verb": …, …}`` comes in on stdin, ``{"value": …}`` or ``{"error": words}`` goes out on what was
stdout. It ends when stdin does. Attributes go out as pyslurm has them; ``pyslurm_records`` converts them.

A separate process, because pyslurm 24.11 holds Python's global lock during each call (a slurmctld that is away for 10 s would stop
every thread of the controller), reads slurm.conf once at its import, and libslurm ends the process when that file is wrong."""

from __future__ import annotations

import importlib
import json
import os
import pwd
import sys
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

from holdfast.slurm.pyslurm_records import JOB_ATTRIBUTES, NODE_ATTRIBUTES


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libslurm's own output must not get between the answers
    serve(sys.stdin.buffer, answers, Verbs(importlib.import_module("pyslurm")))


def serve(requests: Iterable[bytes], answers: BinaryIO, verbs: Verbs) -> None:
    """Answer until the requests end. pyslurm's own errors are sent as text; any other error ends the process."""
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        call: Callable[..., Any] = getattr(verbs, request.pop("verb"))
        try:
            answer = {"value": call(**request)}
        except verbs.refusal as error:
            answer = {"error": str(error) or type(error).__name__}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


class Verbs:
    """Requests of the worker, implemented with pyslurm's classes."""

    def __init__(self, pyslurm: Any) -> None:
        self._pyslurm = pyslurm
        self.refusal: type[Exception] = pyslurm.PyslurmError

    def hello(self) -> str:
        """pyslurm's version."""
        return str(self._pyslurm.__version__)

    def nodes(self) -> list[dict[str, Any]]:
        return [self._node(node) for node in self._pyslurm.Nodes.load().values()]

    def node(self, name: str) -> dict[str, Any]:
        return self._node(self._pyslurm.Node.load(name))

    def jobs(self) -> list[dict[str, Any]]:
        return [self._job(job) for job in self._pyslurm.Jobs.load().values()]

    def job(self, job_id: int) -> dict[str, Any]:
        job = self._pyslurm.Job.load(job_id)
        if job.id != job_id:  # of an array or heterogeneous job pyslurm keeps the first record, whichever that is
            job = self._pyslurm.Jobs.load().get(job_id)
        if job is None:
            raise self._pyslurm.RPCError(msg="Invalid job id specified")
        return self._job(job)

    def update_node(self, name: str, **changes: Any) -> None:
        self._pyslurm.Node(name).modify(self._pyslurm.Node(**changes))

    def update_job(self, job_id: int, **changes: Any) -> None:
        self._pyslurm.Job(job_id).modify(self._pyslurm.JobSubmitDescription(**changes))

    def requeue(self, job_id: int, hold: bool) -> None:
        self._pyslurm.Job(job_id).requeue(hold=hold)

    @staticmethod
    def _node(node: Any) -> dict[str, Any]:
        found = {name: getattr(node, name) for name in NODE_ATTRIBUTES}
        try:
            found["reason_user"] = node.reason_user
        except KeyError:  # pyslurm's answer to a user who is gone
            found["reason_user"] = None
        return found

    @staticmethod
    def _job(job: Any) -> dict[str, Any]:
        found = {name: getattr(job, name) for name in JOB_ATTRIBUTES}
        try:
            found["user_name"] = pwd.getpwuid(job.user_id).pw_name
        except KeyError:
            found["user_name"] = str(job.user_id)
        found["layout"] = {node: held["gres"] for node, held in job.get_resource_layout_per_node().items()}
        return found


if __name__ == "__main__":
    main()
