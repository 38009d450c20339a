"""Whether tokens may be written into a folder: ``own_folder.py FOLDER``, as the user who writes them. Standard library alone.

Exit status 0: only root and this user can put anything into it, or in its place. 1: others can, and standard error says how."""

import os
import stat
import sys
from pathlib import Path


def others_way_in(folder: Path) -> str:
    """How others could; empty: they could not. Links on the way are followed, and where they lead counts."""
    real = folder.resolve()
    for place in (real, *real.parents):
        found = place.stat()
        if found.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to uid {found.st_uid}"
        if place == real and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{place} may be written by its group or by everybody (chmod 0700 {place})"
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            return f"everybody may put another folder in place of one in {place} (chmod +t {place})"
    return ""


if __name__ == "__main__":
    sys.exit(others_way_in(Path(sys.argv[1])) or 0)
