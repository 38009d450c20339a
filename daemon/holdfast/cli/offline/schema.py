"""The JSON schema of what ``--json`` prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer

from holdfast import __version__
from holdfast.model.errors import Usage

_API = "holdfast.api"
SHAPES: Mapping[str, tuple[str, str]] = {
    "audit": (f"{_API}.answers.shapes", "EventsShape"),
    "budget show": (f"{_API}.orders.budgets", "BudgetsShape"),
    "checks": (f"{_API}.check_policy.checks", "ChecksShape"),
    "checks what-if": (f"{_API}.answers.policy_shapes", "WhatIfShape"),
    "incident show": (f"{_API}.answers.shapes", "IncidentStory"),
    "incidents": (f"{_API}.answers.shapes", "IncidentsShape"),
    "jobs": (f"{_API}.answers.job_shapes", "JobsShape"),
    "lemons": (f"{_API}.shown.history_shapes", "LemonsShape"),
    "maintain": (f"{_API}.answers.operator_shapes", "WindowsShape"),
    "metrics": (f"{_API}.answers.shapes", "MetricsShape"),
    "night": (f"{_API}.answers.overview_shapes", "NightShape"),
    "node health": (f"{_API}.shown.history_shapes", "NodeHealthShape"),
    "node history": (f"{_API}.shown.history_shapes", "NodeHistoryShape"),
    "node sheet": (f"{_API}.shown.history_shapes", "NodeSheetShape"),
    "nodes": (f"{_API}.answers.node_shapes", "ClusterShape"),
    "nodes NODE": (f"{_API}.answers.node_shapes", "NodeStory"),
    "notices": (f"{_API}.answers.notice_shapes", "NoticesShape"),
    "plan": ("holdfast.cli.offline.plan_shape", "PlanShape"),
    "policy diff": (f"{_API}.answers.policy_shapes", "WhatIfShape"),
    "policy show": (f"{_API}.answers.policy_shapes", "PolicyShape"),
    "proposals": (f"{_API}.answers.proposal_shapes", "ProposalsShape"),
    "saved": (f"{_API}.answers.overview_shapes", "SavedShape"),
    "spares": (f"{_API}.answers.node_shapes", "SparesShape"),
    "status": (f"{_API}.answers.overview_shapes", "OverviewShape"),
    "status --parts": (f"{_API}.answers.status_shapes", "StatusShape"),
    "suppressions": (f"{_API}.answers.operator_shapes", "SuppressionsShape"),
    "why": (f"{_API}.answers.job_shapes", "WhyShape"),
}
"""Command → module and class of what it prints: the controller's answer as it is; of ``plan`` what the command line computes."""
_NOT_OF_THE_CONTROLLER = "checkpoint, doctor, practice, submit, tls and token print what this release alone defines"


def schema(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Such as nodes, or incident show; none: list them.")
    ] = None,
) -> None:
    """The JSON schema of what a command prints with --json. A newer controller may add fields; none is ever taken away within a release
    series."""
    wanted = " ".join(command or ())
    if not wanted:
        for name in SHAPES:
            typer.echo(name)
        return
    if wanted not in SHAPES:
        near = get_close_matches(wanted, SHAPES, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; `holdfast schema` lists them ({_NOT_OF_THE_CONTROLLER})"
        raise Usage(f"there is no schema of {wanted!r}{hint}")
    sys.stdout.write(json.dumps(schema_of(wanted), indent=2) + "\n")


def schema_of(command: str) -> Any:
    """Of a command in :data:`SHAPES`. Fields that an older controller does not send are not required."""
    module, name = SHAPES[command]
    made: Callable[..., Any] = getattr(import_module(module), name).model_json_schema
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:holdfast:{__version__}:{command.replace(' ', '-')}",
    }
    return {**about, **made(mode="serialization")}
