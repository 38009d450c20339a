"""PyTorch Lightning: ``epoch=3-step=1200.ckpt``, one ``torch.save`` archive or (FSDP, model parallel) a DCP folder."""

from __future__ import annotations

from holdfast_checkpoint.layouts import dcp
from holdfast_checkpoint.layouts.common import Entry, Judged, whole_archive
from holdfast_checkpoint.layouts.steps import step_in
from holdfast_checkpoint.model import Proof


def judge(entry: Entry) -> Judged:
    """Raises Bad unless the archive, or the DCP folder with its ``meta.pt``, is whole.

    The step is in the name or unknown (``last.ckpt``): Lightning keeps it in the pickle."""
    if not entry.is_folder:
        return Judged(step_in(entry.name), whole_archive(entry.root, entry.name), Proof.STRUCTURE)
    with entry.root.folder(entry.name) as folder:
        size, proof = dcp.judge_folder(folder)
        size += whole_archive(folder, "meta.pt")
    return Judged(step_in(entry.name), size, proof)
