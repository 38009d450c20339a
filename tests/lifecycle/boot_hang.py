"""A rank that reports some steps and then hangs, run in the booted machine by its own Python: standard library only."""

from __future__ import annotations

import json
import os
import socket
import time


def tell(step: int) -> None:
    said = {"v": 1, "kind": "progress", "job_id": int(os.environ["SLURM_JOB_ID"]), "step": step, "phase": "step"}
    with socket.socket(socket.AF_UNIX) as agent:
        agent.connect("/run/holdfast/agent.sock")
        agent.sendall(json.dumps(said).encode() + b"\n")
        agent.shutdown(socket.SHUT_WR)
        agent.recv(1)


def waits_for_others() -> None:
    time.sleep(600)


def reads_a_file() -> None:
    time.sleep(600)


if os.environ["SLURM_PROCID"] == "0":
    for step in range(1, 6):
        tell(step)
        time.sleep(1)
    waits_for_others()
reads_a_file()
