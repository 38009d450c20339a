"""A group of an elastic job without the training: asks its node's agent for its rendezvous, then meets the others there step by step.

``room_worker.py FOLDER``: one JSON line per step (or refusal) in ``FOLDER/GROUP-START.jsonl``. It sends on the wire what torchft's Manager
sends, in a hundredth of the time to load it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import grpc

from holdfast.model.elastic_jobs.elastic import REQUEUE_EXIT
from holdfast.quorum import messages
from holdfast.quorum.identity import replica_name


def ask_room() -> dict[str, Any]:
    """Ask until the agent knows it. Exits with the agent's line where another attempt cannot succeed."""
    run = {"job_id": int(os.environ["SLURM_JOB_ID"]), "restarts": int(os.environ.get("SLURM_RESTART_COUNT", "0"))}
    while True:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(os.environ["HOLDFAST_AGENT_SOCKET"])
            connection.sendall(json.dumps({"v": 1, "kind": "ask.room", **run}).encode() + b"\n")
            told: dict[str, Any] = json.loads(connection.makefile().readline())
        if "error" not in told:
            return told
        print(told["error"], flush=True)  # noqa: T201
        if not told["retry"]:
            sys.exit(93)
        time.sleep(0.2)


def main(folder: Path) -> int:
    told = ask_room()
    name = replica_name(told["token"], str(told["group"]), told["start"]) + f":{os.getpid()}"
    channel = grpc.insecure_channel(told["url"].removeprefix("http://"))
    beat: Any = channel.unary_unary(f"/{messages.SERVICE}/Heartbeat")
    meet: Any = channel.unary_unary(f"/{messages.SERVICE}/Quorum")

    def beating() -> None:
        while True:
            with contextlib.suppress(grpc.RpcError):
                beat(messages.HeartbeatRequest(replica_id=name).SerializeToString(), timeout=5)
            time.sleep(0.2)

    threading.Thread(target=beating, daemon=True).start()
    step = 0
    with (folder / f"{told['group']}-{told['start']}.jsonl").open("a", buffering=1) as out:
        while True:
            request = messages.QuorumRequest()
            request.requester.replica_id, request.requester.step = name, step
            try:
                raw = meet(request.SerializeToString(), timeout=600)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.PERMISSION_DENIED:
                    out.write(json.dumps({"at_s": time.time(), "refused": error.details(), "pid": os.getpid()}) + "\n")
                    return REQUEUE_EXIT
                time.sleep(0.1)
                continue
            quorum = messages.QuorumResponse.FromString(raw).quorum
            step = max([step, *(p.step for p in quorum.participants)]) + 1
            line = {"at_s": time.time(), "step": step, "groups": len(quorum.participants), "pid": os.getpid()}
            out.write(json.dumps(line) + "\n")
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
