"""Choosing the twin."""

from __future__ import annotations

import pytest

from holdfast.model.errors import ConfigError
from holdfast.slurm import open_scheduler
from holdfast.slurm.commands import SlurmCommands


@pytest.mark.parametrize("client", ["auto", "commands"])
def test_the_commands_twin(client: str) -> None:
    assert isinstance(open_scheduler(client), SlurmCommands)


@pytest.mark.parametrize("client", ["pyslurm", "restd"])
def test_what_is_refused(client: str) -> None:
    with pytest.raises(ConfigError, match=client):
        open_scheduler(client)
