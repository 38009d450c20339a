"""Checkpoint commands next to the job socket: one file that the Python of any image can run.

A job in a container does not see the host's installation. One bind mount of the agent's folder gives it the socket and, as
``checkpoint.pyz``, the library ``holdfast_checkpoint`` of this agent's release: ``python3 /run/holdfast/checkpoint.pyz latest DIR``,
or ``PYTHONPATH=/run/holdfast/checkpoint.pyz`` to import it."""

from __future__ import annotations

import io
import logging
import zipfile
from importlib.util import find_spec
from pathlib import Path

from holdfast_checks.whole_file import write_whole

log = logging.getLogger(__name__)

VERBS = "checkpoint.pyz"
_PACKAGE = "holdfast_checkpoint"
_START = """\
import sys

if sys.version_info < (3, 9):
    sys.stderr.write("Holdfast's checkpoint library needs Python 3.9 or later, this is %d.%d\\n" % sys.version_info[:2])
    sys.exit(3)

from holdfast_checkpoint.cli import main

sys.exit(main())
"""
"""Must run in any Python, old ones too. Exit status 3: the newest checkpoint cannot be determined, so that no script starts from
scratch."""
_WRITTEN = (1980, 1, 1, 0, 0, 0)


def place(folder: Path) -> None:
    """Write the file into the agent's folder; a file of another release is replaced atomically.

    Best effort: without it, jobs outside of containers work as before, and the reason is logged."""
    path = folder / VERBS
    try:
        verbs = archive()
        if path.is_file() and path.read_bytes() == verbs:
            return
        write_whole(path, verbs, 0o644)
    except (OSError, ValueError) as error:
        log.warning("event=checkpoint_verbs_missing path=%s error=%r", path, str(error))


def archive() -> bytes:
    """Content of the file, identical for the same release. Not compressed: an image's Python may lack zlib. Raises OSError."""
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"no package {_PACKAGE} next to the agent's")
    package = Path(spec.origin).parent
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as whole:
        whole.writestr(zipfile.ZipInfo("__main__.py", _WRITTEN), _START)
        for source in sorted(package.rglob("*.py")):
            name = f"{_PACKAGE}/{source.relative_to(package).as_posix()}"
            whole.writestr(zipfile.ZipInfo(name, _WRITTEN), source.read_bytes())
    return held.getvalue()
