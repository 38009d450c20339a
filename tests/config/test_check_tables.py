"""A site's settings for its health checks in ``agent.toml`` reach them."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast.agent.sources.checks import settings_of
from holdfast.config.agent import AgentConfig
from holdfast_checks.settings import CheckSettings

TABLES = sorted(f.name for f in dataclasses.fields(CheckSettings) if f.default_factory is not dataclasses.MISSING)


@pytest.mark.parametrize("table", TABLES)
def test_the_agent_takes_the_table_and_hands_it_on(table: str) -> None:
    config = AgentConfig()
    assert getattr(settings_of(config), table) is getattr(config, table)


def test_there_are_tables() -> None:
    assert {"gpu", "host", "network", "custom"} <= set(TABLES)
