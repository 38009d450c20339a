"""``holdfast checkpoint``: the same verbs as ``python -m holdfast_checkpoint``, which needs nothing but the library."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.common.options import Json

Directory = Annotated[str, typer.Argument(help="Where the job's checkpoints are.")]
AnyOwner = Annotated[bool, typer.Option("--any-owner", help="Take files of other users too.")]


def latest(
    directory: Directory,
    as_data: Json = False,
    any_owner: AnyOwner = False,
    ignore_unknown: Annotated[
        bool,
        typer.Option(
            "--ignore-unknown", help="Leave out what cannot be judged: take the newest of the others, or start afresh."
        ),
    ] = False,
) -> None:
    """Print the path of the newest complete checkpoint. Exit status 4: there is none; 3: unknown."""
    _run("latest", directory, [*_flags(as_data, any_owner), *(["--ignore-unknown"] if ignore_unknown else [])])


def listing(directory: Directory, as_data: Json = False, any_owner: AnyOwner = False) -> None:
    """Judge every checkpoint of a directory."""
    _run("list", directory, _flags(as_data, any_owner))


def verify(
    path: Annotated[str, typer.Argument(help="One checkpoint.")], as_data: Json = False, any_owner: AnyOwner = False
) -> None:
    """Judge one checkpoint, every digest included."""
    _run("verify", path, _flags(as_data, any_owner))


def register(
    directory: Directory,
    layout: Annotated[str, typer.Option(help="How they are laid out; else found out.")] = "auto",
    save_signal: Annotated[
        str | None, typer.Option(help="Signal on which the job saves, such as USR1.", show_default=False)
    ] = None,
) -> None:
    """Register this job's checkpoint directory with the node's agent. Run it inside the job."""
    _run("register", directory, ["--layout", layout, *(["--save-signal", save_signal] if save_signal else [])])


def _flags(as_data: bool, any_owner: bool) -> list[str]:
    return [*(["--json"] if as_data else []), *(["--any-owner"] if any_owner else [])]


def _run(verb: str, where: str, flags: list[str]) -> None:
    from holdfast_checkpoint.cli import main  # noqa: PLC0415

    raise typer.Exit(main([verb, *flags, "--", where]))
