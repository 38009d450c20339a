"""The practice's data centre as a process: ``python -m holdfast.practice.cluster.data_centre FOLDER``."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from holdfast import logs
from holdfast.practice.cluster.backing import open_backing
from holdfast.practice.cluster.cluster import Practice
from holdfast.practice.cluster.hosting import Hosting


def main(folder: Path) -> int:
    """Watch the provider's machines until SIGTERM."""
    logs.set_up()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    practice = Practice.load(folder)
    open_backing(practice).watcher(Hosting(practice)).run(stop, 0.2)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
