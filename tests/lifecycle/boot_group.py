"""A group of an elastic job, run in the booted machine below ``holdfast run``: it meets the others in its rendezvous, step by step.

``boot_group.py FOLDER``: one JSON line per step in ``FOLDER/GROUP.jsonl``. It does on the wire what torchft's Manager does."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import grpc

from holdfast.quorum import messages
from holdfast.quorum.identity import replica_name

STEP_S = 0.1


def main(folder: Path) -> None:
    env = os.environ
    group, start = env["HOLDFAST_GROUP"], env["HOLDFAST_INCARNATION"]
    name = f"{replica_name(env['HOLDFAST_QUORUM_TOKEN'], group, start)}:{os.getpid()}"
    channel = grpc.insecure_channel(env["HOLDFAST_QUORUM"].removeprefix("http://"))
    threading.Thread(target=beat, args=(channel, name), daemon=True).start()
    meet: Any = channel.unary_unary(f"/{messages.SERVICE}/Quorum")
    step = 0
    with (folder / f"{group}.jsonl").open("a", buffering=1) as out:
        while True:
            request = messages.QuorumRequest()
            request.requester.replica_id, request.requester.step = name, step
            try:
                raw = meet(request.SerializeToString(), timeout=600)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.PERMISSION_DENIED:
                    sys.exit(str(error.details()))
                time.sleep(STEP_S)
                continue
            there = messages.QuorumResponse.FromString(raw).quorum.participants
            step = max([step, *(p.step for p in there)]) + 1
            out.write(json.dumps({"step": step, "groups": len(there)}) + "\n")
            time.sleep(STEP_S)


def beat(channel: grpc.Channel, name: str) -> None:
    tell: Any = channel.unary_unary(f"/{messages.SERVICE}/Heartbeat")
    while True:
        with contextlib.suppress(grpc.RpcError):
            tell(messages.HeartbeatRequest(replica_id=name).SerializeToString(), timeout=5)
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
