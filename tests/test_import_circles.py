"""No module of the product imports itself through others, and no package or folder does."""

from __future__ import annotations

import pytest

from package_graph import Graph, circles, drawn, folders, grouped, levels, module_imports, package, siblings


def graph(**imports: str) -> Graph:
    return {name: frozenset(imported.split()) for name, imported in imports.items()}


def test_no_module_imports_itself_through_others() -> None:
    assert circles(module_imports()) == []


def test_no_package_imports_itself_through_others() -> None:
    assert circles(grouped(module_imports(), package)) == []


def test_no_folder_imports_itself_through_its_neighbours() -> None:
    """At every depth: the folders and modules of one folder, each taken as a whole."""
    found = {parent: circles(siblings(module_imports(), parent)) for parent in folders(module_imports())}
    assert {parent: circle for parent, circle in found.items() if circle} == {}


@pytest.mark.parametrize("parent", ["holdfast.agent", "holdfast_checkpoint"])
def test_no_folder_imports_what_puts_it_together(parent: str) -> None:
    """The modules directly in ``parent`` import its folders: none of these imports them, nor one another in a circle."""

    def folder(module: str) -> str | None:
        of = module if module in folders(module_imports()) else module.rpartition(".")[0]
        return of if f"{of}.".startswith(f"{parent}.") else None

    found = grouped(module_imports(), folder)
    assert circles(found) == []
    assert parent in found
    assert len(found) > 2


def test_a_circle_of_folders_is_found_where_no_module_is_on_one() -> None:
    imports = {"p.a.x": {"p.b.y"}, "p.b.y": set(), "p.b.z": {"p.a.w", "p.low"}, "p.a.w": set(), "p.low": set()}
    made = {"p": frozenset[str](), **{name: frozenset(others) for name, others in imports.items()}}
    assert circles(made) == []
    assert circles(siblings(made, "p")) == [frozenset({"p.a", "p.b"})]
    assert folders(made) == ["p", "p.a", "p.b"]


def test_the_whole_product_is_in_the_graph() -> None:
    names = set(grouped(module_imports(), package))
    assert {"agent", "api", "cli", "model", "holdfast_checks", "holdfast_checkpoint", "holdfast_train"} <= names
    assert module_imports()["holdfast.model.incidents.incident"]


def test_a_circle_is_found_with_what_is_on_it_and_nothing_else() -> None:
    imports = graph(top="a", a="b", b="c low", c="a", low="", x="y", y="x low")
    assert circles(imports) == [frozenset("abc"), frozenset("xy")]
    assert circles(graph(a="b", b="")) == []


def test_a_level_is_one_above_the_highest_import_and_a_circle_is_one_name() -> None:
    assert levels(graph(top="a low", a="b", b="a low", low="")) == {"a": 2, "b": 2, "low": 1, "top": 3}


def test_an_arrow_that_follows_from_others_is_not_drawn() -> None:
    assert drawn(graph(a="b c", b="c", c="")) == graph(a="b", b="c", c="")
    assert drawn(graph(a="b c", b="a c", c="")) == graph(a="b c", b="a c", c=""), "on a circle all are drawn"
