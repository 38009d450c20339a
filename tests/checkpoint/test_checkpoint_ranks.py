"""Which rank a process is: from torch, then from Slurm; and what happens to checkpoints whose ranks are mixed up."""

from __future__ import annotations

import json
import shutil
import sys
import types
from typing import Any

import pytest

from holdfast_checkpoint import Checkpointer, CheckpointError, latest
from holdfast_checkpoint.ranks import RankPlace, place_of

Build = Any
NODE = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
"""Of torchrun itself, under srun on two nodes."""


class Torch(types.ModuleType):
    """Stands for an initialised ``torch.distributed``; the real one is tried in test_checkpoint_torchrun."""

    def __init__(self, rank: int, world_size: int) -> None:
        super().__init__("torch.distributed")
        self.place = RankPlace(rank, world_size)

    def is_initialized(self) -> bool:
        return self.place.world_size > 0

    def get_rank(self) -> int:
        return self.place.rank

    def get_world_size(self) -> int:
        return self.place.world_size


@pytest.fixture(autouse=True)
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ({}, RankPlace(0, 1)),
        (NODE, RankPlace(1, 2)),
        ({**NODE, "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, RankPlace(3, 4)),
        (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"},
            RankPlace(1, 2),
        ),
        ({**NODE, "RANK": "1"}, RankPlace(1, 2)),
        ({**NODE, "WORLD_SIZE": "2"}, RankPlace(1, 2)),
        ({"RANK": "0"}, RankPlace(0, 1)),
        ({**NODE, "LOCAL_RANK": "0"}, RankPlace(1, 2)),
        ({"SLURM_PROCID": "x", "SLURM_NTASKS": "-2"}, RankPlace(0, 1)),
    ],
)
def test_torchs_rank_wins_over_slurms(env: dict[str, str], place: RankPlace) -> None:
    assert place_of(env) == place


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({**NODE, "RANK": "3"}, "only RANK=3 is set in the environment, and Slurm says rank 1 of 2"),
        ({**NODE, "WORLD_SIZE": "4"}, "only WORLD_SIZE=4 is set"),
        ({"RANK": "1"}, "set both RANK and WORLD_SIZE"),
        ({"LOCAL_RANK": "1"}, "this node has several ranks"),
        ({"LOCAL_WORLD_SIZE": "8"}, "this node has several ranks"),
        ({"RANK": "first", "WORLD_SIZE": "2"}, "RANK='first' in the environment is no number"),
    ],
)
def test_half_a_word_is_refused_in_one_line(env: dict[str, str], words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as error:
        place_of(env)
    assert "\n" not in str(error.value)


def test_an_initialised_torch_decides_and_the_environment_may_not_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", Torch(3, 4))
    assert place_of(NODE) == place_of({**NODE, "RANK": "3", "WORLD_SIZE": "4"}) == RankPlace(3, 4)
    for env in ({"RANK": "1"}, {"WORLD_SIZE": "2"}, {"RANK": "1", "WORLD_SIZE": "4"}):
        with pytest.raises(CheckpointError, match="initialised as rank 3 of 4"):
            place_of({**NODE, **env})


def test_a_torch_that_is_not_initialised_or_built_without_it_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for torch in (Torch(0, 0), types.ModuleType("torch.distributed")):
        monkeypatch.setitem(sys.modules, "torch.distributed", torch)
        assert place_of(NODE) == RankPlace(1, 2)


def test_a_rank_that_changed_after_the_handle_was_made_is_refused(
    monkeypatch: pytest.MonkeyPatch, build: Build
) -> None:
    handle = Checkpointer(build.root, env=NODE)
    monkeypatch.setitem(sys.modules, "torch.distributed", Torch(3, 4))
    with pytest.raises(CheckpointError, match="this was rank 1 of 2, now it is rank 3 of 4"):
        handle.resume()


def test_rank_without_world_size_is_refused(build: Build) -> None:
    with pytest.raises(CheckpointError, match="both rank and world_size"):
        Checkpointer(build.root, rank=1, env={})


def test_an_empty_commit_is_refused_and_an_old_empty_one_is_no_checkpoint(build: Build) -> None:
    handle = Checkpointer(build.root, env={})
    handle.resume()
    with pytest.raises(CheckpointError, match="no rank wrote a file for step 10"), handle.save(10):
        pass
    assert latest(str(build.root)) is None
    whole = build.holdfast(20)
    manifest = whole / "MANIFEST.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "files": {}}))
    assert latest(str(build.root)) is None


@pytest.mark.parametrize("old_receipts", [False, True])
def test_shards_of_another_number_of_ranks_are_not_handed_out_unasked(build: Build, old_receipts: bool) -> None:
    path = build.holdfast(10)
    if old_receipts:
        for receipt in path.glob("receipt-*.json"):
            said = json.loads(receipt.read_text())
            del said["world_size"]
            receipt.write_text(json.dumps(said))
    found = latest(str(build.root))
    assert found is not None
    alone = Checkpointer(build.root, env={})
    assert alone.rank_path(found) == path / "rank-00000"
    first, second = (Checkpointer(build.root, rank=rank, world_size=2, env={}) for rank in (0, 1))
    with pytest.raises(CheckpointError, match="step 10 was saved by 1 ranks, this run has 2"):
        first.rank_path(found)
    with pytest.raises(CheckpointError, match="saved by fewer ranks, this run has 2"):
        second.rank_path(found)
    assert second.rank_path(found, 0) == path / "rank-00000"
    shutil.rmtree(path)
