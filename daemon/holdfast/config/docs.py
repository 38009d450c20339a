"""Sentences about settings: from ``option()`` where there is one, else from the attribute's docstring in the source."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Mapping
from typing import Any

_MORE: Mapping[str, str] = {
    "BrakePolicy.drains_10min": "New automatic drains in 10 minutes before they stop (the greater of this and the share).",
    "BrakePolicy.drains_10min_share": "The same as a share of the fleet (nodes with an agent that are not asleep).",
    "BrakePolicy.drains_60min": "New automatic drains in 60 minutes before they stop (the greater of this and the share).",
    "BrakePolicy.drains_60min_share": "The same as a share of the fleet (nodes with an agent that are not asleep).",
    "DeathPolicy.probe_timeout_s": "How long a peer's attempt to reach a silent node may take.",
    "JobPolicy.attribution_before_s": "A job's end is attributed to a fault that came up to this long before it (Meta RSC).",
    "JobPolicy.attribution_after_s": "A fault found up to this long after a job's end spares its nodes the probes; it restarts no job.",
    "JobPolicy.suspect_nodes": "Nodes that fail under one job, by faults of one class that programs can cause, before the job is the "
    "suspect.",
    "JobPolicy.suspect_window_s": "Window of that count.",
    "JobPolicy.consent_qos": "QOS whose running jobs Holdfast may stop before they fail.",
    "RepairPolicy.validate_timeout_s": "Time for a machine to prove itself before the attempt counts as failed.",
    "RepairPolicy.stop_start_timeout_s": "From the order to stop and start a machine to its agent's first report.",
    "RepairPolicy.group_window_s": "Window of that count and share.",
    "RepairPolicy.quiet_s": "Time without a finding before a validated node serves.",
    "RepairPolicy.attempts": "Attempts of the ladder before an operator is notified.",
    "RepairPolicy.backoff_max_s": "Longest pause between two attempts.",
    "RepairPolicy.terminations_per_hour": "Machines ended (terminated, exchanged in place) in an hour at most, or the share below.",
    "RepairPolicy.terminations_per_day": "The same in 24 hours.",
    "RepairPolicy.cycles_per_hour": "Machines rebooted, or stopped and started, in an hour at most, or the share below.",
    "RepairPolicy.cycles_per_day": "The same in 24 hours.",
    "RepairPolicy.launches_per_hour": "Machines launched in an hour at most, or the share below.",
    "RepairPolicy.launches_per_day": "The same in 24 hours.",
    "RepairPolicy.budget_hour_share": "The same numbers for an hour as a share of the fleet; the greater of the two holds.",
    "RepairPolicy.budget_day_share": "The same for 24 hours.",
    "RepairPolicy.budget_cluster_share": "Most different nodes in 24 hours, as a share of the fleet; always one.",
    "RepairPolicy.return_as_spare": "A repaired node becomes a spare when one was used up for it.",
    "Policy.action_backoff_s": "First pause after a failed step; doubles.",
    "Ec2Settings.region": "AWS region.",
    "Ec2Settings.version": "Version of the launch template.",
    "Ec2Settings.endpoint_url": "Another endpoint than AWS's own, or that of AWS_ENDPOINT_URL in the environment.",
    "Ec2Settings.offers": "Ways to get a machine, tried in order; none: the launch template as it is.",
    "Ec2Settings.tags": "Keys of the tags by which Holdfast knows its machines.",
    "Ec2Settings.connect_timeout_s": "Time for a connection to AWS.",
    "Ec2Settings.read_timeout_s": "Time for an answer of AWS; RunInstances may take more than 10 s.",
    "HyperpodSettings.region": "AWS region.",
    "HyperpodSettings.endpoint_url": "Another endpoint than AWS's own, or that of AWS_ENDPOINT_URL in the environment.",
    "HyperpodSettings.connect_timeout_s": "Time for a connection to AWS.",
    "HyperpodSettings.read_timeout_s": "Time for an answer of AWS.",
    "HyperpodSettings.page_size": "ListClusterNodes' MaxResults, 1 to 100.",
}
"""Goes before the docstring: where there is none, or it explains a pair."""


def doc_of(kind: type[Any], field: dataclasses.Field[Any]) -> str:
    """One line on a setting; empty when it has none (a test refuses that)."""
    text = field.metadata.get("doc") or ""
    for base in kind.__mro__[:-1]:  # without object
        text = text or _MORE.get(f"{base.__name__}.{field.name}") or docstrings(base).get(field.name, "")
    return " ".join(str(text).replace("``", "").split())


def docstrings(kind: type[Any]) -> Mapping[str, str]:
    """Strings that follow an attribute or an enum's member in the class body, as documentation tools read them."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    docs: dict[str, str] = {}
    for here, after in itertools.pairwise(body):
        name = _attribute(here)
        if name and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            docs[name] = str(after.value.value)
    return docs


def _attribute(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""
