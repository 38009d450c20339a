"""What mkdocs does with the documentation beyond its own (``mkdocs.yml``): pages from outside docs/, links, diagrams."""

from __future__ import annotations

import hashlib
import html
import re
from pathlib import Path
from typing import Any

import mmdr
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

import site_links

ROOT = Path(__file__).parents[1]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    fence = {"name": "mermaid", "class": "mermaid", "format": _diagram}
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [fence]
    return config


def _diagram(source: str, *_: Any, **__: Any) -> str:
    """Drawn now and not in the browser: that would load Mermaid (3.5 MB) from elsewhere."""
    svg = mmdr.render(source).svg()
    name = f"diagram-{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    svg = re.sub(r"max-width:([\d.]+)px", _legible, svg, count=1)
    svg = re.sub(r"\bmerman\b", name, svg)  # its id, in its style sheet too: a page may have several
    return f'<figure class="diagram" role="img" aria-label="{html.escape(_spoken(source))}">{svg}</figure>'


_SMALLEST = 0.6


def _legible(found: re.Match[str]) -> str:
    """A wide diagram is scrolled rather than shrunk until no one can read it."""
    return f"{found[0]};min-width:{float(found[1]) * _SMALLEST:.0f}px"


def _spoken(source: str) -> str:
    names = re.findall(r'\["?([^"\]]+)"?\]', source)
    return f"Diagram of {', '.join(re.sub('<[^>]+>', ' ', name) for name in names)}" if names else "Diagram"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    written = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    for path in site_links.PAGES:
        written[path] = (ROOT / path).read_text(encoding="utf-8")
        text = written[path] if path != "README.md" else f"---\nhide:\n  - navigation\n---\n{written[path]}"
        files.append(File.generated(config, site_links.site_path(path), content=text))
    targets = {target for page, text in written.items() for target in site_links.linked(text, page)}
    for path in sorted(targets - written.keys()):
        if not path.startswith("docs/") and (ROOT / path).is_file():
            page = site_links.source_page(path, ROOT)
            files.append(
                File.generated(config, site_links.site_path(path), content=page, inclusion=InclusionLevel.NOT_IN_NAV)
            )
    return files


_FROM = {page: path for path, page in site_links.PAGES.items()}


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    if uri.startswith("decisions/") or uri == "changelog.md":
        page.meta.setdefault("search", {"boost": 0.3})  # a reader who looks for a brake wants its runbook first
    return site_links.for_site(markdown, _FROM.get(uri, f"docs/{uri}"))


def on_page_content(content: str, **_: Any) -> str:
    """In a table ``\\|`` is a bar, in code too, as on a Git forge."""
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace("\\|", "|"), content, flags=re.DOTALL)
