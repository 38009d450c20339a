"""The verb that prints a page of the documentation, which is on no network and may be needed when the network is away."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from holdfast.cli.common.show import table
from holdfast.model.errors import Usage

_SOURCE = Path(__file__).parents[4] / "docs"
"""In a source tree. Of an installed package there is nothing of the kind."""


def docs_folder() -> Path:
    """The documentation of this release: of the source tree, or as the package has installed it. Raises Usage where it is neither."""
    installed = Path(sys.prefix, "share", "holdfast", "docs")
    for folder in (_SOURCE, installed):
        if (folder / "runbooks").is_dir():
            return folder
    raise Usage(f"there are no pages on this machine ({installed} is missing): install the controller's package again")


def runbook(
    name: Annotated[str, typer.Argument(help="As a message names it, such as no-actor. Empty: list the pages.")] = "",
) -> None:
    """Print the page of a message, or another page of the documentation. Needs neither the controller nor a token."""
    docs = docs_folder()
    if not name:
        rows = [(page.stem, _title(page)) for page in _runbooks(docs)]
        table("", ("NAME", "PAGE"), rows, "no pages")
        return
    typer.echo(_page(docs, name).read_text(encoding="utf-8"), nl=False)


def _runbooks(docs: Path) -> list[Path]:
    return sorted(page for page in (docs / "runbooks").glob("*.md") if page.stem != "README")


def _title(page: Path) -> str:
    with page.open(encoding="utf-8") as lines:
        return next(lines, "").lstrip("# ").strip()


def _page(docs: Path, name: str) -> Path:
    """The page by its name, or by a path such as ``docs/runbooks/no-actor.md#look``. Raises Usage."""
    wanted = PurePosixPath(name.partition("#")[0]).name.removesuffix(".md")
    pages = {page.stem: page for page in (*docs.glob("*.md"), *_runbooks(docs))}
    if wanted in pages:
        return pages[wanted]
    near = difflib.get_close_matches(wanted, pages, 1)
    hint = f"; did you mean {near[0]}?" if near else "; `holdfast runbook` lists them"
    raise Usage(f"there is no page {wanted!r}{hint}")
