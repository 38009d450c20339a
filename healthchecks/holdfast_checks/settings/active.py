"""Tests of our own that need an idle node."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.settings.setting import setting


@dataclass(frozen=True, slots=True)
class ActiveSettings:
    """Table ``[active]`` of ``agent.toml``."""

    seconds: float = setting(30.0, "How long one active test may take.", low=1, high=3600)
