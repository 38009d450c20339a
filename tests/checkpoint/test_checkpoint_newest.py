"""What ``latest`` reports of a directory, one table: its files in the order of writing, and exit status and path.

0 only for what is proved complete and newest, 4 only where nothing can hold training state; 3 otherwise, and one line says why."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast_checkpoint.cli import main

Build = Any
Out = pytest.CaptureFixture[str]
START_S = 1_700_000_000
EVERY_S = 10


@dataclass(frozen=True)
class Row:
    """One directory. ``files``: names in the order of writing, ten seconds apart; the content after a ``|`` (:func:`write`)."""

    files: tuple[str, ...]
    status: int
    names: str = ""
    """With 0 what is resumed from; with 3 a part of the line that is printed."""


def row(status: int, names: str, *files: str) -> Row:
    return Row(files, status, names)


def write(build: Build, spec: str) -> Path:
    """A ``torch.save`` archive unless the content is ``cut``, ``zeros``, ``junk``, ``text``, ``empty``, ``small`` (a tenth), ``npz``,
    ``safetensors``, ``hf``, ``dcp`` (folders), or ``-> TARGET``."""
    name, _, content = spec.partition("|")
    path: Path = build.path(name)
    if content.startswith("-> "):
        path.symlink_to(content[3:])
    elif content == "hf":
        build.huggingface(int(name.rpartition("-")[2])).rename(path)
    elif content == "dcp":
        build.dcp(name)
    elif content in ("", "cut", "small"):
        build.archive(name, b"x" * (300 if content == "small" else 3000))
        if content == "cut":
            os.truncate(path, path.stat().st_size - 1)
    elif content == "safetensors":
        build.safetensors(name, 3000)
    else:
        made = {
            "zeros": bytes(3000),
            "text": b"global_step10\n",
            "empty": b"",
            "npz": b"PK\x03\x04" + bytes(26) + b"w.npy" * 600,
        }
        path.write_bytes(made.get(content, b"\x93JUNK" * 600))
    return path


ROWS: dict[str, list[Row]] = {
    "the file names that trainings use": [
        row(0, "ckpt_200.tar", "ckpt_100.tar", "ckpt_200.tar"),
        row(0, "checkpoint.pth.tar", "checkpoint.pth.tar", "model_best.pth.tar"),
        row(0, "checkpoint_0200.pth.tar", "checkpoint_0100.pth.tar", "checkpoint_0200.pth.tar"),
        row(0, "my ckpt 100.pt", "my ckpt 100.pt"),
        row(0, "run A step_100.pt", "run A step_100.pt"),
        row(0, "CKPT-100.PT", "CKPT-100.PT"),
        row(0, "step.100.pt", "step.100.pt"),
        row(0, "ckpt_100.th", "ckpt_100.th"),
        row(0, "epoch_12.pth", "epoch_9.pth", "epoch_12.pth"),
        row(0, "snapshot.pt", "snapshot.pt"),
        row(0, "partial_freeze_temp_0.7_step_100.pt", "partial_freeze_temp_0.7_step_100.pt"),
        row(0, "ckpt.pt", "ckpt.pt", "train.log|text", "config.yaml|text"),
        row(0, "rl_10000_steps.zip", "rl_9000_steps.zip", "rl_10000_steps.zip"),
    ],
    "archives of torch.save whatever their suffix": [
        row(0, "ckpt_100.bin", "ckpt_100.bin"),
        row(0, "ckpt_100.pkl", "ckpt_100.pkl"),
        row(0, "checkpoint_100", "checkpoint_100"),
        row(0, "step_100", "step_100"),
        row(4, "", "ckpt_100.bin|cut"),
        row(0, "ckpt_100.bin", "ckpt_100.bin", "ckpt_200.bin|cut"),
    ],
    "formats that cannot be judged": [
        *(
            row(3, name, f"{name}|junk")
            for name in (
                *(
                    "ckpt_100.pkl",
                    "ckpt_100.bin",
                    "step_100.npz",
                    "step_100.h5",
                    "checkpoint_100.msgpack",
                    "step_100.pdparams",
                ),
                *(
                    "checkpoint_100",
                    "ckpt_100.pt.gz",
                    "ckpt.pt.zst",
                    "ckpt_100.tar.gz",
                    "model_100.joblib",
                    "train_state.npz",
                ),
                *(
                    "model.ckpt-100.index",
                    "ckpt-5.data-00000-of-00001",
                    "weights.h5",
                    "pytorch_model.bin",
                    "last.pkl",
                    "checkpoint.foo",
                ),
                *("ckpt_100.pt", "state.pt", "100.pt", "ckpt_-5.pt", "model.zip"),
            )
        ),
        row(3, "step_100.npz", "step_100.npz|npz"),
        row(3, "step_100.safetensors", "step_100.safetensors|safetensors"),
        row(3, "checkpoint_100.json", "checkpoint_100.json|text"),
        row(3, "ckpt_200.pkl may be newer", "ckpt_100.pt", "ckpt_200.pkl|junk"),
        row(3, "ckpt_200.pkl may be newer", "ckpt_200.pkl|junk", "ckpt_100.pt"),
        row(3, "ckpt_200.pt", "ckpt_100.pt", "ckpt_200.pt|junk"),
        row(3, "ckpt.pt.gz may be newer", "ckpt_100.pt", "ckpt.pt.gz|junk"),
        row(0, "ckpt_200.pt", "ckpt_100.pkl|junk", "ckpt_200.pt"),
        row(0, "ckpt_100.pt", "ckpt_100.pt", "ckpt_100.pkl|junk"),
        row(0, "step_100.pt", "step_100.pt", "step_100.safetensors|safetensors"),
    ],
    "files that are written over and over": [
        row(0, "last.pt", "step_1000.pt", "last.pt"),
        row(0, "latest.pt", "ckpt_1000.pt", "latest.pt"),
        row(0, "checkpoint_last.pt", "checkpoint_1_900.pt", "checkpoint_last.pt"),
        row(0, "model_last.pth.tar", "step_1000.pt", "model_last.pth.tar"),
        row(0, "yolov8_last.pt", "yolov8_last.pt", "yolov8_best.pt"),
        row(0, "step_1000.pt", "last.pt", "step_1000.pt"),
        row(0, "last.ckpt", "epoch=0-step=10.ckpt", "last.ckpt"),
        row(0, "step_1000.pt", "step_1000.pt", "last.pt|cut"),
        row(0, "ckpt.pt", "ckpt.pt.2", "ckpt.pt.1", "ckpt.pt"),
        row(0, "ckpt.pt.1", "ckpt.pt.2", "ckpt.pt.1", "ckpt.pt|cut"),
        row(0, "ckpt.pt.bak", "ckpt.pt.bak", "ckpt.pt|cut"),
        row(0, "ckpt_old.pt", "ckpt_old.pt", "ckpt.pt|zeros"),
        row(0, "ckpt.pt", "ckpt_old.pt", "ckpt.pt"),
        row(3, "last.pkl may be newer", "step_1000.pt", "last.pkl|junk"),
        row(3, "latest.pt", "latest.pt|-> /elsewhere/ckpt.pt"),
        row(0, "ckpt_500.pt", "ckpt_500.pt", "latest.pt|-> ckpt_500.pt"),
        row(0, "epoch=0-step=10.ckpt", "epoch=0-step=10.ckpt", "last.ckpt|-> epoch=0-step=10.ckpt"),
        row(3, "model.pt may be newer", "ckpt_100.pt", "model.pt"),
        row(3, "latest/model.pt may be newer", "ckpt_100.pt", "latest/model.pt"),
    ],
    "numbers": [
        row(0, "step_1M.pt", "step_500k.pt", "step_1M.pt"),
        row(0, "step_1.5M.pt", "step_1M.pt", "step_1.5M.pt"),
        row(0, "ckpt_1e5.pt", "ckpt_9e4.pt", "ckpt_1e5.pt"),
        row(0, "ckpt_1_100.pt", "ckpt_0_900.pt", "ckpt_1_100.pt"),
        row(0, "epoch1_step100.pt", "epoch0_step900.pt", "epoch1_step100.pt"),
        row(0, "epoch=1-step=100.ckpt", "epoch=0-step=900.ckpt", "epoch=1-step=100.ckpt"),
        row(0, "epoch=2-val_loss_step=0.3.ckpt", "epoch=1-val_loss_step=0.4.ckpt", "epoch=2-val_loss_step=0.3.ckpt"),
        row(3, "epoch1_step100.pt may be newer", "epoch1_step100.pt", "epoch0_step900.pt"),
        row(3, "ckpt_1_100.pt may be newer", "ckpt_1_100.pt", "ckpt_0_900.pt"),
        row(3, "ckpt_100.pt may be newer", "ckpt_20261124.pt", "ckpt_100.pt"),
        row(3, "ckpt_100.pt may be newer", "llama_iter_1000000.pt", "ckpt_100.pt"),
        row(3, "step_150.pt may be newer", "step_200.pt", "step_150.pt"),
        row(3, "checkpoint-50 may be newer", "llama_iter_1000000.pt", "checkpoint-50|hf"),
        row(0, "step_200.pt", "step_200.pt", "step_150.pt|cut"),
        row(0, "ckpt_200.pt", "ckpt_99.pt", "ckpt_100.pt", "ckpt_200.pt"),
        row(0, "checkpoint-200", "checkpoint-200|hf", "checkpoint-150|hf"),
    ],
    "files that belong together": [
        row(3, "no file like optim_step_100.pt", "model_step_100.pt", "optim_step_100.pt", "model_step_200.pt"),
        row(3, "no older save", "model_step_100.pt", "optim_step_100.pt"),
        row(0, "model_step_200.pt", *(f"{what}_step_{step}.pt" for step in (100, 200) for what in ("optim", "model"))),
        row(
            0,
            "model_step_200.pt",
            *(f"{w}_step_{s}.pt" for s in (100, 200) for w in ("optim", "model")),
            "model_step_300.pt|cut",
        ),
        row(3, "step_100_rank_1.pt", "step_100_rank_0.pt", "step_100_rank_1.pt", "step_200_rank_0.pt"),
        row(3, "no older save", "step_100_rank_0.pt"),
        row(0, "step_200_rank_0.pt", *(f"step_{step}_rank_{rank}.pt" for step in (100, 200) for rank in (0, 1))),
        row(3, "optim_step_200.pt", "model_step_100.pt", "model_step_200.pt", "optim_step_200.pt", "model_step_300.pt"),
        row(3, "gan_D_step_100.pt", "gan_D_step_100.pt", "gan_G_step_100.pt", "gan_G_step_200.pt"),
        row(3, "no older save", "model_last.pt", "optim_last.pt"),
        row(0, "model_step_100.pt", "model_step_100.pt"),
        row(0, "ckpt_300.pt", "ckpt_100.pt", "ckpt_200.pt", "export_me_step_200.pt", "ckpt_300.pt"),
        row(0, "ckpt_5000.pt", "weights_step_4000.pt", "ckpt_5000.pt", "weights_step_5000.pt"),
        row(0, "ckpt_200.pt", "ckpt_100.pt", "ckpt_100.json|text", "ckpt_200.pt"),
        row(3, "2 archives", "step_100/model.pt", "step_100/optim.pt"),
        row(3, "no file like state.pt", "step_100/state.pt", "step_100/config.json|text", "step_200/model.pt"),
        row(0, "step_200", "step_100/state.pt", "step_200/state.pt", "step_200/config.json|text"),
    ],
    "what ordinary directories hold beside their checkpoints": [  # word: a test's id
        row(0, "ckpt_100.pt", "ckpt_100.pt", "best.pt"),
        row(0, "ckpt_100.pt", "ckpt_100.pt", "model_best.pt", "ckpt_best_50.pt", "best_step_150.pt"),
        row(0, "ckpt_100.pt", "ckpt_100.pt", "ema.pt", "ema_0.9999_100.pt", "swa_ckpt_150.pt", "ckpt_100_ema.pt"),
        row(0, "last.ckpt", "epoch=0-step=10.ckpt", "last.ckpt", "best-v1.ckpt", "last-EMA.ckpt"),
        row(0, "best-epoch=3-step=1200.ckpt", "epoch=2-step=900.ckpt", "best-epoch=3-step=1200.ckpt"),
        row(0, "ckpt_100.pt", "pretrained_iter_1000000.pt", "ckpt_100.pt"),
        row(0, "ckpt_100.pt", "ckpt_100.pt", "pretrained_iter_1000000.pt", "teacher.pt"),
        row(0, "ckpt_100.pt", "model.pt", "resnet50.pth", "llama.safetensors|safetensors", "ckpt_100.pt"),
        row(0, "ckpt_100.pt", "ckpt_100.pt", "model.pt|small", "weights.safetensors|text"),
        row(
            0,
            "ckpt_100.pt",
            "ckpt_100.pt",
            "optimizer.pt",
            "rng_state_0.pth",
            "scheduler.pkl|junk",
            "replay_buffer.pkl|junk",
        ),
        row(
            0,
            "ckpt_100.pt",
            "ckpt_100.pt",
            "train.log|text",
            "config.json|text",
            "events.out.tfevents.17.n1.12.0|junk",
            "slurm-7.out|text",
        ),
        row(
            0,
            "ckpt_100.pt",
            "ckpt_100.pt",
            "tokenizer.json|text",
            "tokenizer.model|junk",
            "vocab.pkl|junk",
            "meta.pkl|junk",
            "train.bin|junk",
        ),
        row(
            0,
            "ckpt_100.pt",
            "ckpt_100.pt",
            "samples_step_200.npz|junk",
            "metrics.npz|junk",
            "history.pkl|junk",
            "val_features.pt",
        ),
        row(
            0,
            "ckpt_100.pt",
            "ckpt_100.pt",
            "ckpt_200.pt.tmp",
            "tmp_ckpt.pt",
            ".ckpt_200.pt.Ab12",
            "ckpt_200.pt.tmp.77|cut",
            "ckpt.pt~",
        ),
        row(
            0,
            "ckpt_100.pt",
            "ckpt_100.pt",
            "latest|text",
            "last_checkpoint|text",
            "checkpoint|text",
            "ckpt_200.done|empty",
        ),
        row(
            0,
            "ckpt_100.pt",
            "ckpt_100.pt",
            "samples_step_200/1.png|junk",
            "eval/step_200/report.json|text",
            "runs/x/model.pt",
        ),
        row(
            0,
            "ckpt_100.pt",
            "ckpt_100.pt",
            "hf_export/step_200/model.safetensors|safetensors",
            "best/step_200.pt",
            "wandb/a/ckpt_200.pt",
        ),
        row(
            0,
            "checkpoint-100",
            "checkpoint-100|hf",
            "model.safetensors|safetensors",
            "training_args.bin",
            "trainer_state.json|text",
        ),
        row(0, "checkpoint-100", "checkpoint-100|hf", "tmp-checkpoint-200|hf"),
        row(0, "step-100", "step-100|dcp", "model.pt|small"),
    ],
    "somewhere else, and newer": [
        row(
            3,
            "version_1/checkpoints/epoch=1-step=20.ckpt may",
            "epoch=0-step=10.ckpt",
            "logs/version_1/checkpoints/epoch=1-step=20.ckpt",
        ),
        row(0, "epoch=1-step=20.ckpt", "logs/version_1/checkpoints/epoch=0-step=10.ckpt", "epoch=1-step=20.ckpt"),
        row(3, "run2/last.pt may be newer", "ckpt_100.pt", "run2/last.pt"),
        row(3, "run2/step-200 may be newer", "ckpt_100.pt", "run2/step-200|dcp"),
        row(0, "ckpt_100.pt", "old/ckpt_50.pt", "ckpt_100.pt"),
        row(3, "step_200 may be newer", "step_100.pt", "step_200|-> /archive/step_200"),
        row(3, "ckpt_5.pt", "ckpt_5.pt|-> /archive/ckpt_5.pt"),
        row(3, "step_100", "step_100|-> /archive/step_100"),
    ],
    "nothing whole": [
        row(4, ""),
        row(
            4,
            "",
            "train.log|text",
            "config.yaml|text",
            "latest|text",
            "data/train.bin|junk",
            "vocab.pkl|junk",
            "1.png|junk",
        ),
        row(4, "", "ckpt_100.pt|cut"),
        row(4, "", "ckpt_100.pt.tmp|cut", "ckpt_200.pt|empty"),
        row(3, "ckpt.pt.tmp", "ckpt.pt.tmp"),
        row(3, "ckpt.pkl.tmp", "ckpt.pkl.tmp|junk"),
        row(3, "best.pt", "best.pt"),
        row(3, "val_features.pt", "val_features.pt"),
        row(3, "pretrained.ckpt", "pretrained.ckpt"),
        row(3, "last.pkl", "ckpt_100.pt|cut", "last.pkl|junk"),
        row(3, "sub/ckpt_50.pt", "ckpt_100.pt|cut", "sub/ckpt_50.pt"),
        row(0, "best_step_50.pt", "best_step_50.pt"),
    ],
}


def lay(build: Build, files: tuple[str, ...]) -> None:
    for number, spec in enumerate(files):
        path, at_s = write(build, spec), START_S + number * EVERY_S
        inside = path.rglob("*") if path.is_dir() and not path.is_symlink() else ()
        for each in (*inside, path, *path.parents):
            if build.root in each.parents:
                os.utime(each, (at_s, at_s), follow_symlinks=False)


@pytest.mark.parametrize(
    "case", [pytest.param(row, id=f"{kind}-{' '.join(row.files)}") for kind, rows in ROWS.items() for row in rows]
)
def test_the_newest_is_named_only_where_it_is_known(case: Row, build: Build, capsys: Out) -> None:
    lay(build, case.files)
    status = main(["latest", str(build.root)])
    out, err = capsys.readouterr()
    assert status == case.status, err
    assert out == (f"{build.root}/{case.names}\n" if status == 0 else "")
    if status == 3:
        (line,) = err.splitlines()
        assert f"{build.root}/" in line
        assert case.names in line
        assert "move it away" in line
