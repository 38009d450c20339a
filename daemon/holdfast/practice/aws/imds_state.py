"""State of one machine's emulated instance metadata, a file in the machine's folder. Standard library only."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast_checks.whole_file import write_whole

FILE = "imds.json"
ENDPOINT = "imds.endpoint"
"""File in the cluster's folder ``run`` with the service's address."""


def read(machine: Path) -> dict[str, Any]:
    """State of the machine in that folder; empty where nothing is planned."""
    try:
        said: dict[str, Any] = json.loads((machine / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return said


def change(machine: Path, **pieces: Any) -> None:
    """Set keys; None removes one. ``spot``, ``rebalance``, ``scheduled``, ``history``, ``away``, ``tags``."""
    said = {key: value for key, value in {**read(machine), **pieces}.items() if value is not None}
    write_whole(machine / FILE, json.dumps(said, indent=1) + "\n")


def spot(action: str, at: datetime) -> dict[str, str]:
    """Content of ``spot/instance-action``."""
    return {"action": action, "time": f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"}


def event(code: str, text: str, at: datetime, until: datetime, number: str) -> dict[str, str]:
    """One entry of ``events/maintenance/scheduled``."""
    return {
        "NotBefore": f"{at.astimezone(UTC):%d %b %Y %H:%M:%S GMT}",
        "Code": code,
        "Description": text,
        "EventId": number,
        "NotAfter": f"{until.astimezone(UTC):%d %b %Y %H:%M:%S GMT}",
        "State": "active",
    }


def url_of(cluster: Path, machine: Path) -> str:
    """Metadata URL for that machine's agent: the service identifies machines by the first part of the path. Empty where none runs."""
    try:
        endpoint = (cluster / "run" / ENDPOINT).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    return f"{endpoint}/{machine.resolve().relative_to(cluster.resolve())}"
