"""Host lists: written short, read back, and asked for one name."""

from __future__ import annotations

import pytest

from holdfast.model.hostlist import compress, expand, names_node


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("n1",), "n1"),
        (("n1", "n2", "n3", "n5"), "n[1-3,5]"),
        (("n09", "n10", "n11"), "n[09-11]"),
        (("gpu-a", "n1"), "gpu-a,n1"),
        (("r1n1", "r1n2", "r2n1"), "r1n[1-2],r2n1"),
        (("n001", "n002"), "n[001-002]"),
        (("n1", "n1"), "n1"),
        (("n0", "n9", "n10", "n11"), "n[0,9-11]"),
        (("n099", "n100", "n1", "n10"), "n[099-100],n[1,10]"),
    ],
)
def test_names_are_written_short_and_read_back(names: tuple[str, ...], text: str) -> None:
    assert compress(names) == text
    if names:
        assert set(expand(text)) == set(names)
        assert all(names_node(text, name) for name in names)


@pytest.mark.parametrize(
    ("text", "name", "named"),
    [
        ("n[1-8,12]", "n8", True),
        ("n[1-8,12]", "n08", False),
        ("n[1-8,12]", "n9", False),
        ("n[001-016]", "n016", True),
        ("n[001-016]", "n16", False),
        ("n[1-8]-ib", "n3-ib", True),
        ("n[1-8]", "n", False),
        ("a,b", "b", True),
        ("", "n1", False),
        ("n[x]", "n1", False),
    ],
)
def test_whether_a_list_names_a_node(text: str, name: str, named: bool) -> None:
    assert names_node(text, name) is named
