"""Enrolment of a node by its machine's identity on AWS (ADR 27): the node's request, the answer of STS, and the decision. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from holdfast.model.book import Book

STS_BODY = "Action=GetCallerIdentity&Version=2011-06-15"
"""Request that the node signs and the controller sends: the node chooses no part of it."""
CONTENT_TYPE = "application/x-www-form-urlencoded; charset=utf-8"
CONTROLLER_HEADER, NODE_HEADER = "X-Holdfast-Controller", "X-Holdfast-Node"
SIGNED = frozenset(
    {"content-type", "host", "x-amz-date", "x-amz-security-token", "x-holdfast-controller", "x-holdfast-node"}
)
"""Headers that the signature covers, exactly these: a signature made for another purpose is not valid here, nor the other way round."""
PROOF_S = 300.0
"""A proof counts for this long after it was signed, and as long before, by this machine's clock."""
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[A-Z0-9]{16,128}/(?P<day>\d{8})/[a-z0-9-]{1,32}/sts/aws4_request, ?"
    r"SignedHeaders=(?P<headers>[a-z0-9;-]{1,300}), ?Signature=[0-9a-f]{64}"
)
_ARN = re.compile(
    r"<Arn>arn:aws(?:-[a-z-]{1,10})?:sts::(?P<account>\d{12}):assumed-role/(?P<role>[\w+=,.@-]{1,64})/(?P<session>[\w+=,.@-]{1,64})</Arn>",
    re.ASCII,
)
_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")


@dataclass(frozen=True, slots=True)
class EnrolmentProof:
    """A node's signed question to STS who it is."""

    node: str
    controller: str
    """URL of the controller that it is for, as the node knows it."""
    date: str
    """``20260301T120000Z``."""
    authorization: str
    security_token: str


@dataclass(frozen=True, slots=True)
class StsIdentity:
    """Identity that signed it, as STS reports it."""

    account: str
    role: str
    instance_id: str
    """Of a role that EC2 alone may take on, the session is named by the instance."""

    @property
    def who(self) -> str:
        """``ACCOUNT/ROLE``, as ``enrolment.roles`` names it."""
        return f"{self.account}/{self.role}"


def why_not_sent(proof: EnrolmentProof, names: Collection[str], now: datetime) -> str:
    """Reason not to ask STS about this, in one line; empty: there is none."""
    if proof.controller.rstrip("/") not in {name.rstrip("/") for name in names}:
        return f"it is for the controller {proof.controller}, which is none of enrolment.names"
    found = _AUTHORIZATION.fullmatch(proof.authorization)
    if found is None:
        return "authorization is no signature of AWS (SigV4) for STS"
    if set(found["headers"].split(";")) != SIGNED:
        return f"the signature must cover {', '.join(sorted(SIGNED))}, and no other header"
    try:
        signed_at = datetime.strptime(proof.date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return "date is none such as 20260301T120000Z"
    if found["day"] != proof.date[:8] or abs(now - signed_at) > timedelta(seconds=PROOF_S):
        return f"it was signed at {proof.date}; it counts for {PROOF_S:.0f} s (are both clocks right?)"
    return ""


def read_identity(answer: str) -> StsIdentity | None:
    """Identity from the answer of STS; None: this is no instance of EC2 (a user, a session of another name, no answer of STS)."""
    found = list(_ARN.finditer(answer))
    if len(found) != 1 or answer.count("<Arn>") != 1 or not _INSTANCE.fullmatch(found[0]["session"]):
        return None
    return StsIdentity(found[0]["account"], found[0]["role"], found[0]["session"])


def machines_of(book: Book, node: str) -> frozenset[str]:
    """Ids of the machines that serve the node or were launched for it, as far as the record knows."""
    record = book.nodes.get(node)
    found = {record.instance_id} if record is not None else set[str]()
    found |= {incident.serving_id for incident in book.incidents.values() if incident.node == node and incident.open}
    if book.provider is not None:
        found |= {machine.instance_id for machine in book.provider.on_trial if machine.node == node}
    return frozenset(found - {""})


def other_node_of(book: Book, instance_id: str, node: str) -> str:
    """Another node that this machine serves or was launched for; empty: none."""
    on_trial = book.provider.on_trial if book.provider is not None else ()
    names = {*book.nodes, *(i.node for i in book.incidents.values()), *(m.node for m in on_trial)} - {node}
    return next((name for name in sorted(names) if instance_id in machines_of(book, name)), "")


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the machine may have the node's token."""

    refused: str = ""
    """Reason to refuse no matter what an operator allowed; empty: there is none."""
    needs_allowance: bool = False
    """The record does not know the machine: an operator has to have allowed the node."""


def judge(book: Book, node: str, identity: StsIdentity, roles: Collection[str]) -> Judgement:
    """Decision by role and record. The store decides whether the machine has had a token already."""
    if identity.who not in roles:
        return Judgement(f"{identity.who} is none of enrolment.roles")
    if other := other_node_of(book, identity.instance_id, node):
        return Judgement(f"{identity.instance_id} is the machine of {other}")
    return Judgement(needs_allowance=identity.instance_id not in machines_of(book, node))
