"""Missing checkpoint directories: nothing was saved yet, or the file system is not mounted on this node."""

from __future__ import annotations

import os

from holdfast_checkpoint.base.model import Unreadable
from holdfast_checkpoint.base.runs import RunId


def must_be_there(directory: str, run: RunId) -> None:
    """Raise Unreadable where a run that was started again finds no directory: an earlier run may have saved there. An empty directory
    is accepted as empty."""
    try:
        os.stat(directory)
    except FileNotFoundError:
        must_lead_somewhere(directory)
        if run.again:
            raise Unreadable(
                f"{directory} is not there, and {run} was started again: mount its file system on this node, or, if it is to start afresh, "
                f"make the empty directory: mkdir -p {directory}"
            ) from None


def must_lead_somewhere(directory: str) -> None:
    """Raise Unreadable where a directory is missing because of a dangling link in its path: it was meant to exist."""
    path = os.path.abspath(directory)
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    if os.path.islink(path) and not os.path.exists(path):
        raise Unreadable(
            f"{directory} is not there: the link {path} leads nowhere, to {os.readlink(path)}: mount its file system on this node, or set "
            "the link right"
        )
