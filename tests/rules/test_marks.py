"""Test files that are not imported are those of which ``-m`` selects nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import marks

FAST = "not (loop or slow or aws or postgresql or slurm or soak)"
SLURM = "slurm and not soak"


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("", {"slurm": False, "soak": False}),
        ("pytestmark = pytest.mark.slurm\n", {"slurm": True, "soak": False}),
        ("pytestmark = [pytest.mark.slurm, pytest.mark.soak]\n", {"slurm": True, "soak": True}),
        ("pytestmark = [\n    pytest.mark.slow,\n    pytest.mark.skipif(x, reason=''),\n]\n", {"slow": True}),
        ("@pytest.mark.slow\ndef test_one() -> None: ...\n", {}),
        ("@pytest.mark.slurm\ndef test_one() -> None: ...\n", {"soak": False}),
        ("from support.simulated.site import Site\n", {"loop": True}),
        ("from support.simulated import POLICY, lost\n", {"loop": True}),
        ("from support.simulated import EPOCH\n", {}),
        ("if TYPE_CHECKING:\n    from support.simulated.site import Site\n", {}),
    ],
)
def test_what_a_files_text_decides(text: str, known: dict[str, bool], tmp_path: Path) -> None:
    file = tmp_path / "test_x.py"
    file.write_text(text, encoding="utf-8")
    found = marks.of_file(file)
    assert {name: has for name, has in found.items() if name in known} == known
    assert {name for name, has in found.items() if has} <= {*known, "skipif"}


@pytest.mark.parametrize(
    ("expression", "known", "none"),
    [
        ("", {"slow": True}, False),
        (FAST, {}, False),
        (FAST, {"slurm": False, "soak": False}, False),
        (FAST, {"slow": True}, True),
        (SLURM, {}, False),
        (SLURM, {"slurm": False}, True),
        (SLURM, {"slurm": True, "soak": False}, False),
        (SLURM, {"soak": True}, True),
        ("soak or hypothesis", {"slurm": False, "soak": False}, False),
        ("slow(x=1)", {"slow": False}, False),
        ("not (", {"slow": False}, False),
    ],
)
def test_a_file_is_left_out_only_where_no_test_of_it_can_be_meant(
    expression: str, known: dict[str, bool], none: bool
) -> None:
    assert marks.selects_none(expression, known) is none


def test_a_mark_that_differs_from_the_text_is_named() -> None:
    assert marks.contradicted({"slurm": False, "slow": True}, ["slow", "timeout"]) == []
    assert marks.contradicted({"slurm": False, "slow": True}, ["slurm"]) == ["slurm", "slow"]
