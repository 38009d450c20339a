"""``python -m holdfast.practice.aws``: the emulator as a process. Loopback only; ends on SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from holdfast import logs
from holdfast.practice.aws.world import Delays, EmulatorWorld

log = logging.getLogger("holdfast.practice.aws")
HOST = "127.0.0.1"


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    logs.set_up()
    from moto.moto_server.werkzeug_app import MotoRequestHandler  # noqa: PLC0415 - slow, after the options
    from werkzeug.serving import make_server  # noqa: PLC0415

    from holdfast.practice.aws.control import control  # noqa: PLC0415
    from holdfast.practice.aws.emulator import Emulator  # noqa: PLC0415

    world = EmulatorWorld(Delays(options.pending_s, options.initializing_s, options.shutting_down_s))
    app = Emulator(options.state, world, control)
    server = make_server(HOST, options.port, app, threaded=True, request_handler=MotoRequestHandler)
    _end_on_signal(server.shutdown)
    endpoint = f"http://{HOST}:{server.server_port}"
    if options.endpoint_file is not None:
        options.endpoint_file.write_text(endpoint + "\n", encoding="utf-8")
    log.info("event=aws_emulator_ready endpoint=%s state=%s", endpoint, options.state)
    server.serve_forever(poll_interval=0.1)
    server.server_close()
    return 0


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m holdfast.practice.aws", description=__doc__)
    default = Delays()
    parser.add_argument("--port", type=int, default=0, help="0: a free one (see --endpoint-file)")
    parser.add_argument("--state", type=Path, help="journal of mutating calls: instances outlive the process")
    parser.add_argument("--endpoint-file", type=Path, help="written with the URL once the emulator listens")
    parser.add_argument("--pending-s", type=float, default=default.pending_s)
    parser.add_argument("--initializing-s", type=float, default=default.initializing_s)
    parser.add_argument("--shutting-down-s", type=float, default=default.shutting_down_s)
    return parser.parse_args(argv)


def _end_on_signal(shutdown: Callable[[], None]) -> None:
    def end(signum: int, frame: FrameType | None) -> None:
        # shutdown() waits for the serving loop, which is this thread: ask from another one.
        threading.Thread(target=shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


if __name__ == "__main__":
    sys.exit(main())
