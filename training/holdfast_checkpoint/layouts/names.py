"""Parsing of file names: whether a file may hold training state, and to which save it belongs. Pure.

Permissive on purpose. If a name is missed, a job starts from zero or from an old state although it has saved a newer one; if a name is
wrongly taken for state, a job is stopped until its owner has moved the file. So files that are clearly something else are known too:
logs and configurations, unfinished files, weights in addition to the training's own (``best``, ``ema``), starting points (:mod:`words`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache

from holdfast_checkpoint.layouts import words
from holdfast_checkpoint.layouts.steps import Numbers, numbers_in

CKPT = "ckpt"
_SUFFIX = re.compile(r"\.([A-Za-z][A-Za-z0-9]{0,11})$")
_TENSORFLOW = re.compile(r"(\S*(?:ckpt|checkpoint|model)\S*)\.(?:index|meta|data-\d{5}-of-\d{5})", re.IGNORECASE)
_KEPT = re.compile(rf"(.*)\.(?:\d{{1,3}}|{'|'.join(sorted(words.KEPT))})")
_BEING_WRITTEN = re.compile(r"(?:\.(?:tmp|temp|part|partial|incomplete)\S*|~)$", re.IGNORECASE)
_UNFINISHED = re.compile(
    r"(?:^|[^a-z])(?:tmp|temp(?![-_=.]?\d)|incomplete|unfinished|inprogress)(?:[^a-z]|$)|\.part(?:ial)?$|~$",
    re.IGNORECASE,
)
_HIDDEN_TENSORS = re.compile(rf"\.\S*\.(?:{'|'.join(sorted(words.TENSORS))})\.\S+")
"""``.ckpt_100.pt.Xy12``, as rsync names it."""
_RANK = re.compile(
    r"(?:^|[^a-z])(?:rank|shard|part|worker|proc|node|gpu|zero|slice|tp|pp|dp|mp)[-_=]?\d+|\d+[-_]?of[-_]?\d+",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_DIGITS = re.compile(r"\d+")
_BARE_NUMBER = re.compile(r"(?<![A-Za-z0-9.])\d+(?![A-Za-z0-9.])")
_NO_STATE = re.compile(r"\S*\.tfevents\.\S*|core(?:\.\d+)?|README|LICENSE|Makefile|Dockerfile", re.IGNORECASE)


class Says(Enum):
    """Kind of a file, by its name."""

    SAVE = "save"
    """A save: it states a step or an epoch, or is overwritten by each save (``last``, ``checkpoint``)."""
    STATE = "state"
    """Weights or other state; the name does not identify the save."""
    UNFINISHED = "unfinished"
    """Save or state while it is written."""
    NOTE = "note"
    """No training state: a log, a configuration, an image."""
    UNKNOWN = "unknown"
    """Unknown."""


@dataclass(frozen=True)
class FileName:
    """A parsed file name."""

    name: str
    says: Says
    suffix: str = ""
    """Suffix of the content, in lower case: ``pth`` of ``ckpt_100.pth.tar`` and of ``ckpt.pth.1``."""
    words: frozenset[str] = frozenset()
    numbers: Numbers = field(default_factory=Numbers)
    packed: bool = False
    kept: bool = False
    """A copy kept when the file was overwritten: ``ckpt.pt.1``, ``ckpt_old.pt``."""

    @property
    def archive(self) -> bool:
        """Whether ``torch.save`` writes files of this suffix."""
        return self.suffix in words.ARCHIVES and not self.packed

    @property
    def strong(self) -> bool:
        """Whether it has a checkpoint's name."""
        return bool(self.words & words.STRONG)

    @property
    def origin(self) -> bool:
        """Whether it is a training's starting point, or its data."""
        return bool(self.words & words.ORIGIN)

    @property
    def aside(self) -> bool:
        """Whether it is stored in addition to the training's own saves, and so never newer than these.

        A Lightning file that states a step holds all of the training's state, also the best one."""
        full = self.suffix == CKPT and self.numbers.step is not None
        beside = self.words & (words.DERIVED | words.ORIGIN) or (self.words & words.BEST and not full)
        return bool(beside) or _product(self.words)

    @property
    def part(self) -> bool:
        """Whether it is only a part of a save: an optimizer, the shard of one rank."""
        return bool(self.words & words.PARTS) or _RANK.search(self.name) is not None

    @property
    def save(self) -> str:
        """The same for all files of one save."""
        if self.kept or self.suffix == CKPT:
            return self.name
        if self.numbers.order:
            return " ".join(map(str, self.numbers.order))
        return " ".join(w for w in words_in(self.name) if w in words.ROLLING)

    @property
    def rolling(self) -> bool:
        """Whether it is overwritten by each save."""
        return not self.numbers.order

    @property
    def series(self) -> str:
        """The same for files of this kind in all saves; ranks differ."""
        ranks = [match.span() for match in _RANK.finditer(self.name)]
        name = _DIGITS.sub(lambda m: m[0] if any(a <= m.start() < b for a, b in ranks) else "#", self.name)
        return _WORD.sub(lambda m: "#" if m[0].lower() in words.ROLLING else m[0], name) if self.rolling else name


@lru_cache(maxsize=4096)
def read_name(name: str) -> FileName:
    """Parse the name, without reading the file."""
    stem, suffix, packed, kept = _peeled(name)
    numbers = Numbers() if stem.isdigit() else numbers_in(stem)
    found_words = frozenset(words_in(stem))
    found = FileName(name, Says.UNKNOWN, suffix, found_words, numbers, packed, kept or bool(found_words & words.KEPT))
    return replace(found, says=_says(found, stem))


def unfinished(name: str) -> bool:
    """Whether a file of this name is still being written."""
    return name.startswith(".") or _UNFINISHED.search(name) is not None


def product_folder(name: str) -> bool:
    """Whether a folder's name only shows that it holds products of a training: ``samples_step_100``."""
    found = frozenset(words_in(name))
    return _product(found) and not found & words.RUNS


def _says(file: FileName, stem: str) -> Says:
    if _NO_STATE.fullmatch(file.name) or (file.suffix in words.NOTES and not _text_state(file)):
        return Says.NOTE
    save = _names_save(file, stem)
    holds = file.suffix in words.TENSORS or file.strong
    holds = holds or (file.suffix in words.OTHERS and (save or bool(file.words & words.STATES)))
    if unfinished(file.name):
        return Says.UNFINISHED if holds or _HIDDEN_TENSORS.match(file.name) else Says.UNKNOWN
    if _product(file.words):
        return Says.STATE if file.suffix in words.TENSORS else Says.UNKNOWN
    if not holds:
        return Says.UNKNOWN
    return Says.SAVE if save else Says.STATE


def _names_save(file: FileName, stem: str) -> bool:
    """Whether it identifies the save; not if it has a number of unknown meaning: ``ckpt_-5``."""
    number = _BARE_NUMBER.search(_RANK.sub(" ", stem))
    return bool(file.numbers.order) or (bool(file.words & words.ROLLING) and number is None)


def _text_state(file: FileName) -> bool:
    """``checkpoint_100.json``, ``restart.0001.rst``: the state of a small job may be text, and a suffix may mean two things."""
    return file.suffix in ("json", "rst") and bool(file.words) and file.words <= words.STRONG


def _product(found: frozenset[str]) -> bool:
    return bool(found & words.NOISE) and found <= words.NOISE | words.NEUTRAL


def _peeled(name: str) -> tuple[str, str, bool, bool]:
    """(stem, suffix of the content, whether it is compressed, whether it is a kept copy)."""
    rest = _BEING_WRITTEN.sub("", name)
    tensorflow = _TENSORFLOW.fullmatch(rest)
    if tensorflow:
        return tensorflow[1], "index", True, False
    kept = _KEPT.fullmatch(rest)
    if kept and _suffix(kept[1]) in words.TENSORS | words.NOTES | words.OTHERS - {""}:
        rest = kept[1]
    else:
        kept = None
    outer = suffix = _suffix(rest)
    if outer in words.PACKED or (outer == "tar" and _suffix(rest[: -len(outer) - 1]) in words.TENSORS):
        rest = rest[: -len(outer) - 1]
        suffix = _suffix(rest)
    stem = rest[: -len(suffix) - 1] if suffix else rest
    return stem, suffix or outer, outer in words.PACKED, kept is not None


def _suffix(name: str) -> str:
    match = _SUFFIX.search(name)
    return match[1].lower() if match else ""


def words_in(stem: str) -> list[str]:
    """Its words, in lower case: ``refModel_2`` has two."""
    return [word.lower() for word in _WORD.findall(stem)]
