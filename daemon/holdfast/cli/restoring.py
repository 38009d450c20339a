"""The verb that puts a backup in the place of the store."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import DEFAULT_PATH, Config
from holdfast.cli.show import line


def restore(
    source: Annotated[Path, typer.Argument(help="A file that `holdfast backup`, or an upgrade, has written.")],
    config: Config = DEFAULT_PATH,
) -> None:
    """Put a backup in the place of the SQLite store, with all daemons of this head node stopped. The store before is kept beside it."""
    from holdfast.config.controller import load  # noqa: PLC0415
    from holdfast.controller.wiring import actor_lock, controller_lock  # noqa: PLC0415
    from holdfast.store.restore import restore as put_back  # noqa: PLC0415

    settings = load(config)
    with ExitStack() as locks:
        for path in (controller_lock(settings), actor_lock(settings)):
            _keep_out(path, locks)
        done = put_back(settings.store.url, source, datetime.now(UTC))
    line(
        f"restored {source} (schema {done.schema})"
        + (f"; the store before is {done.replaced}" if done.replaced else "")
    )
    line("next: systemctl start holdfast-quorum holdfast-actor holdfast-controller; holdfast status")
    line("where the backup is older than the cluster Holdfast pauses itself and says so: docs/runbooks/store-lost.md")


def _keep_out(path: Path, locks: ExitStack) -> None:
    """Hold the lock of a daemon, which then cannot run. One that has not run since the boot has none, and root makes none for it."""
    from holdfast.controller.poke import Alone  # noqa: PLC0415

    if path.exists():
        locks.callback(Alone(path).release)
