"""``host.munge``: munged listens. Without it slurmd cannot authenticate to other daemons, nor they to it.

A socket file stays behind when munged dies, so the kernel's list of sockets is asked, which costs munged nothing and leaves no line in its
log. Whether it answers is :mod:`holdfast_checks.checks.host_credential`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.per_host import bad, good
from holdfast_checks.probes.procfs import text
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, NotGathered, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "host.munge"
K, N = 2, 2
_MUNGE = "auth/munge"
_AUTH_TYPE = re.compile(r"^\s*AuthType\s*=\s*([\w/]+)", re.MULTILINE | re.IGNORECASE)
_HEAD = "Num "
_LISTENS = 0x10000
"""__SO_ACCEPTCON of the kernel's include/linux/net.h: the flags of a socket that accepts connections."""


@dataclass(frozen=True, slots=True)
class HostMungeFacts:
    """Where munged should listen, and whether it does."""

    socket: str
    listens: bool


def gather(context: Context) -> HostMungeFacts:
    """Raises NotApplicable on a node without munge, NotGathered without the list of sockets."""
    settings = context.settings.host
    try:
        if not settings.munge_key.exists():
            raise NotApplicable(f"munge is not used here: there is no {settings.munge_key}")
    except PermissionError as error:
        raise NotGathered(f"only root can see {settings.munge_key}") from error
    if (auth := auth_type(settings.slurm_confs)) != _MUNGE:
        raise NotApplicable(f"munge is not used here: AuthType={auth}")
    table = text(settings.proc / "net/unix")
    if not table or not table.startswith(_HEAD):
        raise NotGathered(f"{settings.proc}/net/unix cannot be read")
    return HostMungeFacts(settings.munge_socket, settings.munge_socket in listening(table))


def auth_type(files: Iterable[Path]) -> str:
    """AuthType of the first slurm.conf that is there; Slurm's default where it says nothing."""
    for file in files:
        if found := text(file):
            matches = _AUTH_TYPE.findall(found)
            return matches[-1].lower() if matches else _MUNGE
    return _MUNGE


def listening(table: str) -> frozenset[str]:
    """Paths of the sockets of ``/proc/net/unix`` that accept connections."""
    found = set()
    for line in table.splitlines()[1:]:
        words = line.split(maxsplit=7)
        if len(words) == 8 and _is_hex(words[3]) and int(words[3], 16) & _LISTENS:
            found.add(words[7].removeprefix("/var") if words[7].startswith("/var/run/") else words[7])
    return frozenset(found)


def _is_hex(word: str) -> bool:
    return all(letter in "0123456789abcdefABCDEF" for letter in word)


def judge(facts: HostMungeFacts) -> tuple[Result, ...]:
    """Running steps continue; nothing new starts, and slurmctld will set the node DOWN."""
    if facts.listens:
        return (good(CHECK_ID, f"munged listens on {facts.socket}"),)
    summary = f"munged does not listen on {facts.socket}: slurmd cannot talk to slurmctld"
    return (bad(CHECK_ID, "down", Severity.DEGRADED, Remedy.REBOOT, summary),)


CHECK = Check(
    id=CHECK_ID,
    title="munged runs",
    needs=frozenset({Need.HOST}),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    place=lambda settings: settings.host.munge_socket,
    hysteresis=(K, N),
    thresholds=(
        Threshold("samples without munged", K, "samples", "a restart of the service takes less than one interval"),
    ),
)
