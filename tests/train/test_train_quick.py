"""A group that has left exits at once, without skipping anything of the user's."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import atexit, sys
from holdfast_train.failure.quick import end_quickly

class Slow:
    def __del__(self):
        print("torn down", flush=True)

kept = Slow()
atexit.register(print, "first handler")
try:
    end_quickly(85)
    atexit.register(print, "second handler")
    raise SystemExit(85)
finally:
    sys.stderr.write("finally\\n")
"""


def test_handlers_and_finally_run_and_the_interpreter_is_not_torn_down() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (85, "second handler\nfirst handler\n", "finally\n")
