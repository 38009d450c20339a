"""Links of the documentation as the site needs them. In the repository they lead to files, so that they work on any Git forge.

On the site README.md is the first page, and each file outside docs/ that a page links to has a page for itself below ``source/``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
"""Pages of the site whose text is outside docs/."""

_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)(\[[^\]]*\]\()([^)\s]+)\)")


def site_path(path: str) -> str:
    """Where a file of the repository is on the site; both are relative, with slashes."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md"


def _target(link: str, page: str) -> tuple[str, str] | None:
    """The file of the repository that a link of ``page`` leads to, and its anchor. None: another site, or the page itself."""
    name, _, anchor = link.partition("#")
    if not name or re.match(r"[a-z]+:", link):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), name)), anchor


def for_site(text: str, page: str) -> str:
    """The text of a page (its path in the repository) with links as the site needs them."""

    def changed(found: re.Match[str]) -> str:
        target = _target(found[2], page)
        if target is None:
            return found[0]
        path = posixpath.relpath(site_path(target[0]), posixpath.dirname(site_path(page)) or ".")
        return f"{found[1]}{path}{f'#{target[1]}' if target[1] else ''})"

    parts = _FENCE.split(text)
    parts[::2] = [_LINK.sub(changed, part) for part in parts[::2]]
    return "".join(parts)


def linked(text: str, page: str) -> Iterator[str]:
    """The files of the repository to which a page links."""
    for part in _FENCE.split(text)[::2]:
        for found in _LINK.finditer(part):
            target = _target(found[2], page)
            if target is not None:
                yield target[0]


_LANGUAGES = {".py": "python", ".sh": "sh", ".toml": "toml", ".json": "json", ".yml": "yaml", ".lua": "lua", ".c": "c"}


def source_page(path: str, root: Path) -> str:
    """A file of the repository as a page: its name and its text, not in the search."""
    text = (root / path).read_text(encoding="utf-8")
    fence = "`" * (max((len(run) for run in re.findall(r"`{3,}", text)), default=2) + 1)
    language = _LANGUAGES.get(posixpath.splitext(path)[1], "text")
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n{fence}{language}\n{text}\n{fence}\n"
