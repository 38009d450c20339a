"""``[dashboard] hosts``: names, and nothing else."""

from __future__ import annotations

import pytest

from holdfast.config.dashboard import check_dashboard
from holdfast.config.sections import DashboardSection
from holdfast.model.errors import ConfigError


@pytest.mark.parametrize("name", ["head", "holdfast.example.org", "HEAD-1.example.org."])
def test_a_name_is_taken(name: str) -> None:
    check_dashboard(DashboardSection(hosts=(name,)), "controller.toml: dashboard")


@pytest.mark.parametrize("name", ["", "head:8460", "https://head", "*.example.org", "head/ui", "a b", "-x", "x" * 254])
def test_what_no_browser_sends_as_a_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a host name"):
        check_dashboard(DashboardSection(hosts=(name,)), "controller.toml: dashboard")
