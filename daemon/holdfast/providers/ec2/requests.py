"""EC2 requests and parsing of EC2's answers: pure functions, no calls."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from holdfast.model.errors import Rejected
from holdfast.providers.aws.instances import CANDIDATE
from holdfast.providers.ec2.settings import Ec2Settings, Offer, is_template_id

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import RunInstancesRequestTypeDef

CLIENT_TOKEN_MAX = 64
"""EC2's limit for a ClientToken, ASCII characters."""
_DIGEST_CHARS = 8
TOKEN_MAX = CLIENT_TOKEN_MAX - _DIGEST_CHARS - 1
"""Longest token of a caller, so that the offer's suffix fits."""


def client_token(token: str, settings: Ec2Settings, offer: Offer) -> str:
    """ClientToken of one attempt with one offer: the same for the same offer, whatever its place in the list.

    Raises Rejected for a token that is empty, too long or not ASCII."""
    if not token.isascii() or not token.isprintable() or not 0 < len(token) <= TOKEN_MAX:
        raise Rejected(f"a launch token has 1 to {TOKEN_MAX} printable ASCII characters, not {token!r}")
    facts = [asdict(offer), settings.cluster, settings.launch_template, settings.version]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return f"{token}-{digest[:_DIGEST_CHARS]}"


def run_request(
    settings: Ec2Settings, offer: Offer, *, node: str, incident: str, token: str, role: str = CANDIDATE
) -> RunInstancesRequestTypeDef:
    """RunInstances for one machine: the launch template, what the offer overrides, tags set in the same call."""
    template = offer.launch_template or settings.launch_template
    version = offer.version or (settings.version if not offer.launch_template else "$Default")
    tags = {"Name": node} | launch_tags(settings, node=node, incident=incident, token=token, role=role)
    request: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": client_token(token, settings, offer),
        "LaunchTemplate": {
            "LaunchTemplateId" if is_template_id(template) else "LaunchTemplateName": template,
            "Version": version,
        },
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}],
    }
    if offer.instance_type:
        request["InstanceType"] = offer.instance_type
    if offer.subnet_id:
        request["SubnetId"] = offer.subnet_id
    if offer.market:
        request["InstanceMarketOptions"] = {"MarketType": offer.market}
    if offer.capacity_reservation_id:
        target = {"CapacityReservationId": offer.capacity_reservation_id}
        request["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
    return request  # type: ignore[return-value]  # built key by key


def launch_tags(settings: Ec2Settings, *, node: str, incident: str, token: str, role: str) -> dict[str, str]:
    """Our tags of a machine at its launch: for which node, in which role, and whose it is."""
    keys = settings.tags
    return {
        keys.cluster: settings.cluster,
        keys.node: node,
        keys.incident: incident,
        keys.token: token,
        keys.role: role,
    }
