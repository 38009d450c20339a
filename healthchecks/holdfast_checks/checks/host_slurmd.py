"""``host.slurmd``: is the node's slurmd alive?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.probes.procfs import processes
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, Threshold
from holdfast_checks.result import Remedy, Result, Severity, Verdict
from holdfast_checks.settings import Settings

CHECK_ID = "host.slurmd"
K, N = 2, 2
_NAME = "slurmd"
_FIRST_USER = 1000
"""UID_MIN of login.defs: below are root and the accounts of services."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The slurmd that was found."""

    pid: int | None
    """None: none runs."""
    why: str = ""
    """Why none was found."""


def gather(context: Context) -> Facts:
    """By the pid file where one is configured, else among the processes. Raises NotApplicable without /proc."""
    settings = context.settings
    if not settings.proc.is_dir():
        raise NotApplicable(f"there is no {settings.proc} here")
    if settings.slurmd_pid_file is not None:
        return _by_pid_file(settings.slurmd_pid_file, settings)
    for found in processes(settings.proc):
        process = settings.proc / str(found.pid)
        if found.name == _NAME and _is_slurmd(process, settings.slurmd_node) and _may_be_slurmd(process):
            return Facts(found.pid)
    return Facts(None, "no slurmd among the processes")


def _by_pid_file(path: Path, settings: Settings) -> Facts:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return Facts(None, f"{path} is not there")
    if not text.isdigit():
        return Facts(None, f"{path} holds no process id")
    if not _is_slurmd(settings.proc / text, settings.slurmd_node):
        return Facts(None, f"process {text} of {path} is no slurmd of this node")
    return Facts(int(text))


def _is_slurmd(process: Path, node: str) -> bool:
    """A living process named slurmd and, where it was started for a named node, for this one."""
    try:
        stat = (process / "stat").read_text(encoding="utf-8", errors="replace")
        words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    name, state = stat[stat.find("(") + 1 : stat.rfind(")")], stat[stat.rfind(")") + 1 :].split()[0]
    if name != _NAME or state in "ZX":
        return False
    served = _node_of(words)
    return not node or not served or served == node


def _may_be_slurmd(process: Path) -> bool:
    """Whether root, a system account or the agent's own user runs it: anybody may call a program slurmd.

    A pid file is root's own word, so this is asked only of those that were found by name."""
    try:
        uid = process.stat().st_uid
    except FileNotFoundError:
        return False
    return uid < _FIRST_USER or uid == os.geteuid()


def _node_of(words: list[str]) -> str:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "-N":
            return following
        if word.startswith("-N"):
            return word[2:]
    return ""


def judge(facts: Facts) -> tuple[Result, ...]:
    """Jobs that run go on without slurmd; new ones cannot start, and none can end well."""
    if facts.pid is not None:
        return (Result(CHECK_ID, Verdict.OK, summary=f"slurmd runs as {facts.pid}", sticky=True),)
    return (
        Result(
            CHECK_ID,
            Verdict.DEGRADED,
            code="down",
            severity=Severity.DEGRADED,
            remedy=Remedy.REBOOT,
            summary=f"slurmd does not run: {facts.why}",
            sticky=True,
        ),
    )


CHECK = Check(
    id=CHECK_ID,
    title="slurmd runs",
    needs=frozenset({Need.HOST}),
    interval_s=30,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    observe=False,
    thresholds=(
        Threshold("samples without slurmd", K, "samples", "a restart of the service takes less than one interval"),
    ),
    hysteresis=(K, N),
)
