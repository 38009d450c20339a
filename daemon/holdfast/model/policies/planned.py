"""Policy on planned stops. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.settings.option import option


@dataclass(frozen=True, slots=True)
class PlannedPolicy:
    act_before_s: float = option(
        3600.0,
        "How long before announced maintenance (reboot, stop, retirement) the node is taken out of service and its "
        "jobs are moved; until then it is only watched. An interruption of spot capacity is acted upon at once.",
    )
    impaired_s: float = option(
        300.0,
        "A provider's status check that fails for this long is acted upon (EC2 checks every minute, and is late after "
        "a reboot).",
    )
    margin_s: float = option(
        45.0,
        "Kept for the stop and the restart of a job before its machine goes: Slurm's KillWait (30 s), and 15 s to "
        "start elsewhere.",
    )
    capacity_save_s: float = option(
        600.0,
        "How long before the end of a capacity block or reservation the jobs there are asked to save; no machine is "
        "replaced, as a new one would end, too.",
    )
