"""The soak's count continues where a run stopped, and a chunk that failed is run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.soak import Done, SoakCount


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    seeds: list[int] = []

    def chunk(seed: int) -> tuple[int, int]:
        seeds.append(seed)
        if len(seeds) == 3:
            raise AssertionError("found")
        return 250, 9000

    with pytest.raises(AssertionError):
        SoakCount(tmp_path / "soak.json").run(7, 9, chunk)
    again = SoakCount(tmp_path / "soak.json")
    assert (again.last, again.by_seed) == (7, {7: Done(2, 500, 18000)})
    again.run(7, 2, chunk)
    assert seeds[3] == seeds[2]
    assert len(set(seeds)) == 4
    assert SoakCount(tmp_path / "soak.json").by_seed == {7: Done(4, 1000, 36000)}
    again.run(8, 1, chunk)
    assert (SoakCount(tmp_path / "soak.json").examples, again.last) == (1250, 8)
