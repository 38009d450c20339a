"""The shipped controller, but for how it leads: as release 0.1.0a1, under its bare name and with an empty lock file."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.controller import main, serving
from holdfast.controller.lease_holder import Holder
from holdfast.controller.poke import Alone


def claim(lock: Alone, name: str) -> Holder:
    lock.write("")
    return Holder(name)


if __name__ == "__main__":
    vars(serving)["claim"] = claim
    sys.exit(main.run(Path(sys.argv[1])))
