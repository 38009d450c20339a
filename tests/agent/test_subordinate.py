"""Whose subordinate id a uid is, by /etc/subuid."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.agent.node import subordinate
from holdfast.agent.node.subordinate import SubordinateIds, ranges


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("alice:100000:65536", [(100000, 165535, "alice")]),
        ("1000:5:1", [(5, 5, "1000")]),
        ("alice:100000:0", []),
        ("alice:-1:5", []),
        ("alice:100000", []),
        (":1:2", []),
        ("# alice:1:2:3", []),
        ("alice:99999999999:1", []),
        ("alice:²:1", []),
        ("\udcff:1:2", [(1, 2, "\udcff")]),
    ],
)
def test_a_line(line: str, found: list[tuple[int, int, str]]) -> None:
    assert ranges(f"\n{line}\n\n") == found


def test_who_has_an_id_and_a_file_that_changes(tmp_path: Path) -> None:
    file = tmp_path / "subuid"
    ids = SubordinateIds(file)
    assert ids.owner(100000) is None, "no file"
    file.write_text("bob:165536:65536\nalice:100000:65536\n")
    said = [ids.owner(uid) for uid in (99999, 100000, 165535, 165536, 231071, 231072)]
    assert said == [None, "alice", "alice", "bob", "bob", None]
    file.write_text("carol:100000:65536\n")
    assert ids.owner(100000) == "carol"
    file.unlink()
    assert ids.owner(100000) is None


def test_a_file_without_end_is_read_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subordinate, "MOST_BYTES", 30)
    file = tmp_path / "subuid"
    file.write_text("alice:100000:65536\n" * 1000 + "bob:200000:1\n")
    ids = SubordinateIds(file)
    assert (ids.owner(100000), ids.owner(200000)) == ("alice", None)
