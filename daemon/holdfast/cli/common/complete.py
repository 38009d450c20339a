"""Names for the shell's completion, asked of the controller within half a second; without an answer there are none.

A shell evaluates what it is given here: Typer's script for zsh by ``eval``, and zsh's own ``_arguments`` once more, for which Typer escapes
no backslash. Texts of agents and users are among it, so only characters that no shell reads as anything else get there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.api.answers.overview_shapes import NamesShape

WITHIN_S = 0.5
"""A key press that waits longer than this is worse than no completion."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,251}", re.ASCII)
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 .,:;/_+-]+", re.ASCII)


def nodes(incomplete: str) -> list[str]:
    """Of a host list what is behind the last comma."""
    before, comma, prefix = incomplete.rpartition(",")
    if "[" in prefix:
        return []
    return [f"{before}{comma}{name}" for shown in _names(prefix) for name in shown.nodes if _NAME.fullmatch(name)]


def incidents(incomplete: str) -> list[tuple[str, str]]:
    """Open ones, with node and fault."""
    found = [(name, shown.about.get(name, "")) for shown in _names(incomplete) for name in shown.incidents]
    return [(name, _NOT_PLAIN.sub("?", about)) for name, about in found if _NAME.fullmatch(name)]


def _names(prefix: str) -> Iterator[NamesShape]:
    """Nothing where the controller does not answer, or there is no token: a shell that completes says no errors."""
    from holdfast.api.client import ApiClient  # noqa: PLC0415
    from holdfast.cli.common.answers import read  # noqa: PLC0415
    from holdfast.model.errors import HoldfastError  # noqa: PLC0415

    try:
        got = ApiClient(timeout_s=WITHIN_S, tries=1).get("/v1/names", prefix=prefix)
        from holdfast.api.answers.overview_shapes import NamesShape  # noqa: PLC0415

        yield read(NamesShape, got)
    except HoldfastError:
        return
