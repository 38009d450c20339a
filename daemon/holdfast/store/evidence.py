"""Evidence bundles, stored off the node: a reboot or replacement destroys the node's own copy."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from holdfast.model.agents.report import OrderOutcome
from holdfast.store import tables as t


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """One bundle as the agent sent it."""

    incident_id: str
    node: str
    received_at: datetime
    bundle: bytes
    """A tar.gz from a node, not trusted: list it before unpacking."""


def keep(connection: Connection, incident_id: str, node: str, said: OrderOutcome) -> None:
    """Store an outcome's bundle, if any, in a separate table: outcomes are read in every cycle, bundles only on request."""
    if said.bundle:
        row = {"incident_id": incident_id, "node": node, "received_at": said.at, "bundle": said.bundle}
        connection.execute(t.evidence.insert(), row)


def of_incident(connection: Connection, incident_id: str) -> StoredEvidence | None:
    """The newest bundle; None: there is none."""
    newest = select(t.evidence).where(t.evidence.c.incident_id == incident_id).order_by(t.evidence.c.id.desc()).limit(1)
    row = connection.execute(newest).mappings().first()
    return StoredEvidence(row["incident_id"], row["node"], row["received_at"], row["bundle"]) if row else None
