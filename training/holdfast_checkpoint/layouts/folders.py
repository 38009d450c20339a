"""What the name of a folder says, in the words of :mod:`words`: whether it is kept beside the training, and which save it is of. Pure."""

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
    """A folder's name, taken apart. A folder may be called anything; where no step is known all its numbers show which save it is of."""

    @property
    def aside(self) -> bool:
        return super().aside if self.words & words.KEPT_BESIDE else product_folder(self.name)

    @property
    def part(self) -> bool:
        """Whether it is called an optimizer, or another part of a save, and no model."""
        return bool(self.words & words.PARTS) and not self.words & words.STATES

    @property
    def bare(self) -> bool:
        """Whether no word of it is a training's own name."""
        return self.words <= _SAY_NOTHING

    @property
    def never(self) -> bool:
        """Whether it is no checkpoint, whatever it holds: what the training began with, or the best, an average, of no known step."""
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
    """What the name says, without a look into the folder."""
    found = frozenset(words_in(name))
    kept = bool(found & words.KEPT)
    return FolderName(name, Says.SAVE, read_name(name).suffix, found, numbers_in(name), kept=kept)
