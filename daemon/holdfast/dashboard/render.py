"""Templates, and how texts of others are shown in them.

Every text is escaped by Jinja2 (autoescape, for all templates); characters that have no width or turn the direction of the text are shown
as what they are, so that no name or reason reads like another."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

_HIDDEN = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|[\U000e0000-\U000e007f]"
)


def plain(value: object) -> str:
    """The text with each hidden character by its number, ``\\u202e``."""
    return _HIDDEN.sub(lambda m: f"\\u{ord(m[0]):04x}", str(value))


def moment(at: datetime | str | None) -> Markup:
    """A time: UTC, which the page's script turns into how long ago."""
    if at is None or at == "":
        return Markup("–")
    found = at if isinstance(at, datetime) else datetime.fromisoformat(at)
    utc = found.astimezone(UTC)
    shown = utc.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}">{} UTC</time>').format(utc.strftime("%Y-%m-%dT%H:%M:%SZ"), shown)


def seconds(value: float | None) -> str:
    """A duration with the digits that matter."""
    if value is None:
        return "–"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def offset(value: float) -> str:
    """Time since a fault: ``+ 2.31 s``."""
    sign, took_s = "+" if value >= 0 else "-", abs(value)
    return f"{sign} {took_s:.2f} s" if took_s < 60 else f"{sign} {seconds(took_s)}"


def number(value: float | None) -> str:
    """With separators; of small ones one digit after the point."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.1f}"


def words(value: str) -> str:
    """``awaiting_human`` → ``awaiting human``."""
    return plain(value).replace("_", " ")


def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("holdfast.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters |= {"moment": moment, "seconds": seconds, "number": number, "offset": offset, "words": words}
    made.globals["asset"] = asset_path
    return made


def _shown(value: Any) -> Any:
    """What a template prints: hidden characters of texts are made visible before they are escaped."""
    return value if isinstance(value, Markup) else escape(plain(value)) if isinstance(value, str) else value


@cache
def assets() -> dict[str, tuple[bytes, str]]:
    """Files that pages load: path → content and its type. A path has the content's hash, so that it may be kept for ever."""
    kinds = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
    found: dict[str, tuple[bytes, str]] = {}
    for file in sorted(resources.files("holdfast.dashboard").joinpath("assets").iterdir(), key=lambda f: f.name):
        kind = kinds.get("." + file.name.rpartition(".")[2])
        if kind is not None:
            content = file.read_bytes()
            found[f"/ui/assets/{hashlib.sha256(content).hexdigest()[:16]}/{file.name}"] = (content, kind)
    return found


def asset_path(name: str) -> str:
    """Raises KeyError for a file that is not there."""
    return {path.rpartition("/")[2]: path for path in assets()}[name]
