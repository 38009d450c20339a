"""Clues to a job's end in the last lines of its output. Pure; standard library only.

Texts of srun and slurmstepd, of CUDA, NCCL, Python and the kernel. The user of a job can write any of them: they only affect decisions on
that user's job, and are never evidence against a node on their own. No repeat in a pattern is unbounded unless it begins at a line's start:
a line of 64 KiB would hold up the whole agent for many seconds."""

from __future__ import annotations

import re

from holdfast.model.jobs.job_ends import Clue, Sign

_LINE_CHARS = 240
_PER_SIGN = 2
"""Lines that are kept of each sign: the first ones, since later ones mostly follow from them."""

_CRASH = "Segmentation fault|Bus error|Illegal instruction|Floating point exception"
_STEPD = r"slurmstepd(?:-\S{1,252})?: error:"
"""Built for several slurmds on one host, as Debian's and Ubuntu's packages are, it names its node."""
_NODE = r"(?P<node>[A-Za-z0-9][A-Za-z0-9._-]{0,251})"
_SOME, _TASKS = r".{0,400}", r"[^:]{0,400}"
_SIGNS: tuple[tuple[Sign, re.Pattern[str]], ...] = tuple(
    (sign, re.compile(words))
    for sign, words in (
        (Sign.NODE_FAILED, rf"srun: error: Node failure on {_NODE}"),
        (Sign.NODE_FAILED, rf"{_STEPD} \*\*\* \S{{1,64}} \S{{1,64}} ON {_NODE} CANCELLED AT \S{{1,64}} DUE TO NODE FAILURE"),
        (Sign.NODE_FAILED, r"srun: error: (?:Aborting, io error and missing step on node|Job terminated due to node fail)"),
        (Sign.TIME, rf"{_STEPD} \*\*\* {_SOME} DUE TO TIME LIMIT"),
        (Sign.STOPPED, rf"{_STEPD} \*\*\* (?:JOB|STEP) {_SOME} DUE TO (?:PREEMPTION|JOB REQUEUE)"),
        (Sign.MEMORY, rf"srun: error: {_NODE}: tasks? {_TASKS}: Out Of Memory"),
        (Sign.MEMORY, r"oom[_-]kill|[Oo]ut [Oo]f [Mm]emory|OutOfMemoryError|\bMemoryError\b|std::bad_alloc|Cannot allocate memory"),
        (Sign.DISK, r"No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]"),
        (Sign.GPU_LOST, r"uncorrectable ECC error|fallen off the bus|GPU is lost|no CUDA-capable device is detected"),
        (Sign.GPU_LOST, r"CUDA-capable device\(s\) is/are busy or unavailable|hardware stack error|CUDA_ERROR_ECC|contained error"),
        (Sign.ASSERT, r"device-side assert triggered"),
        (Sign.CUDA, r"CUDA error|CUDA_ERROR_|cudaError|CUDNN_STATUS_|CUBLAS_STATUS_|CUFFT_|cuDNN error"),
        (Sign.NCCL, r"NCCL error|ncclSystemError|ncclRemoteError|ncclInternalError|ncclUnhandledCudaError|NCCL WARN"),
        (Sign.NCCL, r"Watchdog caught collective operation timeout|NCCL communicator was aborted|DistBackendError"),
        (Sign.NCCL, rf"Connection (?:reset|closed) by (?:remote )?peer|Broken pipe|gloo{_SOME}(?:timed? ?out|closed)|No route to host"),
        (Sign.SIGNAL, rf"srun: error: {_NODE}: tasks? {_TASKS}: (?:Aborted|{_CRASH})"),
        (Sign.SIGNAL, rf"{_CRASH}|Aborted \(core dumped\)|Fatal Python error"),
        (Sign.TASK, rf"srun: error: {_NODE}: tasks? {_TASKS}: (?:Exited with exit code|Killed|Terminated)"),
        (Sign.EXCEPTION, r"^(?:\[rank\d+\]:\s*|\d+:\s*)?(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt)(?::|$)"),
        (Sign.EXCEPTION, rf": command not found$|: can't open file |(?:srun: error:|{_STEPD}) execve\(\)"),
    )
)  # fmt: skip
_EARLIER_RUN = re.compile(
    rf"^{_STEPD} \*\*\* JOB {_SOME} DUE TO (?:JOB REQUEUE|PREEMPTION|NODE FAILURE).*$(?=\n\s*\S)", re.MULTILINE
)
"""The end of a run that was queued again: what is above it in a file that is appended to is of that run."""
_NO_BUG = re.compile(
    r"Connection(?:Refused|Reset|Aborted)?Error|BrokenPipeError|TimeoutError|ChildFailedError|KeyboardInterrupt"
)
"""Exceptions that are no evidence about the program: the other end of a connection, or a consequence of another rank's end."""
_OUTSIDE = re.compile(r"\[Errno (?:5|107|108|110|116|121)\]|DataLoader worker .{0,100} killed by signal")
"""Errors of a file system or a device, and of what something else killed."""


def signs_of(text: str) -> tuple[Clue, ...]:
    """Lines with a clue, in their order. Left out are errors that a program can survive and after which it continued to write."""
    found: list[tuple[Clue, int]] = []
    ordinary = 0
    for line in _EARLIER_RUN.split(text)[-1].splitlines():
        clue = _clue(line.strip())
        if clue is not None:
            found.append((clue, ordinary))
        elif line.strip() and not _OF_AN_END.match(line):
            ordinary += 1
    kept: list[Clue] = []
    for clue, at in found:
        lived_on = (clue.sign in _SURVIVED or _OF_A_STEP.search(clue.line) is not None) and ordinary - at > _LIVED_ON
        if not lived_on and sum(each.sign is clue.sign for each in kept) < _PER_SIGN:
            kept.append(clue)
    return tuple(kept)


_SURVIVED = frozenset(
    {Sign.MEMORY, Sign.DISK, Sign.CUDA, Sign.NCCL, Sign.GPU_LOST, Sign.ASSERT, Sign.EXCEPTION, Sign.OTHER}
)
"""Errors that a program can catch: a batch that is halved, a cache that cannot be written."""
_OF_A_STEP = re.compile(r"\*\*\* STEP |srun: error: Node failure on ")
"""Ends of a step after which a script can continue: a step with its own limit, one that is restarted."""
_LIVED_ON = 10
"""After this many further ordinary lines the program survived the error."""
_OF_AN_END = re.compile(
    r"\s|Traceback|During handling|The above exception|\[rank\d+\]|srun: |slurmstepd|[WEIF]\d{4} |=+$|-+$|Failures:|Root Cause|<NO_OTHER"
    r"|Fatal Python error|Current thread|Thread 0x|Extension modules|\*\*\*|wandb: "
)
"""Beginnings of lines that tracebacks, launchers and crash reports consist of."""


def _clue(line: str) -> Clue | None:
    for sign, words in _SIGNS:
        match = words.search(line)
        if match is None:
            continue
        if sign is Sign.EXCEPTION and (_NO_BUG.search(line) or _OUTSIDE.search(line)):
            return Clue(Sign.OTHER, _shown(line))
        return Clue(sign, _shown(line), match.groupdict().get("node") or "")
    return None


def _shown(line: str) -> str:
    return "".join(char if char.isprintable() else " " for char in line)[:_LINE_CHARS]
