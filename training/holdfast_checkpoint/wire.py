"""Surveys as JSON: for programs that read ``--json``, and between a daemon and its child process that reads as the user."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdfast_checkpoint.base.confined import printable
from holdfast_checkpoint.base.model import Checkpoint, CheckpointVerdict, Layout, Proof, Survey
from holdfast_checkpoint.base.runs import parse_run


def dump_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    """Unknown values are null."""
    return {
        "name": checkpoint.name,
        "path": checkpoint.path,
        "layout": checkpoint.layout.value,
        "verdict": checkpoint.verdict.value,
        "reason": checkpoint.reason,
        "step": checkpoint.step,
        "bytes": checkpoint.size_bytes,
        "mtime": checkpoint.mtime.isoformat() if checkpoint.mtime else None,
        "proof": checkpoint.proof.value if checkpoint.proof else None,
        "run": str(checkpoint.run) if checkpoint.run else None,
    }


def dump_survey(survey: Survey) -> dict[str, Any]:
    """Encode a survey; ``latest`` is the path to resume from, or null."""
    return {
        "directory": survey.directory,
        "latest": survey.latest.path if survey.latest else None,
        "candidates": [dump_checkpoint(c) for c in survey.candidates],
        "warnings": list(survey.warnings),
        "strays": list(survey.strays),
        "others": list(survey.others),
    }


def parse_checkpoint(value: Mapping[str, Any]) -> Checkpoint:
    """The inverse of :func:`dump_checkpoint` for an answer that a user's process may have made up. Raises ValueError."""
    texts = {key: value.get(key) for key in ("name", "path", "reason")}
    step, size = value.get("step"), value.get("bytes")
    if not all(isinstance(t, str) and len(t) <= 8192 and t == printable_all(t) for t in texts.values()):
        raise ValueError("a text that cannot be shown")
    if not (step is None or _number(step)) or not _number(size):
        raise ValueError("step or bytes")
    proof, run, mtime = value.get("proof"), value.get("run"), value.get("mtime")
    written = None if mtime is None else datetime.fromisoformat(str(mtime))
    if written is not None and written.tzinfo is None:
        raise ValueError("mtime without a zone")
    return Checkpoint(
        name=str(texts["name"]),
        path=str(texts["path"]),
        layout=Layout(str(value.get("layout"))),
        verdict=CheckpointVerdict(str(value.get("verdict"))),
        reason=str(texts["reason"]),
        step=step,
        size_bytes=int(str(size)),
        mtime=written,
        proof=None if proof is None else Proof(proof),
        run=None if run is None else parse_run(str(run)),
    )


def parse_survey(value: Mapping[str, Any]) -> Survey:
    """The inverse of :func:`dump_survey`. Raises ValueError."""
    candidates, warnings, directory = value.get("candidates"), value.get("warnings"), value.get("directory")
    strays, others = value.get("strays", []), value.get("others", [])
    if not (
        isinstance(candidates, list)
        and isinstance(warnings, list)
        and isinstance(directory, str)
        and isinstance(strays, list)
        and isinstance(others, list)
    ):
        raise ValueError("not a survey")
    return Survey(
        printable_all(directory),
        tuple(parse_checkpoint(c) for c in candidates if isinstance(c, dict)),
        tuple(printable(str(w)) for w in warnings[:100]),
        tuple(printable(str(s)) for s in strays[:100]),
        tuple(printable(str(o)) for o in others[:100]),
    )


def printable_all(text: str) -> str:
    """The text with control characters escaped, in full length."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _number(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63
