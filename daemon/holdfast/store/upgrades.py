"""Conversion of documents of earlier releases to this release's form. Pure.

One function for each class whose fields have changed: it gets the stored document and returns one that this release's dataclass
accepts. It must not change documents of this release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.model.agents.answers import with_refusal
from holdfast.model.incidents.observed import would_be
from holdfast_checks.result import Grade, Severity

_Document = Mapping[str, Any]

_GROUNDS = {
    "it failed by itself": "failed",  # word: as earlier releases wrote it
    "it lost the node": "node_lost",
    "registered checkpoint": "checkpoint",
    "job option": "opt_in",
    "elastic job": "elastic",
}
_POLICIES = {"policy of partition ": "partition", "policy of QOS ": "qos"}


def _recovery(document: _Document) -> _Document:
    """Add ``ground``, which was only part of the text of ``consent``. An unknown text gives none: the job-stop brake counts it."""
    if "ground" in document:
        return document
    said = str(document.get("consent", ""))
    policies = (ground for words, ground in _POLICIES.items() if said.startswith(words))
    return {**document, "ground": _GROUNDS.get(said) or next(policies, None)}


def _set_down(document: _Document) -> _Document:
    """Add ``node_dead``, which was only part of the reason: a dead node's headline started with the name of its check."""
    if "node_dead" in document:
        return document
    return {**document, "node_dead": "node.dead" in str(document.get("reason", ""))}


def _finding(document: _Document) -> _Document:
    """Add ``failed``, which the verdict implied; ``would_severity`` and ``would_remedy``, which were only in the evidence."""
    if "failed" in document and "would_severity" in document:
        return document
    grade = Grade.read(*map(document.get, ("verdict", "severity", "remedy"))) or Grade.of(Severity.WARNING)
    severity, remedy = would_be(document.get("evidence") or {}, grade.severity, grade.remedy) or (None, None)
    return {**document, "failed": grade.failed, "would_severity": severity, "would_remedy": remedy}


def _intent(document: _Document) -> _Document:
    """Add the agent's refusal of an order, which was only part of the outcome's text."""
    action, result = document.get("action"), document.get("result")
    if document.get("state") != "failed":
        return document
    if not isinstance(action, Mapping) or action.get("type") != "SendOrder" or not isinstance(result, Mapping):
        return document
    return {**document, "result": with_refusal(result, str(document.get("outcome", "")))}


_KINDS = {
    "job.unexplained": "unexplained",
    "job.hung": "hang",
    "job.straggler": "straggler",
    "node.silent": "silence",
    "node.dead": "silence",
    "probe.pair": "pair",
    "store.adopted": "adopted",
}
_ABOUT_JOBS = frozenset({"unexplained", "hang", "straggler"})


def _incident(document: _Document) -> _Document:
    """Add ``kind`` and ``pair_probed``, which followed only from ``check`` and other fields."""
    if "kind" in document:
        return document
    kind = _kind(document)
    probed = document.get("check") == "job.unexplained" and kind in _ABOUT_JOBS
    return {**document, "kind": kind, "pair_probed": probed}


def _kind(document: _Document) -> str:
    """The kind that the incident was opened with, if its row shows it; otherwise one that is handled in the same way."""
    shown = _KINDS.get(str(document.get("check")))
    if not _has_what(document, shown):
        shown = None
    if shown == "unexplained":  # the headline still starts with the first check of a job that hung or was slow
        first = _KINDS.get(str(document.get("headline")).partition(":")[0])
        return first if first in _ABOUT_JOBS else shown
    if shown in _ABOUT_JOBS:
        return shown
    if document.get("notice"):
        return "notice"
    if document.get("job") and document.get("boot_id"):  # an incident about a job itself has no machine
        return "pair"
    return shown or "fault"


def _has_what(document: _Document, kind: str | None) -> bool:
    """Whether the row has the fields of every incident of that kind: the check's name alone may have come from an agent."""
    match kind:
        case "unexplained" | "hang" | "straggler" | "pair":
            return bool(document.get("job"))
        case "adopted":
            return not document.get("boot_id")
        case "silence":
            return bool(document.get("dead")) or document.get("state") in ("suspected", "closed")
        case _:
            return True


UPGRADES: Mapping[str, Callable[[_Document], _Document]] = {
    "Finding": _finding,
    "Incident": _incident,
    "Intent": _intent,
    "Recovery": _recovery,
    "SetDown": _set_down,
}
"""By class name."""


def upgraded(document: _Document) -> _Document:
    """The document as this release would have written it."""
    upgrade = UPGRADES.get(str(document.get("type")))
    return upgrade(document) if upgrade is not None else document
