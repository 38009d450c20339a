"""Exit codes of runs: a status, a signal, or an error of Slurm that looks like one. Pure.

Slurm keeps the status of wait(2). If slurmstepd could not start the script, the number of its error is there instead (4021), and its low
bits are shown as a signal (``0:53``). Releases before 25.05 print the whole number, which distinguishes the two; of later ones 32 to 63 may
be either."""

from __future__ import annotations

from holdfast.model.jobs.job_ends import JobEnd

CANNOT_OPEN = 4021
"""ESLURMD_IO_ERROR: a file of the job's standard output, error or input cannot be opened (tried on 22.05)."""
KILL, TERM = 9, 15
CRASHES = frozenset({4, 6, 7, 8, 11})
"""Signals that end a program after an error in its code: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV."""
_OF_A_SHELL = CRASHES | {KILL, TERM}
_NAMES = (
    *("HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM", "STKFLT"),
    *("CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS"),
)  # fmt: skip
"""Linux's signals from 1 on."""
_SHELL = 128
"""A shell, and srun, end with this plus the number of the signal that ended their child."""
_FIRST_REAL_TIME, _LAST_REAL_TIME = 32, 64


def status_of(end: JobEnd) -> int:
    """The exit status; 0 as well where a signal ended it."""
    return _number(end.exit_code.partition(":")[0])


def signal_of(end: JobEnd) -> int:
    """The signal that ended it, or the command that its script ended with; 0: none, or a real-time signal, which ends a process only where
    someone sends it on purpose."""
    number, status = _second(end), status_of(end) - _SHELL
    if number:
        return number if number < _FIRST_REAL_TIME and not slurm_error_of(end) else 0
    return status if status in _OF_A_SHELL else 0


def real_time_signal_of(end: JobEnd) -> int:
    """The real-time signal that ended it, or may have (:func:`may_be_slurms`); 0: none."""
    number = _second(end)
    return number if _FIRST_REAL_TIME <= number <= _LAST_REAL_TIME and not slurm_error_of(end) else 0


def slurm_error_of(end: JobEnd) -> int:
    """The error with which Slurm failed to start the script; 0: there is none, or none is known."""
    if end.slurm_error is not None:
        return end.slurm_error
    return CANNOT_OPEN if _second(end) == CANNOT_OPEN & 0x7F else 0


def may_be_slurms(end: JobEnd) -> bool:
    """Whether its real-time signal may be an error of Slurm's own: the release does not show which."""
    return end.slurm_error is None


def name_of(number: int) -> str:
    """``SIGSEGV``."""
    return f"SIG{_NAMES[number - 1]}" if 0 < number <= len(_NAMES) else f"signal {number}"


def _second(end: JobEnd) -> int:
    return _number(end.exit_code.partition(":")[2])


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
