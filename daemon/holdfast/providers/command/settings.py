"""Settings of the provider ``command`` as plain data. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from holdfast.model.errors import ConfigError
from holdfast.providers.kind import MAX_DEADLINE_S
from holdfast_checks.settings.option import option, required


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """Settings of the provider ``command``: a site's own script, see ``docs/providers.md``."""

    cluster: str = required("Name of the cluster, passed to the script; may be empty.")
    command: tuple[str, ...] = required(
        "A list: the program by its absolute path, then arguments that go before the verb."
    )
    deadline_s: float = option(
        60.0,
        "Time for one call; then the script's process group is killed. A site's long work continues in the background and is "
        "seen in status.",
    )

    def __post_init__(self) -> None:
        if not self.command:
            raise ConfigError("provider command: command is empty; name the script by its absolute path")
        if not PurePosixPath(self.command[0]).is_absolute():
            raise ConfigError(f"provider command: command {self.command[0]!r} is not an absolute path")
        if any("\0" in word for word in self.command):
            raise ConfigError("provider command: command holds a NUL character")
        if not 1 <= self.deadline_s <= MAX_DEADLINE_S:
            raise ConfigError(
                f"provider command: deadline_s is {self.deadline_s:g}, not between 1 and {MAX_DEADLINE_S:g}"
            )
