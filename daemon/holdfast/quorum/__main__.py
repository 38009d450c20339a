"""``python -m holdfast.quorum --store URL``: the quorum service, until SIGTERM.

On an installed head node ``python -m holdfast.head quorum`` starts it with what ``controller.toml`` says."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import logging
import os
import pwd
import signal
import socket
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from holdfast import logs
from holdfast.descriptors import NotAccepted, raise_limit
from holdfast.model.errors import ConfigError, HoldfastError, Unavailable
from holdfast.systemd import WatchdogPulse, sd_notify

if TYPE_CHECKING:
    from holdfast.quorum.control import ControlSocket
    from holdfast.quorum.state import QuorumStore

STORE_VARIABLE = "HOLDFAST_QUORUM_STORE"
"""Environment variable with the database's URL: it may hold a password, and every user can read a command line."""
_BEAT_S = 1.0
_END_WITHIN_S = 5.0
"""Longest time from SIGTERM to exit, even if the database does not answer. An abrupt exit loses nothing (nor does power loss)."""


def main(argv: list[str] | None = None) -> int:
    """Run the service. Exit status 0: stopped by a signal; 1: could not start (one line on stderr); 2: the configuration is invalid."""
    options = _parser().parse_args(argv)
    if options.refused:
        return _fail(options.refused, 2)
    if not options.store:
        return _fail(f"give --store URL, or set {STORE_VARIABLE}")
    logs.set_up(options.log_format, options.log_level)
    try:
        if options.export:
            _export(options.store)
        else:
            asyncio.run(_serve(options))
    except ModuleNotFoundError as error:
        return _fail(
            f"{error.name} is missing here: install the controller's part, which brings the quorum service (docs/install.md)"
        )
    except ConfigError as error:
        return _fail(str(error), 2)
    except (HoldfastError, OSError) as error:
        return _fail(str(error))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m holdfast.quorum", description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument(
        "--store",
        default=os.environ.get(STORE_VARIABLE),
        help=f"its own database, sqlite:////PATH or postgresql://USER@HOST/NAME (default: ${STORE_VARIABLE})",
    )
    parser.add_argument(
        "--key", type=Path, default=Path("/var/lib/holdfast-quorum/quorum.key"), help="created if missing"
    )
    parser.add_argument(
        "--socket", type=Path, default=Path("/run/holdfast-quorum/quorum.sock"), help="Unix socket for the controller"
    )
    parser.add_argument("--adopt", type=Path, help="rendezvous of an earlier release; taken where the database is new")
    parser.add_argument(
        "--export", action="store_true", help="print the database's rendezvous for --adopt of another one, and end"
    )
    parser.add_argument("--refused", help="why the configuration is invalid: report it and exit with status 2")
    parser.add_argument("--bind", default="127.0.0.1", help="address that rendezvous listen on (default %(default)s)")
    parser.add_argument(
        "--advertise", help="name or address that jobs connect to (default: that of --bind, else the host name)"
    )
    parser.add_argument(
        "--user", type=_uid, action="append", default=[], help="name or uid of a further user who may use the socket"
    )
    parser.add_argument("--keep-days", type=int, default=400, help="the record is kept this long (default %(default)s)")
    parser.add_argument("--log-format", default="text", choices=logs.FORMATS)
    parser.add_argument("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    return parser


def _uid(text: str) -> int:
    try:
        return int(text) if text.isdecimal() else pwd.getpwnam(text).pw_uid
    except KeyError:
        raise argparse.ArgumentTypeError(f"there is no user {text}") from None


async def _serve(options: argparse.Namespace) -> None:
    # Imported late, so that a missing extra is reported in one line.
    from holdfast.quorum.control import ControlSocket  # noqa: PLC0415
    from holdfast.quorum.service import Service, read_key  # noqa: PLC0415
    from holdfast.quorum.state import QuorumStore  # noqa: PLC0415
    from holdfast.quorum.upkeep import keep_pruning  # noqa: PLC0415

    everywhere = options.bind in ("0.0.0.0", "::")  # noqa: S104  # compared, not bound
    advertise = options.advertise or (socket.gethostname() if everywhere else options.bind)
    raise_limit()
    asyncio.get_running_loop().set_exception_handler(NotAccepted())
    key = read_key(options.key)
    with _alone(options.key):
        state = QuorumStore(options.store)
        if options.adopt is not None:
            _adopt(state, options.adopt)
        service = Service(state, key, bind=options.bind, advertise=advertise)
        control = ControlSocket(service, options.socket, frozenset(options.user))
        told = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, partial(_end_soon, told))
        tasks: list[asyncio.Task[None]] = []
        try:
            await service.start()
            await control.start()
            tasks = [asyncio.create_task(_beat(control)), asyncio.create_task(keep_pruning(state, options.keep_days))]
            await told.wait()
        finally:
            sd_notify("STOPPING=1")
            for task in tasks:
                task.cancel()
            await control.stop()
            await service.stop()
            state.close()


def _export(store: str) -> None:
    from holdfast.quorum.state import moving  # noqa: PLC0415 - a missing extra is one line

    sys.stdout.write(json.dumps(moving(store)))


def _adopt(state: QuorumStore, path: Path) -> None:
    """Import the rendezvous of the controller's database. Without them, running elastic jobs get new ones when their groups restart."""
    try:
        number = state.adopt(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        logging.getLogger(__name__).error("event=rooms_not_adopted path=%s error=%r", path, str(error))
        return
    if number:
        logging.getLogger(__name__).info("event=rooms_adopted rooms=%d", number)


def _end_soon(told: asyncio.Event) -> None:
    told.set()
    last_call = threading.Timer(_END_WITHIN_S, os._exit, [0])
    last_call.daemon = True
    last_call.start()


async def _beat(control: ControlSocket) -> None:
    """Report readiness and liveness to systemd, which restarts the service when the loop is stuck."""
    pulse = WatchdogPulse()
    while True:
        pulse.beat()
        try:
            await control.stay()
        except OSError as error:
            logging.getLogger(__name__).warning("event=quorum_socket_failed error=%r", str(error))
        await asyncio.sleep(_BEAT_S)


def _alone(key: Path) -> BinaryIO:
    """Lock the key until the file is closed: two services with one key would answer in the same rendezvous. Raises Unavailable, OSError."""
    held = key.open("rb")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        held.close()
        raise Unavailable(f"another quorum service runs with {key}") from error
    return held


def _fail(line: str, status: int = 1) -> int:
    sys.stderr.write(f"holdfast quorum: {line}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
