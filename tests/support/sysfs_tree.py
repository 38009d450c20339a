"""sysfs trees from text: ``path = value`` is a file, ``path -> target`` a link, ``#`` a comment."""

from __future__ import annotations

from pathlib import Path

CAPTURED = Path(__file__).parents[1] / "checks" / "captured"


def lay_out(root: Path, text: str) -> Path:
    """Make the tree below ``root``; returns ``root``."""
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        path, mark, rest = line.partition(" -> ") if " -> " in line else line.partition(" = ")
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if mark == " -> ":
            target.symlink_to(rest)
        else:
            target.write_text(rest + "\n")
    return root


def captured(root: Path, name: str) -> Path:
    """A tree of ``captured/``, such as ``network/p4d.tree``, below ``root``."""
    return lay_out(root, (CAPTURED / name).read_text())
