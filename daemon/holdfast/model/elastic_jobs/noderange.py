"""Node counts at which a job may run, as its Slurm comment declares them: ``sizes=2+4``. Pure; standard library only."""

from __future__ import annotations

import re

from holdfast.model.elastic_jobs.sizes import GROUPS_MAX, Sizes

_WORD = re.compile(r"sizes=(\d{1,6}(?:\+\d{1,6})*)", re.ASCII)


def node_sizes(comment: str) -> Sizes | None:
    """None: the comment declares none, or nothing that makes sense: then the job's size is left alone."""
    said = comment.replace(",", " ").split()  # rule prose: how users declare it
    words = [word for word in said if word.startswith("sizes=")]
    match = _WORD.fullmatch(words[0]) if len(words) == 1 else None
    if match is None:
        return None
    named = {int(part) for part in match[1].split("+")}
    return Sizes(tuple(sorted(named))) if all(1 <= size <= GROUPS_MAX for size in named) else None
