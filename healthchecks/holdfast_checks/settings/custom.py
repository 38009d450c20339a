"""An operator's own check."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.settings.setting import setting


@dataclass(frozen=True, slots=True)
class CustomSettings:
    """Table ``[custom.NAME]`` of ``agent.toml``."""

    command: tuple[str, ...] = setting((), "Executable and arguments, run without a shell.")
