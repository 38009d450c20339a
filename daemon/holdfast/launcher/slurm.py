"""Queries of a launcher to Slurm: whether the job is elastic, where there is no agent, and where a step's nodes are."""

from __future__ import annotations

import re
import subprocess

from holdfast.model.elastic_jobs.elastic import parse_comment
from holdfast.model.elastic_jobs.sizes import BadSizes

_SCONTROL_S = 10.0
_COMMENT = re.compile(r"^\s*Comment=(.*)$", re.MULTILINE)


def declares_elastic(job_id: int) -> bool | None:
    """Whether the job's comment declares an elastic job. None: Slurm cannot be asked from here, or does not answer."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "job", str(job_id)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SCONTROL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    shown = done.stdout.decode(errors="replace")
    return None if done.returncode or "JobId=" not in shown else comment_declares(shown)


def comment_declares(shown: str) -> bool:
    """The same, from the output of ``scontrol show job``. An invalid declaration still counts as one."""
    comment = _COMMENT.search(shown)
    try:
        return comment is not None and parse_comment(comment[1]) is not None
    except BadSizes:
        return True
