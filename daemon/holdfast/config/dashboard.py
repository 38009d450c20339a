"""Names under which browsers reach the controller, checked as settings are read."""

from __future__ import annotations

import re

from holdfast.config.sections import DashboardSection
from holdfast.model.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?")


def check_dashboard(section: DashboardSection, where: str) -> None:
    """Raises ConfigError for what no browser sends as a name: a URL, a port, a pattern."""
    for name in section.hosts:
        if len(name) > 253 or not _NAME.fullmatch(name):
            raise ConfigError(
                f"{where}: hosts: {name!r} is not a host name such as holdfast.example.org, without https:// and port"
            )
