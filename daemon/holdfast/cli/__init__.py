"""``holdfast``: one command with subcommands that explain themselves (``docs/reference/cli.md``)."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point. What runs on nodes takes a short cut: a node has neither typer nor rich, and its memory is counted."""
    if sys.argv[1:2] == ["agent"]:
        from holdfast.agent.main import main as agent_main  # noqa: PLC0415

        sys.exit(agent_main(sys.argv[2:]))
    if sys.argv[1:2] == ["run"]:
        from holdfast.launcher.main import main as launcher_main  # noqa: PLC0415

        sys.exit(launcher_main(sys.argv[2:]))
    try:
        from holdfast.cli.app import run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        if sys.argv[1:2] == ["checkpoint"]:
            from holdfast_checkpoint.cli import main as checkpoint_main  # noqa: PLC0415

            sys.exit(checkpoint_main(sys.argv[2:]))
        sys.stderr.write(
            f"holdfast: {error.name} is missing: this is a node's installation, install the controller's (docs/install.md). "
            "Only `holdfast agent`, `run` and `checkpoint` work without\n"
        )
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))
