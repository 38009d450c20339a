"""What a site says about the traces that its kernels leave."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.settings.option import option


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """Table ``[kernel]`` of ``agent.toml``."""

    pstore_archive: Path = option(
        Path("/var/lib/systemd/pstore"), "Where crash records are moved at boot (systemd-pstore)."
    )
