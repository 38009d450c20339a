"""Whether users of this machine reach EC2's instance metadata and with it the machine's role, on the head node often the actor's."""

from __future__ import annotations

import os
import re
from pathlib import Path

from holdfast.doctor.facts import MetadataFacts
from holdfast_checks.probes import sysfs as files
from holdfast_checks.probes.imds import base_url, on_ec2
from holdfast_checks.probes.imds_users import addresses, try_as_user
from holdfast_checks.registry import NotApplicable, NotGathered
from holdfast_checks.settings import CheckSettings


def meant_open(etc: Path = Path("/etc/holdfast")) -> bool:
    """Whether the installation was configured to leave it open (lifecycle-scripts/metadata.sh)."""
    said = os.environ.get("HOLDFAST_HEAD_METADATA", "")
    try:
        settings = (etc / "enrol.conf").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        settings = []
    for line in settings:
        key, _, value = line.partition("=")
        if key == "HOLDFAST_HEAD_METADATA":
            said = said or value.strip().strip("'\"")
    return said == "open" or (not said and (etc / "metadata.open").exists())


def metadata(settings: CheckSettings | None = None) -> MetadataFacts | None:
    """None: this is no machine of EC2, or it could not be found out although root asked."""
    try:
        bases = addresses(base_url(settings or CheckSettings()))
    except NotApplicable:
        return None
    if os.geteuid() != 0:
        return MetadataFacts(tried=False)
    try:
        return MetadataFacts(True, try_as_user(bases).addresses, meant_open())
    except NotGathered:
        return None


def own_id(settings: CheckSettings | None = None) -> str:
    """This machine's id on EC2, by its firmware; empty: it is none of EC2, or the firmware does not say (machines without Nitro)."""
    settings = settings or CheckSettings()
    told = files.text(f"{settings.sysfs}/class/dmi/id/board_asset_tag") or ""
    return told if on_ec2(settings) and re.fullmatch(r"i-[0-9a-f]{8,17}", told) else ""
