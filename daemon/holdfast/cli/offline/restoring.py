"""The verb that puts a backup in the place of the store."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.common.options import DEFAULT_PATH, Config
from holdfast.cli.common.show import line
from holdfast.model.errors import Rejected


def restore(
    source: Annotated[
        Path | None, typer.Argument(help="A file that `holdfast backup`, or an upgrade, has written.")
    ] = None,
    config: Config = DEFAULT_PATH,
    mark: Annotated[
        bool,
        typer.Option("--mark", help="The store was put back by another tool (pg_restore, a copy): only say so in it."),
    ] = False,
) -> None:
    """Put a backup in the place of the SQLite store, with all daemons of this head node stopped. The former store is kept in the same
    folder.
    Holdfast starts paused."""
    from holdfast.config.controller import load  # noqa: PLC0415
    from holdfast.head.wiring import actor_lock, controller_lock  # noqa: PLC0415
    from holdfast.store.restore import mark_restored  # noqa: PLC0415
    from holdfast.store.restore import restore as put_back  # noqa: PLC0415

    if (source is None) is not mark:
        raise Rejected("name the backup, or give --mark for a store that another tool has put back")
    settings = load(config)
    with ExitStack() as locks:
        for path in (controller_lock(settings), actor_lock(settings)):
            _keep_out(path, locks)
        if source is None:
            mark_restored(settings.store.url, datetime.now(UTC))
            line("the store is marked as restored")
        else:
            done = put_back(settings.store.url, source, datetime.now(UTC))
            line(
                f"restored {source} (schema {done.schema})"
                + (f"; the store before is {done.replaced}" if done.replaced else "")
            )
    line("next: systemctl start holdfast-quorum holdfast-actor holdfast-controller; holdfast status")
    line("Holdfast starts paused: look at what it names (`holdfast runbook store-lost`), then holdfast resume")


def _keep_out(path: Path, locks: ExitStack) -> None:
    """Hold the lock of a daemon, which then cannot run. One that has not run since the boot has none, and root makes none for it."""
    from holdfast.controller.wakeup import Alone  # noqa: PLC0415

    if path.exists():
        locks.callback(Alone(path).release)
