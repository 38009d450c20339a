"""What EC2 shows, over all pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.practice.aws.seed import open_ec2

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef


def machines(endpoint: str) -> dict[str, InstanceTypeDef]:
    """Instance id → instance, of everything that one describe shows."""
    pages = open_ec2(endpoint).get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 1000})
    return {
        raw.get("InstanceId", ""): raw for page in pages for r in page["Reservations"] for raw in r.get("Instances", [])
    }


def tags_of(raw: InstanceTypeDef) -> dict[str, str]:
    return {tag.get("Key", ""): tag.get("Value", "") for tag in raw.get("Tags", [])}


def state_of(raw: InstanceTypeDef) -> str:
    return str(raw.get("State", {}).get("Name"))
