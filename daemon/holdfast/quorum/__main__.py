"""``python -m holdfast.quorum --store URL``: the quorum service, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import logging
import signal
import socket
import sys
from pathlib import Path
from typing import BinaryIO

from holdfast.model.errors import HoldfastError, Unavailable


def main(argv: list[str] | None = None) -> int:
    """0: stopped when told; 1: could not start, with one line on stderr."""
    options = _parser().parse_args(argv)
    logging.basicConfig(
        level=options.log_level, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr, force=True
    )
    try:
        asyncio.run(_serve(options))
    except ModuleNotFoundError as error:
        return _fail(f"{error.name} is missing: pip install 'holdfast[quorum]'")
    except (HoldfastError, OSError) as error:
        return _fail(str(error))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m holdfast.quorum", description=__doc__)
    parser.add_argument("--store", required=True, help="the controller's store.url")
    parser.add_argument(
        "--key", type=Path, default=Path("/var/lib/holdfast/quorum.key"), help="made when it is missing"
    )
    parser.add_argument(
        "--socket", type=Path, default=Path("/run/holdfast/quorum.sock"), help="where the controller speaks"
    )
    parser.add_argument("--bind", default="127.0.0.1", help="address that rooms listen on (default %(default)s)")
    parser.add_argument(
        "--advertise", help="name or address that jobs are told (default: that of --bind, else the host name)"
    )
    parser.add_argument("--user", type=int, action="append", default=[], help="uid that may speak on the socket too")
    parser.add_argument("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    return parser


async def _serve(options: argparse.Namespace) -> None:
    # Imported late, so that a missing extra is one line.
    from holdfast.quorum.control import Control  # noqa: PLC0415
    from holdfast.quorum.service import Service, read_key  # noqa: PLC0415
    from holdfast.quorum.state import State  # noqa: PLC0415

    everywhere = options.bind in ("0.0.0.0", "::")  # noqa: S104  # compared, not bound
    advertise = options.advertise or (socket.gethostname() if everywhere else options.bind)
    key = read_key(options.key)
    with _alone(options.key):
        state = State(options.store)
        service = Service(state, key, bind=options.bind, advertise=advertise)
        control = Control(service, options.socket, frozenset(options.user))
        told = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, told.set)
        try:
            await service.start()
            await control.start()
            await told.wait()
        finally:
            await control.stop()
            await service.stop()
            state.close()


def _alone(key: Path) -> BinaryIO:
    """Two services with one key would answer in the same rooms. Raises Unavailable, OSError; lasts until it is closed."""
    held = key.open("rb")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        held.close()
        raise Unavailable(f"another quorum service runs with {key}") from error
    return held


def _fail(line: str) -> int:
    sys.stderr.write(f"holdfast quorum: {line}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
