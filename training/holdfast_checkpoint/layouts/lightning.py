"""PyTorch Lightning: ``epoch=3-step=1200.ckpt``, one ``torch.save`` archive, a DCP folder (FSDP, model parallel), or DeepSpeed's folder
``checkpoint`` next to the file ``latest`` (lightning/pytorch/strategies/deepspeed.py, save_checkpoint)."""

from __future__ import annotations

from holdfast_checkpoint.base.confined import Bad, OpenFolder
from holdfast_checkpoint.base.model import CheckpointVerdict, Proof
from holdfast_checkpoint.layouts import dcp, deepspeed
from holdfast_checkpoint.layouts.common import CheckpointEntry, Judged, whole_archive
from holdfast_checkpoint.layouts.steps import step_in

_DEEPSPEED_TAG = "checkpoint"


def judge(entry: CheckpointEntry) -> Judged:
    """Raise Bad unless the archive, the DCP folder with its ``meta.pt``, or DeepSpeed's save is complete.

    The step is in the name or unknown (``last.ckpt``): Lightning keeps it in the pickle."""
    if not entry.is_folder:
        return Judged(step_in(entry.name), whole_archive(entry.root, entry.name), Proof.STRUCTURE)
    with entry.root.folder(entry.name) as folder:
        size, proof = _judge_folder(folder)
    return Judged(step_in(entry.name), size, proof)


def _judge_folder(folder: OpenFolder) -> tuple[int, Proof]:
    names = folder.names()
    if deepspeed.LATEST in names or _DEEPSPEED_TAG in names:
        with folder.folder(deepspeed.committed_tag(folder)) as tag:
            size = deepspeed.judge_tag(tag)
            deepspeed.committed_after(folder, tag)
        return size, Proof.STRUCTURE
    if names and not any(name == dcp.METADATA or name.endswith(".distcp") for name in names):
        raise Bad(CheckpointVerdict.UNREADABLE, f"in no known layout ({', '.join(sorted(names)[:3])})")
    size, proof = dcp.judge_folder(folder)
    return size + whole_archive(folder, "meta.pt"), proof
