"""Host lists: written short, read back, and asked for one name."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import NodeSet as ShellNodes
from ClusterShell.NodeSet import NodeSetParseError

from holdfast.model.errors import Rejected
from holdfast.model.slurm.hostlist import compress, expand, names_node


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
        ("n[01-3]", "n02", False),
    ],
)
def test_whether_a_list_names_a_node(text: str, name: str, named: bool) -> None:
    assert names_node(text, name) is named


@pytest.mark.parametrize(
    "text", ["n7", "n[1-8,12]", "n[0-10]", "n[00-10]", "n[08-12]", "gpu[001-016]", "n[1,02]", "n[1-3]-ib,n9", "n[9-11]"]
)
def test_a_list_means_what_it_means_to_cluster_shell(text: str) -> None:
    assert sorted(expand(text)) == sorted(ShellNodes(text))


@pytest.mark.parametrize(
    ("text", "write"), [("n[01-3]", "01-03, or 1-3"), ("n[1-03]", "01-03, or 1-3"), ("n[009-10]", "009-010, or 9-10")]
)
def test_ends_of_different_widths_are_refused_as_cluster_shell_refuses_them(text: str, write: str) -> None:
    with pytest.raises(Rejected, match=f"different numbers of digits; write {write}$"):
        expand(text)
    with pytest.raises(NodeSetParseError):
        ShellNodes(text)
