"""What an active test found, and its form on the wire."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

NODE = "node"


@dataclass(frozen=True)
class Figure:
    """Something measured. More is better."""

    component: str
    name: str
    """Such as ``h2d``; with the test it names a line of the baseline."""
    value: float
    unit: str


@dataclass(frozen=True)
class Corruption:
    """Data that is not what was written or computed."""

    component: str
    code: str
    text: str


@dataclass(frozen=True)
class PlaceTrouble:
    """A place on which the test could not be done."""

    component: str
    text: str


@dataclass(frozen=True)
class ActiveReport:
    """All that one run says."""

    test: str
    device: str = ""
    """``cuda``, ``cpu``, ``plain``, ``tcp``, ``efa``."""
    places: tuple[str, ...] = ()
    """Components that were tested without trouble."""
    figures: tuple[Figure, ...] = ()
    corruptions: tuple[Corruption, ...] = ()
    troubles: tuple[PlaceTrouble, ...] = ()
    skipped: str = ""
    """Why nothing was tested."""

    def dump(self) -> str:
        """One line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def load(cls, text: str) -> ActiveReport:
        """From the last line of what the process printed. Raises ValueError."""
        lines = text.strip().splitlines()
        try:
            raw: dict[str, Any] = json.loads(lines[-1])
            return cls(
                test=str(raw["test"]),
                device=str(raw["device"]),
                places=tuple(str(place) for place in raw["places"]),
                figures=tuple(Figure(**each) for each in raw["figures"]),
                corruptions=tuple(Corruption(**each) for each in raw["corruptions"]),
                troubles=tuple(PlaceTrouble(**each) for each in raw["troubles"]),
                skipped=str(raw["skipped"]),
            )
        except (IndexError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"no report: {error!r}") from error
