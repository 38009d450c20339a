"""``python -m holdfast_checks.active.run TEST``: one active test in this process, its report as one line of JSON on stdout.

For the checks ``active.*``, which start it as a child with a deadline; by hand it runs one test alone."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast_checks.active import compute, efa, tcp
from holdfast_checks.active.backend import Backend, BackendUnusable
from holdfast_checks.active.plain_backend import PlainBackend
from holdfast_checks.active.report import ActiveReport
from holdfast_checks.active.torch_backend import TorchBackend

DEVICES = ("cuda", "cpu", "plain")
_NICE = 10

_COMPUTING: dict[str, Callable[[Backend, argparse.Namespace], ActiveReport]] = {
    "memory": lambda backend, args: compute.memory(backend, args.seconds, args.fraction),
    "burn": lambda backend, args: compute.burn(backend, args.seconds),
    "copy": lambda backend, args: compute.copy(backend, args.seconds),
    "pair": lambda backend, args: compute.pair(backend, args.seconds),
}
TESTS = (*_COMPUTING, "tcp", "efa")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0, also when something is wrong with the machine: the report says so."""
    parser = argparse.ArgumentParser(prog="holdfast_checks.active.run", description="One active test.")
    parser.add_argument("test", choices=TESTS)
    parser.add_argument("--device", choices=DEVICES, default="cuda")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--fraction", type=float, default=0.9, help="of the free memory that the memory test fills")
    parser.add_argument("--sysfs", type=Path, default=Path("/sys"))
    args = parser.parse_args(argv)
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    sys.stdout.write(_report(args).dump() + "\n")
    return 0


def _report(args: argparse.Namespace) -> ActiveReport:
    if args.test == "tcp":
        return tcp.loopback(args.seconds)
    if args.test == "efa":
        return efa.loopback(args.sysfs, args.seconds)
    try:
        backend: Backend = PlainBackend() if args.device == "plain" else TorchBackend(args.device)
        return _COMPUTING[args.test](backend, args)
    except BackendUnusable as error:
        return ActiveReport(args.test, args.device, skipped=" ".join(str(error).split())[:200])


if __name__ == "__main__":
    sys.exit(main())
