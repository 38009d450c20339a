"""``host.mounts``: the jobs' file systems are mounted and answer.

A mount is asked by a child (``stat --file-system``, which goes to the server and not to a cache), so that a server that is away hangs the
child alone; one that cannot be killed is left, and no second one is started for that mount.

Users mount, too: by FUSE, with any type, and by the automounter, from any server. What a user mounted by FUSE is left out, with what it
covers; of a mount that is not configured the finding says that it may be a user's doing."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast_checks.manifest import manifest_of
from holdfast_checks.per_host import bad, good
from holdfast_checks.probes.child import CHILDREN, Finished, Hung
from holdfast_checks.probes.mounts import Mount, covered, read_mounts
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, NotGathered, Threshold
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.settings import HostSettings

CHECK_ID = "host.mounts"
K, N = 2, 3
DEADLINE_S = HostSettings().mount_deadline_s
MOST = 16
"""Mounts that are asked without being named: a login node may have hundreds of users' homes."""
_SMALL_FILE = ".holdfast-probe"
_WRITE = 'dd if=/dev/zero of="$1" bs=512 count=1 conv=excl,fsync oflag=nofollow && rm -f -- "$1"'


@dataclass(frozen=True, slots=True)
class MountPoint:
    """One mount point."""

    path: str
    wanted: bool
    """It must be there."""
    kind: str = ""
    """The type that is expected; empty: any."""
    mount: Mount | None = None
    answer: Finished | Hung | None = None
    """None: it was not asked, as it is not mounted."""
    written: Finished | Hung | None = None
    """None: the site does not want anything written there."""
    covered: bool = False
    """A user has mounted something over it."""


@dataclass(frozen=True, slots=True)
class HostMountsFacts:
    """Every place that was checked."""

    places: tuple[MountPoint, ...]


_asked_before: dict[Path, dict[str, int]] = {}
"""By procfs, places that were mounted at an earlier run, with the number of runs that still report one unmounted since then: an OK
counts only after it was repeated."""


def gather(context: Context) -> HostMountsFacts:
    """Those that the site names, those of the manifest, and the network file systems that are mounted.

    Raises NotApplicable where there is none, NotGathered or OSError without a mount table."""
    settings = context.settings.host
    mounts = read_mounts(settings.proc)
    table = {mount.path: mount for mount in mounts}
    if "/" not in table:
        raise NotGathered("the mount table has no root")
    manifest = manifest_of(context)
    named = {**(manifest.mounts if manifest is not None else {}), **settings.mounts}
    named.update({path: named.get(path, "") for path in settings.writable_mounts})
    paths = [*named, *_others(mounts, named)]
    gone = _unmounted(settings.proc, paths, table)
    if not paths and not gone:
        raise NotApplicable("no network file system is mounted, and no mount point is configured")
    places = [
        MountPoint(path, path in named, named.get(path, ""), table.get(path), covered=covered(path, mounts))
        for path in paths
    ]
    return HostMountsFacts((*_asked(places, settings), *(MountPoint(path, wanted=False) for path in gone)))


def _unmounted(proc: Path, paths: list[str], mounted: Mapping[str, Mount]) -> list[str]:
    """Places of earlier runs that are neither wanted nor mounted any more."""
    before = _asked_before.setdefault(proc, {})
    gone = sorted(path for path in before if path not in paths and path not in mounted)
    for path in gone:
        before[path] -= 1
        if not before[path]:
            del before[path]
    before.update({path: N for path in paths if path in mounted})
    return gone


def _others(mounts: tuple[Mount, ...], named: dict[str, str]) -> list[str]:
    """Network file systems that are not configured, each server's export once; none that a user mounted, or covers."""
    by_source: dict[str, str] = {}
    for mount in sorted(mounts, key=lambda each: len(each.path)):
        if mount.remote and mount.path not in named and not covered(mount.path, mounts):
            by_source.setdefault(mount.source, mount.path)
    return sorted(by_source.values())[:MOST]


def _asked(places: list[MountPoint], settings: HostSettings) -> list[MountPoint]:
    """All at once: many servers that are away take no longer than one."""
    answers: dict[str, MountPoint | OSError] = {}

    def ask(place: MountPoint) -> None:
        try:
            answers[place.path] = _ask(place, settings)
        except OSError as error:
            answers[place.path] = error

    threads = [threading.Thread(target=ask, args=(place,), daemon=True, name="mount") for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [answer for answer in answers.values() if isinstance(answer, OSError)]
    if failed:
        raise failed[0]  # the command itself could not be started: nothing is known of any mount
    return [answer for place in places if isinstance(answer := answers[place.path], MountPoint)]


def _ask(place: MountPoint, settings: HostSettings) -> MountPoint:
    if place.mount is None or place.covered:
        return place
    argv = [settings.stat, "--file-system", "--format=%T", "--", place.path]
    answer = CHILDREN.run(f"mount {_shown(place.path)}", argv, settings.mount_deadline_s, max_bytes=1024)
    written = None
    if place.path in settings.writable_mounts and isinstance(answer, Finished):
        # A name that no user can have taken, and no link is followed: users may write there, and this is root.
        file = f"{place.path.rstrip('/')}/{_SMALL_FILE}-{secrets.token_hex(8)}"
        argv = ["sh", "-c", _WRITE, "sh", file]
        written = CHILDREN.run(f"write {place.path}", argv, settings.mount_deadline_s, max_bytes=1024)
    return replace(place, answer=answer, written=written)


def judge(facts: HostMountsFacts) -> tuple[Result, ...]:
    """One result a place."""
    return tuple(map(_judge_one, facts.places))


def _judge_one(place: MountPoint) -> Result:
    if place.covered:
        return _finding(place, "covered", Remedy.HUMAN, "is hidden by a file system that a user mounted there or above")
    if place.mount is None:
        if not place.wanted:
            return good(CHECK_ID, "no longer mounted", _shown(place.path))
        return _finding(place, "missing", Remedy.REBOOT, "is not mounted")
    if place.kind and place.mount.kind != place.kind:
        return _finding(place, "type", Remedy.HUMAN, f"is {place.mount.kind} instead of {place.kind}")
    for answer in (place.answer, place.written):
        if isinstance(answer, Hung):
            return _finding(place, "hang", Remedy.REBOOT, f"has not answered for {answer.seconds:.0f} s")
    if isinstance(place.answer, Finished) and place.answer.status:
        return _finding(place, "error", Remedy.REBOOT, f"cannot be used: {place.answer.complaint}")
    if isinstance(place.written, Finished) and place.written.status:
        return _finding(place, "not_writable", Remedy.HUMAN, f"cannot be written: {place.written.complaint}")
    return good(CHECK_ID, f"{place.mount.kind} answers", _shown(place.path))


def _finding(place: MountPoint, code: str, remedy: Remedy, text: str) -> Result:
    """Nothing is repaired for a mount that is not configured: a user may have made it hang on purpose."""
    source, name = place.mount.source if place.mount is not None else "", _shown(place.path)
    does = remedy if place.wanted else Remedy.HUMAN
    return bad(CHECK_ID, code, Severity.DEGRADED, does, f"{name} {text}", name, source=source, named=place.wanted)


def _shown(path: str) -> str:
    """A name that any user may choose, in characters that can be sent and shown."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


CHECK = Check(
    id=CHECK_ID,
    title="File systems of jobs are mounted and answer",
    needs=frozenset({Need.HOST, Need.COMMAND}),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    place=lambda settings: f"{settings.host.mounts} {settings.host.writable_mounts}",
    hysteresis=(K, N),
    deadline_s=150.0,
    thresholds=(
        Threshold(
            "answer",
            DEADLINE_S,
            "s",
            "our choice, with 2 of 3 runs a minute apart; a busy server answers in under 1 s",
        ),
        Threshold("bad runs", K, f"of {N} runs", "one slow answer is a busy server"),
    ),
)
