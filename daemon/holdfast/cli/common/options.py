"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.common import complete
from holdfast.config.paths import CONTROLLER_TOML as DEFAULT_PATH

Url = Annotated[str | None, typer.Option("--url", help="The controller; else HOLDFAST_URL.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
Config = Annotated[
    Path, typer.Option("--config", "-c", envvar="HOLDFAST_CONFIG", help="The controller's settings.", dir_okay=False)
]
IncidentIdArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="Its id, as `holdfast incidents` shows it.", autocompletion=complete.incidents),
]
NodeOption = Annotated[
    str | None, typer.Option("--node", help="Only of this node.", autocompletion=complete.nodes, show_default=False)
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        help="Not before this time: yesterday, 18:00, 'monday 09:00', 2h, 3d or ISO 8601 (UTC without an offset).",
        show_default=False,
    ),
]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why, for the record.")]

__all__ = ["DEFAULT_PATH", "Config", "IncidentIdArgument", "Json", "NodeOption", "Reason", "SinceOption", "Url"]
