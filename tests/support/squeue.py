"""What squeue prints, for tests without a Slurm."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.slurm.squeue import FORMAT, SqueueRow

ROW = SqueueRow(
    job_id="11",
    array_id="11",
    task="N/A",
    het_id="N/A",
    uid="1001",
    user="alice",
    name="train",
    account="lab",
    wckey="(null)",
    alloc_node="head",
    partition="train",
    qos="normal",
    state="RUNNING",
    reason="None",
    restarts="2",
    requeue="1",
    batch="1",
    exit_code="0",
    num_nodes="3",
    nodes="n[1-3]",
    required="",
    priority="4294901759",
    reservation="r1",
    comment="lr=0.1 first try",
    admin_comment="told you so",  # word: a job's text
    submitted="1795189184",
    started="1795189185",
    ends="1826725185",
    eligible="1795189184",
    time_limit="1-02:03:04",
    work_dir="/home/alice/a dir",
    stdout="/home/alice/o ut.txt",
    stderr="/home/alice/e rr.txt",
    batch_host="n1",
    dependency="(null)",
)
"""Of the job whose record is ``tests/slurm/data/job_22.05.txt``."""


def row(job_id: int, **changed: str) -> SqueueRow:
    """A row like :data:`ROW`, with its own id."""
    return ROW._replace(**{"job_id": str(job_id), "array_id": str(job_id), **changed})


def printed(env: Mapping[str, str] | None, *rows: SqueueRow) -> str:
    """The answer to the format that this environment holds."""
    assert env is not None
    marks = [part.partition(":0")[2] for part in env[FORMAT].split(",")]
    return "".join("".join(map("".join, zip(one, marks, strict=True))) + "\n" for one in rows)
