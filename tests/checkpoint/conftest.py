"""Builders for every checkpoint layout, and a pickle that shows when it was loaded."""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys
import tempfile
import types
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast_checkpoint import Checkpointer, RunId


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int


class Builder:
    """Writes checkpoints into one directory as the frameworks do."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def archive(self, name: str, content: bytes = b"x" * 300) -> Path:
        """A torch.save archive: a stored zip with the pickle and one tensor."""
        path = self.path(name)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("archive/data.pkl", pickle.dumps({"step": 1}))
            archive.writestr("archive/data/0", content)
        return path

    def safetensors(self, name: str, size: int = 64) -> Path:
        header = json.dumps(
            {"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "data_offsets": [0, size]}}
        ).encode()
        path = self.path(name)
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
        return path

    def dcp(self, name: str, ranks: int = 2) -> Path:
        storage: dict[str, object] = {}
        for rank in range(ranks):
            data = f"__{rank}_0.distcp"
            path = self.archive(f"{name}/{data}")
            first = path.stat().st_size
            path.write_bytes(path.read_bytes() * 2)
            storage[f"w{rank}"] = _StorageInfo(data, 0, first)
            storage[f"v{rank}"] = _StorageInfo(data, first, first)
        self.path(f"{name}/.metadata").write_bytes(pickle.dumps({"storage_data": storage}, protocol=4))
        return self.root / name

    def huggingface(self, step: int, shards: int = 2) -> Path:
        name = f"checkpoint-{step}"
        files = [f"model-{i + 1:05d}-of-{shards:05d}.safetensors" for i in range(shards)]
        for file in files:
            self.safetensors(f"{name}/{file}")
        index = {"weight_map": {f"w{i}": file for i, file in enumerate(files)}}
        self.path(f"{name}/model.safetensors.index.json").write_text(json.dumps(index))
        for file in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth", "training_args.bin"):
            self.archive(f"{name}/{file}")
        self.path(f"{name}/trainer_state.json").write_text(json.dumps({"global_step": step}))
        return self.root / name

    def deepspeed(self, step: int, ranks: int = 2, *, latest: bool = True) -> Path:
        tag = f"global_step{step}"
        for mp in range(2):
            self.archive(f"{tag}/mp_rank_{mp:02d}_model_states.pt")
            for dp in range(ranks):
                self.archive(f"{tag}/bf16_zero_pp_rank_{dp}_mp_rank_{mp:02d}_optim_states.pt")
        if latest:
            self.path("latest").write_text(tag)
        return self.root / tag

    def lightning(self, name: str = "epoch=0-step=10.ckpt") -> Path:
        return self.archive(name)

    def nemo(self, step: int) -> Path:
        name = f"model--val_loss=2.10-step={step}"
        self.dcp(f"{name}/weights")
        self.archive(f"{name}/weights/common.pt")
        self.path(f"{name}/context/io.json").write_text("{}")
        return self.root / name

    def holdfast(self, *steps: int, run: RunId | None = None) -> Path:
        checkpointer = Checkpointer(self.root, run=run or RunId("1"), env={})
        checkpointer.resume()
        for step in steps:
            with checkpointer.save(step) as folder:
                (folder / "state.json").write_text(f"state of {step}")
                (folder / "weights.bin").write_bytes(bytes(1000))
        checkpointer.close()
        return self.root / f"step-{steps[-1]:07d}-{checkpointer.run}"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """As pytest's, but another user can reach it: pytest's own are closed to other users, and any other pytest that starts closes
    them again."""
    with tempfile.TemporaryDirectory(prefix="hf-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    """A builder for an empty directory. ``_StorageInfo`` is pickled under PyTorch's own name."""
    module = types.ModuleType("torch.distributed.checkpoint.filesystem")
    _StorageInfo.__module__ = module.__name__
    vars(module)["_StorageInfo"] = _StorageInfo
    for name in ("torch", "torch.distributed", "torch.distributed.checkpoint"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("HOLDFAST_AGENT_SOCKET", str(tmp_path / "no-agent.sock"))
    root = tmp_path / "checkpoints"
    root.mkdir()
    return Builder(root)


@pytest.fixture
def bomb(tmp_path: Path) -> Bomb:
    """Its ``path`` exists once it was loaded anywhere."""
    return Bomb(tmp_path / "unpickled")
