"""History of a link: how often it was lost, and for how long. Pure: each observation makes a new history.

Flapping clears automatically after a time without losses: gpud's stays until cleared by hand, and kept a Slurm node drained (gpud#1247)."""

from __future__ import annotations

from dataclasses import dataclass, replace

LONG_DOWN_S = 25.0
"""gpud: shorter losses are not counted as downs."""
FLAPS = 3
"""gpud: three downs and back; NVSentinel: more than two changes of the carrier."""
DROPPED_S = 240.0
"""gpud: down for more than four minutes is a drop."""
WINDOW_S = 6 * 3600.0
"""AzNHC and OCI look back six hours."""
_KEPT = 64


@dataclass(frozen=True, slots=True)
class LinkDown:
    """One loss of the link that was seen."""

    began_s: float
    ended_s: float | None = None
    """None: it is still down."""

    def seconds(self, now_s: float) -> float:
        return (now_s if self.ended_s is None else self.ended_s) - self.began_s


@dataclass(frozen=True, slots=True)
class LinkHistory:
    """Of one port or network device, since this process reads it. Times are CLOCK_MONOTONIC's."""

    seen_up: bool = False
    losses: int | None = None
    """The driver's count of losses at the last sample."""
    downs: tuple[LinkDown, ...] = ()
    counted: tuple[tuple[float, int], ...] = ()
    """(when, how many) losses by the driver's count: also those too short to be seen."""

    @property
    def down(self) -> bool:
        return bool(self.downs) and self.downs[-1].ended_s is None

    def quiet_since_s(self) -> float | None:
        """When the last trouble ended; None: there was none. A link that is down now is in trouble now."""
        ends = [down.ended_s for down in self.downs if down.ended_s is not None]
        return max([*ends, *(when_s for when_s, _count in self.counted)], default=None)


def observe(history: LinkHistory, up: bool | None, losses: int | None, now_s: float) -> LinkHistory:
    """With one more sample of the link. ``up`` None: could not be read, and changes nothing."""
    kept = replace(
        history,
        seen_up=history.seen_up or up is True,
        losses=history.losses if losses is None else losses,
        downs=tuple(one for one in history.downs if one.ended_s is None or now_s - one.ended_s < WINDOW_S)[-_KEPT:],
        counted=tuple(one for one in history.counted if now_s - one[0] < WINDOW_S)[-_KEPT:],
    )
    more = 0 if losses is None or history.losses is None else losses - history.losses
    if more > 0:  # fewer: the driver was loaded anew, and this is the baseline
        kept = replace(kept, counted=(*kept.counted, (now_s, more)))
    if up is False and history.seen_up and not history.down:
        return replace(kept, downs=(*kept.downs, LinkDown(now_s)))
    if up is True and history.down:
        return replace(kept, downs=(*kept.downs[:-1], LinkDown(kept.downs[-1].began_s, now_s)))
    return kept


@dataclass(frozen=True, slots=True)
class LinkTrouble:
    """The trouble that a history shows. ``code`` empty: none."""

    code: str = ""
    long_downs: int = 0
    losses: int = 0
    longest_s: float = 0.0


def trouble(history: LinkHistory, now_s: float, quiet_s: float) -> LinkTrouble:
    """``flapping``: three long downs; ``dropped``: one very long one that came back; ``unstable``: three losses of any length.

    A link that is down now is no flap by that: its state is judged elsewhere."""
    quiet_since_s = history.quiet_since_s()
    if quiet_since_s is None or (not history.down and now_s - quiet_since_s >= quiet_s):
        return LinkTrouble()
    lengths = [down.seconds(now_s) for down in history.downs if down.ended_s is not None]
    found = LinkTrouble(
        long_downs=sum(length_s >= LONG_DOWN_S for length_s in lengths),
        losses=max(sum(count for _when, count in history.counted), len(history.downs)),
        longest_s=max(lengths, default=0.0),
    )
    if found.long_downs >= FLAPS:
        return replace(found, code="flapping")
    if found.longest_s > DROPPED_S:
        return replace(found, code="dropped")
    return replace(found, code="unstable") if found.losses >= FLAPS else found
