"""Parsing of folder names by the words of :mod:`words`: whether it belongs to the training's own saves, and to which. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from holdfast_checkpoint.layouts import words
from holdfast_checkpoint.layouts.names import CKPT, FileName, Says, product_folder, read_name, words_in
from holdfast_checkpoint.layouts.steps import numbers_in

_NUMBER = re.compile(r"\d+")
_SHARDS = frozenset({"rank", "shard"})
_SAY_NOTHING = words.STATES | words.PARTS | words.STRONG | words.NEUTRAL | _SHARDS


@dataclass(frozen=True)
class FolderName(FileName):
    """A parsed folder name. A folder may have any name; where no step is known, all its numbers together identify the save."""

    @property
    def aside(self) -> bool:
        return super().aside if self.words & words.KEPT_BESIDE else product_folder(self.name)

    @property
    def part(self) -> bool:
        """Whether its name is that of an optimizer or another part of a save, and not of a model."""
        return bool(self.words & words.PARTS) and not self.words & words.STATES

    @property
    def bare(self) -> bool:
        """Whether none of its words is specific to a training."""
        return self.words <= _SAY_NOTHING

    @property
    def never(self) -> bool:
        """Whether it is no checkpoint, whatever it holds: the training's starting point, or best or average weights without a step."""
        return self.origin or (self.aside and not self.numbers.order and not self.words & words.ROLLING)

    @property
    def save(self) -> str:
        numbers = self.numbers.order or tuple(_NUMBER.findall(self.name))
        if self.kept or self.suffix == CKPT or not (numbers or self.words & (words.STATES | words.PARTS)):
            return self.name
        return " ".join((*map(str, numbers), *sorted(self.words - _SAY_NOTHING)))

    @property
    def rolling(self) -> bool:
        return _NUMBER.search(self.name) is None


@lru_cache(maxsize=4096)
def read_folder(name: str) -> FolderName:
    """Parse the name, without reading the folder."""
    found = frozenset(words_in(name))
    kept = bool(found & words.KEPT)
    return FolderName(name, Says.SAVE, read_name(name).suffix, found, numbers_in(name), kept=kept)
