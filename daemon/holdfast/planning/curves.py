"""Curves of the plan as an SVG. Pure: text in, text out; standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 190, 40, 48
_COLOURS = ("#1b6ca8", "#c1440e", "#2e8540", "#7b3294", "#8a6d00", "#444444", "#008b8b", "#b5179e")
_DASHES = ("", "6 3", "2 2")


@dataclass(frozen=True, slots=True)
class Curve:
    """One line: its name and its points, x above 0."""

    name: str
    points: tuple[tuple[float, float], ...]
    pair: int | None = None
    """Number of the pair that it belongs to: two neighbours of one colour, the first whole, the second dashed. None: it is alone."""


def svg(title: str, across: str, up: str, curves: Sequence[Curve]) -> str:
    """Lines over a logarithmic axis across and a linear one up from 0; values that are not finite are left out."""
    kept = [replace(c, points=tuple(p for p in c.points if all(map(math.isfinite, p)))) for c in curves]
    xs = [x for curve in kept for x, _ in curve.points] or [1.0]
    low, high = min(xs), max(*xs, min(xs) * 2)
    top = _round_up(max((y for curve in kept for _, y in curve.points), default=1.0))

    def place(x: float, y: float) -> tuple[float, float]:
        part = math.log(x / low) / math.log(high / low)
        return (
            _LEFT + part * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - y / top * (_HEIGHT - _TOP - _BOTTOM),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 22, title, "start", 15),
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, across, "middle"),
        _text(_LEFT, _TOP - 4, up, "start"),
    ]
    for step in range(6):
        y = place(low, top * step / 5)[1]
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{top * step / 5:g}", "end"))
    parts += [_text(place(x, 0)[0], _HEIGHT - _BOTTOM + 16, f"{x:g}", "middle") for x in _ticks(low, high)]
    for number, curve in enumerate(kept):
        parts += _drawn(number, curve, [place(x, y) for x, y in curve.points])
    return "\n".join([*parts, "</svg>", ""])


def _drawn(number: int, curve: Curve, points: list[tuple[float, float]]) -> list[str]:
    """A line, distinguished by colour and by dashes, and its name at the right."""
    hue, way = (number, number) if curve.pair is None else (curve.pair, number % 2)
    colour, dash = _COLOURS[hue % len(_COLOURS)], _DASHES[way % len(_DASHES)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
    y, left = _TOP + 10 + 18 * number, _WIDTH - _RIGHT + 12
    return [
        f'<polyline points="{path}" {style}/>',
        f'<path d="M{left} {y}h24" {style}/>',
        _text(left + 30, y + 4, curve.name, "start"),
    ]


def _text(x: float, y: float, text: str, anchor: str, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _ticks(low: float, high: float) -> list[float]:
    """Powers of two between the ends, at most nine."""
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    every = max(1, math.ceil((last - first + 1) / 9))
    return [2.0**k for k in range(first, last + 1, every)]


def _round_up(value: float) -> float:
    """To 1, 2 or 5 times a power of ten; 1 for nothing."""
    if value <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= value * (1 - 1e-9))
