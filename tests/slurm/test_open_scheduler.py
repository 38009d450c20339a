"""Choosing the twin."""

from __future__ import annotations

from typing import Protocol

import pytest

from holdfast.model.errors import ConfigError, Unavailable
from holdfast.ports import Scheduler
from holdfast.slurm import open_scheduler, pyslurm_twin
from holdfast.slurm.commands import SlurmCommands
from holdfast.slurm.pyslurm_twin import SlurmPyslurm


class Choose(Protocol):
    def __call__(self, client: str, *, installed: str | None, running: str | None) -> Scheduler: ...


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Choose:
    """Answer as a machine would on which this pyslurm is installed and this release runs; None: missing, or away."""

    def choose(client: str, *, installed: str | None, running: str | None) -> Scheduler:
        def version(_: SlurmCommands) -> str:
            if running is None:
                raise Unavailable("slurmctld is away")
            return running

        monkeypatch.setattr(pyslurm_twin, "installed_version", lambda: installed)
        monkeypatch.setattr(SlurmCommands, "version", version)
        return open_scheduler(client)

    return choose


@pytest.mark.parametrize(
    ("client", "installed", "running", "twin"),
    [
        ("commands", "24.11.0", "24.11.5", SlurmCommands),
        ("auto", None, "24.11.5", SlurmCommands),
        ("auto", "24.11.0", "24.11.5", SlurmPyslurm),
        ("auto", "24.11.0", "25.05.1", SlurmCommands),
        ("auto", "24.11.0", None, SlurmCommands),
        ("pyslurm", "24.11.0", "24.11.5", SlurmPyslurm),
        ("pyslurm", "24.11.0", None, SlurmPyslurm),
    ],
)
def test_which_twin(choose: Choose, client: str, installed: str | None, running: str | None, twin: type) -> None:
    assert type(choose(client, installed=installed, running=running)) is twin


@pytest.mark.parametrize(
    ("client", "installed", "running", "words"),
    [
        ("restd", None, "24.11.5", "'restd' is none of auto, commands, pyslurm"),
        ("pyslurm", None, "24.11.5", "pyslurm is not installed"),
        ("pyslurm", "24.11.0", "25.05.1", "pyslurm 24.11.0 was not made for Slurm 25.05.1"),
    ],
)
def test_what_is_refused(choose: Choose, client: str, installed: str | None, running: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        choose(client, installed=installed, running=running)
