"""What `[enrolment]` needs to be safe."""

from __future__ import annotations

import re
import urllib.parse

from holdfast.config.binding import is_loopback
from holdfast.config.sections import EnrolmentSection
from holdfast.model.errors import ConfigError

_ROLE = re.compile(r"\d{12}/[\w+=,.@-]{1,64}", re.ASCII)
_STS = re.compile(
    r"sts(-fips)?\.[a-z0-9-]+\.(amazonaws\.com(\.cn)?|api\.aws)|[a-z0-9-]+\.sts\.[a-z0-9-]+\.vpce\.amazonaws\.com"
)
"""A region's endpoint, or a VPC's own."""


def check_enrolment(section: EnrolmentSection, where: str) -> None:
    """Raises ConfigError. What is off may be empty."""
    if not section.enabled:
        return
    for key in ("names", "roles"):
        if not getattr(section, key):
            raise ConfigError(f"{where}.{key}: is empty, so no node could enrol")
    for name in section.names:
        if not _secure(name):
            raise ConfigError(f"{where}.names: {name!r} is no https:// URL of this controller")
    for role in section.roles:
        if not _ROLE.fullmatch(role):
            raise ConfigError(f"{where}.roles: {role!r} is none such as 111122223333/gpu-node")
    if not _is_sts(section.sts_url):
        raise ConfigError(
            f"{where}.sts_url: {section.sts_url!r} is no regional endpoint of STS, such as https://sts.us-west-2.amazonaws.com"
        )


def _secure(url: str) -> bool:
    parts = _split(url)
    if parts is None or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))


def _is_sts(url: str) -> bool:
    """Nothing else is ever asked: what is sent there a node has made. An emulator on loopback counts."""
    parts = _split(url)
    if parts is None or not _secure(url):
        return False
    if parts.scheme == "http":
        return True
    return parts.port is None and _STS.fullmatch(parts.hostname or "") is not None


def _split(url: str) -> urllib.parse.SplitResult | None:
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts
