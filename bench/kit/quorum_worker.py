"""One replica group of one rank on a stock torchft Manager and gloo: a line of JSON per committed step. Started as a script.

``quorum_worker.py REPLICA_ID [--step-s 0.05]`` with ``TORCHFT_LIGHTHOUSE`` set, exactly as a torchft job has it. SIGUSR1: finish the step,
leave the rendezvous, exit."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import ReduceOp, TCPStore  # type: ignore[attr-defined]
from torchft import Manager, ProcessGroupGloo
from torchft._torchft import LighthouseClient
from torchft.manager import REPLICA_ID_KEY

COLLECTIVE_S = 3.0
"""A death inside a collective is noticed by gloo alone, after this time."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("replica_id")
    parser.add_argument("--step-s", type=float, default=0.05)
    options = parser.parse_args()
    torch.set_num_threads(1)
    told: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _frame: told.append(number))
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    weights = torch.zeros(1000)

    def load(state: dict[str, Any]) -> None:
        weights.copy_(state["weights"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=COLLECTIVE_S)),
        load_state_dict=load,
        state_dict=lambda: {"weights": weights},
        min_replica_size=1,
        use_async_quorum=False,
        timeout=timedelta(seconds=COLLECTIVE_S),
        connect_timeout=timedelta(seconds=10),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        replica_id=options.replica_id,
    )
    while not told:
        step(manager, weights, options.step_s)
    leave(store)
    return 0


def step(manager: Manager, weights: torch.Tensor, step_s: float) -> None:
    manager.start_quorum()
    time.sleep(step_s)
    gradient = torch.ones_like(weights)
    manager.allreduce(gradient, reduce_op=ReduceOp.SUM).wait()
    if manager.should_commit():
        weights += gradient / max(1, manager.num_participants())
        line = {"at_s": time.time(), "step": manager.current_step(), "groups": manager.num_participants()}
        line["weight"] = float(weights[0])
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def leave(store: TCPStore) -> None:
    """torchft's protocol has no leave: the rendezvous takes a heartbeat whose name has a suffix as one."""
    name = store.get(REPLICA_ID_KEY).decode()
    LighthouseClient(os.environ["TORCHFT_LIGHTHOUSE"], timedelta(seconds=5)).heartbeat(f"{name}!leave")


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # its Manager's threads would be waited for
