"""Where settings are by default. Apart, so that ``holdfast --help`` names the place without reading what can be set."""

from __future__ import annotations

from pathlib import Path

CONTROLLER_TOML = Path("/etc/holdfast/controller.toml")
