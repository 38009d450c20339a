"""A training job that saves as a framework does, and reports nothing: ``framework_job.py LAYOUT DIRECTORY``.

It resumes from its newest complete checkpoint, as frameworks do, and prints each step."""

from __future__ import annotations

import json
import re
import shutil
import struct
import sys
import time
import zipfile
from pathlib import Path

EVERY = 20
STEP_S = 0.2


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as whole:
        whole.writestr("archive/data.pkl", b"x" * 200)


def dcp(directory: Path, step: int) -> None:
    import torch  # noqa: PLC0415
    from torch.distributed.checkpoint.state_dict_saver import save  # noqa: PLC0415

    save({"w": torch.zeros(64), "step": torch.tensor(step)}, checkpoint_id=directory / f"step_{step}", no_dist=True)


def huggingface(directory: Path, step: int) -> None:
    folder = directory / f"checkpoint-{step}"
    folder.mkdir()
    header = json.dumps({"w": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    archive(folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))


def lightning(directory: Path, step: int) -> None:
    archive(directory / f"epoch=0-step={step}.ckpt")


def plain(directory: Path, step: int) -> None:
    archive(directory / f"ckpt_{step}.pt")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    layout, directory = sys.argv[1], Path(sys.argv[2])
    save = {"dcp": dcp, "huggingface": huggingface, "lightning": lightning, "plain": plain}[layout]
    done = directory / "complete.txt"  # the framework's own mark of what it may load
    start = int(done.read_text()) if done.exists() else 0
    for entry in directory.iterdir():  # what was torn by the stop
        number = re.search(r"(\d+)(?:\.pt|\.ckpt)?$", entry.name)
        if number and int(number[1]) > start:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    if layout == "dcp":
        import torch.distributed.checkpoint.state_dict_saver  # noqa: F401, PLC0415
    say(f"resumed from step {start}")
    for step in range(start + 1, 10**6):
        time.sleep(STEP_S)
        say(f"step {step}")
        if step % EVERY == 0:
            save(directory, step)
            done.write_text(str(step))


if __name__ == "__main__":
    main()
