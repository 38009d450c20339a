"""The import graph of the product, and ``docs/reference/packages.md``, which is drawn from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache

import grimp

Graph = Mapping[str, frozenset[str]]
"""Each name, and the names that it imports."""

ROOTS = ("holdfast", "holdfast_checks", "holdfast_checkpoint", "holdfast_train")
OPENED = "holdfast"
"""The one distribution package whose own packages are boxes of the picture."""


@cache
def module_imports() -> Graph:
    """Every module of the product and the product's modules that it imports, inside functions and for types included."""
    graph = grimp.build_graph(*ROOTS, cache_dir=None)
    return {module: frozenset(graph.find_modules_directly_imported_by(module)) for module in sorted(graph.modules)}


def grouped(imports: Graph, group: Callable[[str], str | None]) -> Graph:
    """The graph of the groups of its modules. A module of group None is left out."""
    found: dict[str, set[str]] = {name: set() for module in imports if (name := group(module))}
    for module, imported in imports.items():
        if (name := group(module)) is not None:
            found[name] |= {other for one in imported if (other := group(one)) is not None} - {name}
    return {name: frozenset(others) for name, others in sorted(found.items())}


def package(module: str) -> str | None:
    """The box of a module: a package or a single module of ``holdfast``, or another distribution package as a whole."""
    root, _, rest = module.partition(".")
    if root != OPENED:
        return root
    return rest.partition(".")[0] or None


def folders(imports: Graph) -> list[str]:
    """All names that have modules below them."""
    return sorted({module.rpartition(".")[0] for module in imports} - {""})


def siblings(imports: Graph, parent: str) -> Graph:
    """What the folders and modules directly below ``parent`` import of one another, each folder as a whole."""
    depth = parent.count(".") + 2
    return grouped(imports, lambda m: ".".join(m.split(".")[:depth]) if m.startswith(f"{parent}.") else None)


def circles(imports: Graph) -> list[frozenset[str]]:
    """Each largest set of names that import one another, directly or through others."""
    left = dict(imports)
    while ends := [name for name, imported in left.items() if not imported & left.keys()]:
        for name in ends:
            del left[name]
    reached = {name: _reached(name, left) for name in left}
    found = {
        frozenset(other for other in others if name in reached[other])
        for name, others in reached.items()
        if name in others
    }
    return sorted(found, key=sorted)


def _reached(name: str, imports: Graph) -> set[str]:
    seen: set[str] = set()
    todo = [name]
    while todo:
        new = (imports[todo.pop()] & imports.keys()) - seen
        seen |= new
        todo += new
    return seen


def levels(imports: Graph) -> dict[str, int]:
    """From 1, which imports nothing. Every other name is one level above the highest that it imports; a circle is one name."""
    of = {name: circle for circle in circles(imports) for name in circle}
    found: dict[str, int] = {}

    def level(name: str) -> int:
        if name not in found:
            members = of.get(name, frozenset({name}))
            below = {other for member in members for other in imports[member]} - members
            height = 1 + max((level(other) for other in below), default=0)
            found.update(dict.fromkeys(members, height))
        return found[name]

    return {name: level(name) for name in sorted(imports)}


def drawn(imports: Graph) -> Graph:
    """Without the imports that follow from others: where a imports b and b imports c, the arrow from a to c is left out."""
    reached = {name: _reached(name, imports) for name in imports}

    def follows(name: str, other: str) -> bool:
        return any(other in reached[via] and name not in reached[via] for via in imports[name] - {other})

    return {
        name: frozenset(other for other in imported if name in reached[other] or not follows(name, other))
        for name, imported in imports.items()
    }


def render() -> str:
    """``docs/reference/packages.md``."""
    imports = module_imports()
    packages = {module.split(".")[1] for module in imports if module.startswith(f"{OPENED}.") and module.count(".") > 1}
    boxes = grouped(imports, package)
    lines = [
        "# Packages",
        "",
        "<!-- Written by docs/generate.py from the imports; do not edit. -->",
        "",
        *_summary(boxes, "package"),
        "An arrow leads from a package to one that it imports. An arrow that follows from two others is left out; the table",
        f"has every import. Names are packages and modules of `{OPENED}`, except `holdfast_…`. `pyproject.toml` has the rules",
        "for single imports (`[tool.importlinter]`).",
        "",
        *_picture(boxes, lambda name: name not in packages and name not in ROOTS),
        "",
        "| level | package | imports |",
        "|---|---|---|",
        *_rows(boxes),
    ]
    for name in sorted(packages):
        inside = grouped(imports, _inside(f"{OPENED}.{name}", imports))
        if sum(map(len, inside.values())) >= _WORTH_A_PICTURE:
            lines += ["", f"## Inside `{name}`", "", *_summary(inside, "folder"), *_picture(inside)]
    return "\n".join(lines) + "\n"


_WORTH_A_PICTURE = 2


def _inside(parent: str, imports: Graph) -> Callable[[str], str | None]:
    """The folder of a module within ``parent``; None for the modules of ``parent`` itself and of others."""

    def group(module: str) -> str | None:
        folder = ".".join(module.split(".")[: parent.count(".") + 2])
        is_folder = module.startswith(f"{parent}.") and any(other.startswith(f"{folder}.") for other in imports)
        return folder.rpartition(".")[2] if is_folder else None

    return group


def _summary(imports: Graph, what: str) -> Iterator[str]:
    of = levels(imports)
    yield f"**{max(of.values(), default=0)} import levels.** A {what} imports only {what}s of lower levels."
    found = circles(imports)
    if not found:
        yield f"No circle: no {what} imports itself through others."
    for circle in found:
        names = ", ".join(f"`{name}`" for name in sorted(circle))
        yield f"Except in a circle: {names} import one another, directly or through others."
    yield ""


def _picture(imports: Graph, single: Callable[[str], bool] = lambda _: False) -> Iterator[str]:
    """As Mermaid. The single modules of one level share a box."""
    shown, of = drawn(imports), levels(imports)
    box_of = {name: f"modules{of[name]}" if single(name) else name for name in imports}
    boxes: dict[str, list[str]] = {}
    for name in sorted(imports, key=lambda name: (-of[name], name)):
        boxes.setdefault(box_of[name], []).append(name)
    yield "```mermaid"
    yield "flowchart TB"
    for key, names in boxes.items():
        yield f'  {key}["{_lines(names)}"]'
    arrows = {(box_of[name], box_of[other]) for name in imports for other in shown[name]}
    yield from (f"  {start} --> {end}" for start, end in sorted(arrows) if start != end)
    yield "```"


def _lines(names: Collection[str], a_line: int = 3) -> str:
    ordered = list(names)
    return "<br/>".join(", ".join(ordered[at : at + a_line]) for at in range(0, len(ordered), a_line))


def _rows(imports: Graph) -> Iterator[str]:
    for name, level in sorted(levels(imports).items(), key=lambda one: (-one[1], one[0])):
        yield f"| {level} | `{name}` | {', '.join(f'`{other}`' for other in sorted(imports[name])) or '—'} |"
