"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.config.paths import CONTROLLER_TOML as DEFAULT_PATH

Url = Annotated[str | None, typer.Option("--url", help="The controller; else HOLDFAST_URL.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
Config = Annotated[
    Path, typer.Option("--config", "-c", envvar="HOLDFAST_CONFIG", help="The controller's settings.", dir_okay=False)
]
IncidentIdArgument = Annotated[str, typer.Argument(metavar="ID", help="Its id, as `holdfast incidents` shows it.")]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why, for the record.")]

__all__ = ["DEFAULT_PATH", "Config", "IncidentIdArgument", "Json", "Reason", "Url"]
