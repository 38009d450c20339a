"""The shipped controller with the leader lock of release 0.1.0a1: under its bare name, with an empty lock file in the shared folder."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.config.controller import ControllerSettings
from holdfast.controller.lease_holder import Holder
from holdfast.controller.wakeup import Alone
from holdfast.head import controller_main, serving


def claim(lock: Alone, name: str) -> Holder:
    lock.write("")
    return Holder(name)


def lock(settings: ControllerSettings) -> Path:
    return settings.run.dir / "controller.lock"


if __name__ == "__main__":
    vars(serving).update(claim=claim, controller_lock=lock)
    sys.exit(controller_main.run(Path(sys.argv[1])))
