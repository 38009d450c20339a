"""Run both halves of ``./dev test`` at the same time: the tests on a real Slurm, which mostly wait, and all others.

``halves.py [PYTEST ARGUMENT …]``, in the folder with pytest's settings; the arguments go to both halves. Each has its log and
pytest's cache in ``.cache/tests``. The output of one is printed while it runs, then that of the other. The exit status is 0
where all passed, otherwise pytest's own, or 130 if interrupted. Why: docs/decisions/0033 and 0037.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

FOLDER = Path(".cache/tests")
MOST_AGAIN = 12
"""At most this many failed tests of a half run once more, alone; more of them fail the run at once. While both halves run, a few of those
that wait for a real Slurm come too late on two cores."""
STOP_WITHIN_S = 60
"""How long the halves may take to end their fixtures when they are interrupted; then they are killed."""
_POLL_S = 0.2
_FAILED, _NOTHING_SELECTED, _INTERRUPTED = 1, 5, 130


@dataclass(frozen=True, slots=True)
class Half:
    """A part of the tests, by their markers, and how it shares the machine with the other."""

    name: str
    markers: str
    workers: int
    nice: int
    """Slurm's own time limits are short, and its tests leave the processors to the others most of the time."""

    @property
    def log(self) -> Path:
        return FOLDER / f"{self.name}.txt"

    @property
    def cache(self) -> Path:
        """Pytest's cache of this half alone: two that run at once would overwrite each other's list of failed tests."""
        return FOLDER.absolute() / self.name

    @property
    def _last_failed(self) -> Path:
        return self.cache / "v/cache/lastfailed"

    def command(self, *arguments: str) -> list[str]:
        """This half's pytest with further arguments."""
        pytest = str(Path(sys.executable).with_name("pytest"))
        return [pytest, "-q", "-o", f"cache_dir={self.cache}", "-m", self.markers, *arguments]

    def failed(self) -> int:
        """How many tests failed when it ran last; 0: none, or not known."""
        if not self._last_failed.exists():
            return 0
        return len(json.loads(self._last_failed.read_text(encoding="utf-8")))

    def forget_failed(self) -> None:
        """Forget which tests failed in earlier runs."""
        self._last_failed.unlink(missing_ok=True)


HALVES = (
    Half("others", "not (slurm or soak)", workers=2, nice=10),
    Half("slurm", "slurm and not soak", workers=2, nice=0),
)
"""In the order in which their output is printed."""


class Run:
    """One pytest that writes to a log. It has its own process group, for signals, but stays in this session: where the kernel groups
    processes by session (``sched_autogroup``), niceness counts only within one."""

    def __init__(self, command: Sequence[str], log: Path, *, nice: int = 0) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["nice", "-n", str(nice), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def signal(self, number: int) -> None:
        """Send a signal to pytest and its workers, unless it has ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def show(self) -> int:
        """Print the output, as it comes, until pytest has ended; returns its exit status."""
        with self._log.open("rb") as log:
            while True:
                code = self._process.poll()  # before reading: what it wrote until then is printed
                shutil.copyfileobj(log, sys.stdout.buffer)
                sys.stdout.buffer.flush()
                if code is not None:
                    return code if code >= 0 else 128 - code
                time.sleep(_POLL_S)

    def wait(self) -> None:
        self._process.wait()


class Suite:
    """All that runs. A signal interrupts it once, and pytest then ends its fixtures; who sends more of them waits for that, too."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._runs: list[Run] = []
        self.interrupted = False

    def run(self) -> int:
        """Both halves, then those that failed once more; returns the exit status."""
        for half in HALVES:
            half.forget_failed()
        try:
            started = [self._start(half, "-n", str(half.workers), *self._arguments, nice=half.nice) for half in HALVES]
            codes = [run.show() for run in started]
            status = exit_status([self._settle(half, code) for half, code in zip(HALVES, codes, strict=True)])
            return _INTERRUPTED if self.interrupted else status
        finally:
            self.interrupt()  # after an error here; otherwise all have ended
            for run in self._runs:
                run.wait()

    def interrupt(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Interrupt every pytest. SIGINT whatever came: at SIGTERM pytest would leave its daemons behind."""
        if self.interrupted:
            return
        self.interrupted = True
        signal.alarm(STOP_WITHIN_S)
        for run in self._runs:
            run.signal(signal.SIGINT)

    def kill(self, _number: int, _frame: FrameType | None) -> None:
        for run in self._runs:
            run.signal(signal.SIGKILL)

    def _start(self, half: Half, *options: str, nice: int = 0) -> Run:
        run = Run(half.command(*options), half.log, nice=nice)
        self._runs.append(run)
        if self.interrupted:  # while it was started
            run.signal(signal.SIGINT)
        return run

    def _settle(self, half: Half, code: int) -> int:
        """The half's exit status, after a few that failed while others loaded the machine have run once more (docs/decisions/0033)."""
        failed = half.failed()
        if self.interrupted or code != _FAILED or not 0 < failed <= MOST_AGAIN:
            return code
        say(f"{failed} failed of {half.name}; once more, alone")
        only_them = ("--last-failed", "--last-failed-no-failures", "none", "-n", "0")
        code = self._start(half, *self._arguments, *only_them).show()
        if code == 0:
            say(f"UNSTABLE: {failed} failed at first and passed alone; their names are above, under FAILED")
        return _FAILED if code == _NOTHING_SELECTED else code  # none of them was found again


def exit_status(codes: Sequence[int]) -> int:
    """What the halves' exit statuses come to: that of one which failed. A half without a test fails nothing if the other had one."""
    of_tests = [code for code in codes if code != _NOTHING_SELECTED]
    return max(of_tests, default=_NOTHING_SELECTED)


def say(text: str) -> None:
    sys.stderr.write(f"dev: {text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    suite = Suite(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, suite.interrupt)
    signal.signal(signal.SIGALRM, suite.kill)
    return suite.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
