"""Words and suffixes in file names that mean training state, or something else."""

from __future__ import annotations

STRONG = frozenset(
    {"ckpt", "ckpts", "chkpt", "checkpoint", "checkpoints", "savepoint", "snapshot", "restart", "restarts"}
)
"""Names of checkpoints, whatever the suffix."""
ROLLING = STRONG | {"last", "latest", "newest", "recent", "current", "resume"}
"""Names of files that each save overwrites; they are sorted by time."""
STATES = frozenset(
    {"model", "models", "net", "network", "weight", "weights", "param", "params", "parameters", "state", "states"}
    | {"trainer", "policy", "actor", "critic", "agent", "generator", "discriminator", "encoder", "decoder", "backbone"}
    | {"unet", "lora", "adapter"}
)
"""With these words an ambiguous suffix counts as state: ``pytorch_model.bin``, not ``train.bin``."""
PARTS = frozenset(
    {"optim", "optims", "optimizer", "optimizers", "optimiser", "sched", "scheduler", "schedulers", "scaler", "rng"}
    | {"random", "sampler", "dataloader", "replay", "buffer"}
)
"""Parts of a save, which alone cannot be resumed from."""
BEST = frozenset({"best"})
DERIVED = frozenset(
    {"ema", "swa", "avg", "average", "averaged", "export", "exported", "merged", "onnx", "traced", "scripted"}
    | {"torchscript", "jit", "quantized", "inference", "deploy", "converted", "consolidated", "universal"}
)
"""Weights derived from a training's state."""
ORIGIN = frozenset({"pretrained", "teacher", "init", "initial", "initialized", "initialised", "ref", "reference"})
"""A training's starting point, or its data."""
KEPT_BESIDE = BEST | DERIVED | ORIGIN
"""None of these is the training's own newest state."""
NOISE = frozenset(
    {
        "metric",
        "metrics",
        "history",
        "result",
        "results",
        "pred",
        "preds",
        "prediction",
        "predictions",
        "sample",
        "samples",
    }
    | {
        "embedding",
        "embeddings",
        "feature",
        "features",
        "feats",
        "logits",
        "image",
        "images",
        "plot",
        "plots",
        "stat",
        "stats",
    }
    | {
        "profile",
        "trace",
        "attention",
        "map",
        "maps",
        "grad",
        "grads",
        "gradients",
        "activations",
        "vocab",
        "tokenizer",
        "tokens",
    }
    | {
        "data",
        "dataset",
        "cache",
        "config",
        "cfg",
        "args",
        "hparams",
        "meta",
        "metadata",
        "labels",
        "timing",
        "summary",
    }
    | {"report", "log", "logs", "losses", "output", "outputs", "generated", "generations", "eval", "evaluation"}
)
"""Products of a training; a name of only such words is not a checkpoint's."""
RUNS = frozenset({"log", "logs", "output", "outputs", "result", "results"})
"""Those that, as a folder's name, may hold everything that a run writes."""
NEUTRAL = frozenset(
    {"step", "steps", "iter", "iters", "iteration", "iterations", "epoch", "epochs", "ep", "global", "globalstep", "of"}
    | {
        "train",
        "training",
        "loss",
        "val",
        "valid",
        "validation",
        "test",
        "dev",
        "acc",
        "accuracy",
        "all",
        "and",
        "at",
        "in",
        "per",
    }
)
"""Words without meaning for the kind of file."""

TENSORS = frozenset({"pt", "pth", "th", "ckpt", "safetensors", "distcp", "pdparams", "pdopt", "cpt"})
"""Suffixes of files that hold tensors or another state (``cpt``: GROMACS), whatever their name."""
ARCHIVES = frozenset({"pt", "pth", "th", "ckpt", "tar"})
"""Suffixes that ``torch.save`` writes by convention."""
OTHERS = frozenset(
    {"", "tar", "tgz", "pkl", "pickle", "bin", "npz", "npy", "h5", "hdf5", "keras", "msgpack", "joblib", "dat", "data"}
    | {
        "ubj",
        "mdl",
        "params",
        "states",
        "state",
        "weights",
        "nemo",
        "model",
        "index",
        "gz",
        "zip",
        "zst",
        "xz",
        "bz2",
        "lz4",
    }
)
"""Ambiguous suffixes: the words decide."""
PACKED = frozenset({"gz", "zst", "zstd", "xz", "bz2", "lz4", "zip", "7z"})
KEPT = frozenset({"bak", "old", "prev", "previous", "orig", "backup", "copy"})
"""Suffixes and words of a copy kept when a file is overwritten."""
NOTES = frozenset(
    {
        "json",
        "jsonl",
        "yaml",
        "yml",
        "toml",
        "ini",
        "cfg",
        "conf",
        "txt",
        "log",
        "md",
        "rst",
        "csv",
        "tsv",
        "html",
        "xml",
    }
    | {
        "png",
        "jpg",
        "jpeg",
        "gif",
        "svg",
        "pdf",
        "mp4",
        "wav",
        "mp3",
        "out",
        "err",
        "lock",
        "done",
        "pid",
        "sock",
        "md5",
        "sha1",
    }
    | {
        "sha256",
        "py",
        "pyc",
        "sh",
        "ipynb",
        "proto",
        "pbtxt",
        "prof",
        "nsys",
        "wandb",
        "sbatch",
        "slurm",
        "patch",
        "diff",
    }
)
"""Suffixes of files that hold no training state."""
