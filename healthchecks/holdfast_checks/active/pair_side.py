"""``python -m holdfast_checks.active.pair_side``: one side of a pair probe in this process.

Reads its orders as one JSON object on stdin (the secret must not be in the process table) and writes one line of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast_checks.active.backend import BackendUnusable
from holdfast_checks.active.pair_probe import NoPartner, ProbeFailed, pair_probe

DONE, FAILED, UNKNOWN = "done", "failed", "unknown"


def main(_argv: Sequence[str] | None = None) -> int:
    """Exit status 0, also when the probe failed: the output has the result."""
    with contextlib.suppress(OSError):
        os.nice(5)
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    sys.stdout.write(json.dumps(said(json.load(sys.stdin))) + "\n")
    sys.stdout.flush()
    return 0


def said(options: Mapping[str, Any]) -> dict[str, Any]:
    """The report of one side: ``said`` is done, failed (the path or the other side) or unknown (nothing is known of the path)."""
    try:
        result = pair_probe(
            options["role"],
            options["address"],
            options["port"],
            secret=options["secret"],
            transport=options["transport"],
            size_bytes=options["size_bytes"],
            rounds=options["rounds"],
            deadline_s=options["deadline_s"],
        )
    except (BackendUnusable, NoPartner) as error:
        return {"said": UNKNOWN, "text": _line(error)}
    except ProbeFailed as error:
        return {"said": FAILED, "text": _line(error)}
    return {
        "said": DONE,
        "wrong": result.wrong,
        "rounds": result.rounds,
        "gigabytes_s": round(result.bus_gigabytes_s, 4),
        "seconds": round(result.seconds, 4),
    }


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


if __name__ == "__main__":
    os._exit(main())  # PyTorch's threads must not spoil at its end what is said
