"""Which checkpoints are in a directory, which are complete, which one is the newest.

Only sizes, zip directories, JSON and our manifest are looked at; nothing is ever unpickled. This module reads with the
rights of its process: a daemon asks :mod:`holdfast_checkpoint.as_user` instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from itertools import islice

from holdfast_checkpoint import layouts
from holdfast_checkpoint.confined import Bad, Folder, Limits, OutOfTime, Walk, open_root, printable
from holdfast_checkpoint.fence import FOLDER as FENCES
from holdfast_checkpoint.fence import Fence, last_valid_step, read_fences
from holdfast_checkpoint.layouts import Entry
from holdfast_checkpoint.layouts.common import step_in
from holdfast_checkpoint.manifest import save_number
from holdfast_checkpoint.model import Checkpoint, Layout, Survey, Unreadable, Verdict

_DEFAULT = Limits()
_STRAY_DEPTH = 3
"""Lightning's own default is lightning_logs/version_0/checkpoints/."""
_STRAYS = 5


def survey(
    directory: str,
    *,
    digests: bool | None = None,
    any_owner: bool = False,
    limits: Limits = _DEFAULT,
    enough: int = 1,
    must_exist: bool = False,
) -> Survey:
    """Judges candidates from the newest on, until ``enough`` are complete; later ones are listed only in :func:`survey_all`.

    A directory that does not exist holds nothing; with ``must_exist`` it raises Unreadable (it may not be mounted here). ``any_owner``
    takes files of other users than this one and root. Raises Unreadable when nothing can be said."""
    if must_exist and not os.path.isdir(directory):
        raise Unreadable(f"{printable(directory)}: there is no such directory here")
    return _survey(directory, digests, Walk(limits, any_owner), enough)


def survey_all(
    directory: str, *, digests: bool | None = None, any_owner: bool = False, limits: Limits = _DEFAULT
) -> Survey:
    """Like :func:`survey`, but judges every candidate."""
    return _survey(directory, digests, Walk(limits, any_owner), limits.entries)


def latest(directory: str, *, any_owner: bool = False, limits: Limits = _DEFAULT) -> Checkpoint | None:
    """The newest complete checkpoint, None when there is none.

    Raises Unreadable when nothing can be said, also when candidates exist of which none is complete and one could not
    be read: starting from zero then would throw work away."""
    return must_know(survey(directory, any_owner=any_owner, limits=limits))


def must_know(found: Survey, *, ignore_unknown: bool = False) -> Checkpoint | None:
    """The latest of a survey; raises Unreadable rather than answer None on missing data.

    ``ignore_unknown``: strays do not count, for a directory that holds other weights too."""
    if found.latest is None and found.unreadable:
        first = found.unreadable[0]
        raise Unreadable(f"{first.path}: {first.reason}")
    if found.strays and not ignore_unknown:
        first_stray = os.path.join(found.directory, found.strays[0])
        raise Unreadable(
            f"no checkpoint directly in {found.directory}, but {first_stray} looks like one: name its folder, or move it"
        )
    return found.latest


def verify(path: str, *, any_owner: bool = False, limits: Limits = _DEFAULT) -> Checkpoint:
    """Judges one checkpoint, every digest included. Raises Unreadable, FileNotFoundError."""
    parent, name = os.path.split(os.path.abspath(path))
    walk = Walk(limits, any_owner)
    try:
        with open_root(parent, walk) as root:
            found = _candidates(root, parent, [name])
            if not found:
                if root.status(name) is None:
                    raise FileNotFoundError(f"no such checkpoint: {printable(path)}")
                return _bad(parent, name, Layout.HOLDFAST, Bad(Verdict.REFUSED, "no known checkpoint layout"))
            return _judge(root, found[0], read_fences(root)[0], digests=True)
    except Bad as error:
        raise Unreadable(f"{printable(parent)}: {error.reason}") from error


def _survey(directory: str, digests: bool | None, walk: Walk, enough: int) -> Survey:
    directory = os.path.abspath(directory)
    try:
        with open_root(directory, walk) as root:
            fences, warnings = read_fences(root)
            judged: list[Checkpoint] = []
            found = 0
            for candidate in rank(_candidates(root, directory, root.names())):
                if found < enough:
                    judged.append(_judge(root, candidate, fences, digests=digests))
                    found += judged[-1].complete
            return Survey(directory, tuple(judged), warnings, () if judged else tuple(islice(_strays(root), _STRAYS)))
    except FileNotFoundError:
        return Survey(directory)
    except Bad as error:
        raise Unreadable(f"{printable(directory)}: {error.reason}") from error


def _strays(root: Folder, above: str = "", depth: int = 0) -> Iterator[str]:
    """Paths of what looks like checkpoints in a directory that has no candidate, or below. What cannot be looked into is passed over."""
    for name in root.names():
        status = root.status(name) if name.isprintable() else None
        if status is None or layouts.is_special(status.st_mode) or name == FENCES:
            continue
        entry = Entry(root, name, status.st_mode)
        if (layouts.holds_weights(name) and not entry.is_folder) or (depth and _recognised(entry)):
            yield f"{above}{name}"
        elif entry.is_folder and depth < _STRAY_DEPTH:
            with suppress(Bad), root.folder(name) as folder:
                yield from _strays(folder, f"{above}{name}/", depth + 1)


def _recognised(entry: Entry) -> bool:
    try:
        return layouts.recognise(entry) is not None
    except Bad:
        return True


def rank(candidates: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Newest first: by step, then by the run's generation, the number of the save, and time of writing.

    Candidates without a known step (Lightning's ``last.ckpt``) go before the first that is not written later."""
    stepped = sorted((c for c in candidates if c.step is not None), key=_age_key, reverse=True)
    for loose in sorted((c for c in candidates if c.step is None), key=_mtime, reverse=False):
        at = next((i for i, c in enumerate(stepped) if _mtime(c) <= _mtime(loose)), len(stepped))
        stepped.insert(at, loose)
    return stepped


def _age_key(candidate: Checkpoint) -> tuple[int, tuple[int, int, int], int, float]:
    generation = candidate.run.generation if candidate.run else (0, 0, 0)
    return candidate.step or 0, generation, save_number(candidate.name), _mtime(candidate)


def _mtime(candidate: Checkpoint) -> float:
    return candidate.mtime.timestamp() if candidate.mtime else 0.0


def _candidates(root: Folder, directory: str, names: Sequence[str]) -> list[Checkpoint]:
    """Every entry that is, or is named as, a checkpoint; not judged yet (verdict TORN, no reason)."""
    found: list[Checkpoint] = []
    for name in names:
        try:
            candidate = _candidate(root, directory, name)
        except OutOfTime:
            raise
        except Bad as error:
            layout = layouts.named_layout(name)
            candidate = _bad(directory, name, layout, error) if layout else None
        if candidate is not None:
            found.append(candidate)
    return found


def _candidate(root: Folder, directory: str, name: str) -> Checkpoint | None:
    status = root.status(name)
    if status is None:
        return None
    entry = Entry(root, name, status.st_mode)
    layout = layouts.recognise(entry)
    if layout is None:
        named = layouts.named_layout(name)
        if named is None or not _strange(entry):
            return None
        layout = named
    own = layouts.parse_folder_name(name)
    return Checkpoint(
        name=name,
        path=os.path.join(directory, name),
        layout=layout,
        verdict=Verdict.TORN,
        step=own[0] if own else step_in(name),
        mtime=_utc(status.st_mtime),
        run=own[1] if own else None,
    )


def _strange(entry: Entry) -> bool:
    """A link, FIFO or device with a checkpoint's name is listed as refused; a plain file with one is just a file."""
    return layouts.is_special(entry.status_mode)


def _judge(root: Folder, candidate: Checkpoint, fences: Sequence[Fence], *, digests: bool | None) -> Checkpoint:
    if candidate.reason:
        return candidate
    try:
        status = root.status(candidate.name)
        entry = Entry(root, candidate.name, status.st_mode if status else 0)
        judged = layouts.judge(candidate.layout, entry, digests=digests)
    except Bad as error:
        return _bad(os.path.dirname(candidate.path), candidate.name, candidate.layout, error, candidate)
    limit = last_valid_step(fences, judged.run) if judged.run else None
    fenced = limit is not None and judged.step is not None and judged.step > limit
    return Checkpoint(
        name=candidate.name,
        path=candidate.path,
        layout=candidate.layout,
        verdict=Verdict.FENCED if fenced else Verdict.COMPLETE,
        reason=f"a newer run went on from step {limit}" if fenced else "",
        step=judged.step,
        size_bytes=judged.size_bytes,
        mtime=candidate.mtime,
        proof=judged.proof,
        run=judged.run,
    )


def _bad(directory: str, name: str, layout: Layout, error: Bad, known: Checkpoint | None = None) -> Checkpoint:
    shown = printable(name)
    return Checkpoint(
        name=shown,
        path=os.path.join(directory, shown),
        layout=layout,
        verdict=error.verdict,
        reason=printable(error.reason),
        step=known.step if known else step_in(name),
        mtime=known.mtime if known else None,
        run=known.run if known else None,
    )


def _utc(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return None
