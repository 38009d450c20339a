"""Numbers in names of checkpoints: steps, epochs, and others of which only the order is known. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass

_COUNTED = (
    r"(?P<whole>\d{1,15})(?!\d)(?:(?P<fraction>\.\d{1,6})?(?:e(?P<power>\d{1,2})|(?P<unit>[kmb]))(?![a-z0-9]))?(?!\.\d)"
)
"""``1200``, ``500k``, ``1.5M``, ``9e4``; not ``0.25``, which is a loss."""
_STEP = re.compile(rf"(?:^|[^a-z])(?:global_?steps?|steps?|iters?|iterations?)[-_=. ]?{_COUNTED}", re.IGNORECASE)
_STEP_AFTER = re.compile(rf"(?:^|[^a-z0-9.]){_COUNTED}[-_ ]?(?:steps?|iters?|iterations?)(?![a-z])", re.IGNORECASE)
_CHECKPOINT = re.compile(
    rf"(?:^|[^a-z])(?:checkpoint|chkpt|ckpt)[-_=. ]?{_COUNTED}(?P<more>(?:[-_]\d{{1,15}}(?![\d.]*\d))*)", re.IGNORECASE
)
_EPOCH = re.compile(r"(?:^|[^a-z])(?:epochs?|ep)[-_=. ]?(\d{1,9})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,15}")
_UNITS = {"k": 3, "m": 6, "b": 9}
_STEP_MAX = 1 << 63


@dataclass(frozen=True)
class Numbers:
    """Meaning of the numbers in a name."""

    step: int | None = None
    """None where the name states none, or where it is unknown which number it is."""
    order: tuple[int, ...] = ()
    """Epoch and step as far as they are stated, or the numbers unchanged: later saves of one series have greater ones."""

    @property
    def within_epoch(self) -> bool:
        """Whether it states an epoch and a step, which may be counted from the epoch's start."""
        return self.step is not None and len(self.order) > 1


def numbers_in(name: str) -> Numbers:
    """``step-120``, ``epoch=3-step=1200.ckpt``, ``iter_0000100``, ``ckpt_120.pt``, ``step_1.5M.pt``, ``10000_steps``, ``120``.

    The number in Lightning's ``hpc_ckpt_3.ckpt`` counts its restarts by Slurm. Of the numbers in ``checkpoint_2_5000.pt`` only the order
    is known."""
    if name.startswith("hpc_ckpt"):
        return Numbers()
    epoch = _EPOCH.search(name)
    before = (int(epoch[1]),) if epoch else ()
    stated = _STEP.search(name) or _STEP_AFTER.search(name)
    if stated is None and (stated := _CHECKPOINT.search(name)) is not None and stated["more"]:
        return Numbers(None, before + tuple(int(n) for n in _NUMBER.findall(stated["whole"] + stated["more"])))
    step = _counted(stated) if stated else None
    if step is None and _NUMBER.fullmatch(name):
        step = int(name)
    return Numbers(step, before if step is None else (*before, step))


def step_in(name: str) -> int | None:
    """The step that a name states, None where it states none."""
    return numbers_in(name).step


def _counted(match: re.Match[str]) -> int | None:
    if match["power"] is None and match["unit"] is None:
        return int(match["whole"])
    fraction = (match["fraction"] or ".")[1:]
    power = int(match["power"]) if match["power"] else _UNITS[match["unit"].lower()]
    if power < len(fraction):
        return None
    step = int(match["whole"] + fraction) * 10 ** (power - len(fraction))
    return step if step < _STEP_MAX else None
