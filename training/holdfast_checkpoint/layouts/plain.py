"""Plain ``torch.save``: ``ckpt_120.pt``, or ``step_120/`` with one such file and nothing else that could hold weights.

A folder with several files has no mark that its save is finished, and one of a library that is not known has none that could be read: both
are *unreadable*, so that a job does not start afresh beside them.
"""

from __future__ import annotations

import re

from holdfast_checkpoint.confined import Bad
from holdfast_checkpoint.layouts.common import Entry, Judged, step_in, whole_archive
from holdfast_checkpoint.model import Proof, Verdict

ARCHIVE = re.compile(r"\S+\.(?:pt|pth)")
WEIGHTS = re.compile(r"\S+\.(?:pt|pth|ckpt|safetensors|distcp)|\S*model\S*\.bin")
"""Names of files that hold weights, in any layout."""
_NOTES = re.compile(r"\S+\.(?:json|ya?ml|txt|log|md)")


def judge(entry: Entry) -> Judged:
    """Raises Bad unless it is one whole archive; of kind UNREADABLE where that cannot be told."""
    if not entry.is_folder:
        return Judged(step_in(entry.name), whole_archive(entry.root, entry.name), Proof.STRUCTURE)
    with entry.root.folder(entry.name) as folder:
        others = [name for name in folder.names() if not _NOTES.fullmatch(name)]
        archives = [name for name in others if ARCHIVE.fullmatch(name)]
        if len(others) == 1 and archives:
            return Judged(step_in(entry.name), whole_archive(folder, archives[0]), Proof.STRUCTURE)
    if len(archives) > 1:
        raise Bad(Verdict.UNREADABLE, f"{len(archives)} archives and no mark that says when the save is finished")
    raise Bad(Verdict.UNREADABLE, f"in no known layout ({', '.join(others[:3])})")
