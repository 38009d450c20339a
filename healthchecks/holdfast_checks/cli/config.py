"""A site's settings for its nodes, read from the agent's ``agent.toml`` without the agent.

Keys at the top that only the agent knows are passed over. An unknown key in a table, a value of the wrong type or one out of its range is
an error, as it is for the agent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast_checks import acting_file
from holdfast_checks.acting import CheckPolicy, Lists
from holdfast_checks.settings import CheckSettings
from holdfast_checks.settings.schema import build, load
from holdfast_checks.settings.thresholds import with_thresholds

_RENAMED = {"gpu_count": "expected_gpus", "sysfs_path": "sysfs", "node": "slurmd_node"}
"""Keys of the file that have another name in :class:`CheckSettings`."""
_NOT_IN_THE_FILE = frozenset({"proc", *_RENAMED.values()})
_PATHS = ("state_dir", "kmsg_path", "pstore_path", "sysfs", "slurmd_pid_file", "slurm_conf")
"""Paths at the top; a relative one counts from the folder of the file."""
_STATE_DIR = Path("/var/lib/holdfast")
"""The agent's own default."""


@dataclass(frozen=True, slots=True)
class SiteChecks:
    """The settings of the checks, and the few keys of the agent that a run by hand obeys too."""

    settings: CheckSettings = field(default_factory=CheckSettings)
    nvml_library: str = ""
    nvml_deadline_s: float = 20.0
    nvml_env: dict[str, str] = field(default_factory=dict)
    disabled_checks: tuple[str, ...] = ()
    act_on: tuple[str, ...] | None = None
    observe_only: tuple[str, ...] = ()

    @property
    def acting(self) -> Lists:
        """Which checks act here: as the file says, and the controller, as its agent remembers it."""
        return _kept(self.settings).lists.on_a_node(self.act_on, self.observe_only)

    @property
    def off(self) -> tuple[str, ...]:
        """Checks that are not run: switched off in the file, or by the controller."""
        return (*self.disabled_checks, *_kept(self.settings).off)


def read(path: Path | None) -> SiteChecks:
    """None: the defaults. Raises OSError, ValueError in one line that names file and key."""
    if path is None:
        return SiteChecks()
    table = load(path)
    own = {key: value for key, value in table.items() if key not in _NOT_IN_THE_FILE}
    settings = build(
        {_RENAMED.get(key, key): value for key, value in own.items()}, CheckSettings, str(path), others_too=True
    )
    site = build(
        {key: value for key, value in own.items() if key != "settings"}, SiteChecks, str(path), others_too=True
    )
    folder = path.resolve().parent
    absolute = {name: folder / value for name in _PATHS if (value := getattr(settings, name)) is not None}
    settings = replace(settings, **absolute, expected_gpus=settings.expected_gpus or None)
    return replace(site, settings=with_thresholds(settings, _kept(settings).thresholds))


def _kept(settings: CheckSettings) -> CheckPolicy:
    """What the controller gave, as its agent remembers it."""
    return acting_file.kept(settings.state_dir or _STATE_DIR).policy
