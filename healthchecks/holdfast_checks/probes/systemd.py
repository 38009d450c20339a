"""What systemd says of a unit. Asked in a child with a deadline; standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.probes.child import CHILDREN, Hung
from holdfast_checks.registry import NotGathered

DEADLINE_S = 5.0
RUNS = Path("/run/systemd/system")
"""A folder where systemd is process 1 (sd_booted(3))."""
_PROPERTIES = {
    "LoadState": "load",
    "ActiveState": "active",
    "SubState": "sub",
    "Result": "result",
    "Job": "job",
    "MainPID": "main_pid",
}


@dataclass(frozen=True, slots=True)
class UnitState:
    """One unit as ``systemctl show`` prints it; a property that it leaves out is empty."""

    load: str = ""
    """``loaded``, ``not-found``, ``masked``."""
    active: str = ""
    """``active``, ``inactive``, ``failed``, ``activating``, …"""
    sub: str = ""
    """``running``, ``dead``, ``auto-restart``, …"""
    result: str = ""
    """How its last run ended: ``success``, ``signal``, ``oom-kill``, …"""
    job: str = ""
    """Number of a start or stop that is queued; ``0`` or empty: none."""
    main_pid: str = ""


def unit_state(systemctl: str, unit: str) -> UnitState | None:
    """None: systemd does not run here, or knows no such unit. Raises NotGathered when it gives no answer, OSError."""
    if not RUNS.is_dir() and "/" not in systemctl:
        return None
    argv = [systemctl, "show", f"--property=Names,{','.join(_PROPERTIES)}", "--", unit]
    done = CHILDREN.run(f"systemctl {unit}", argv, DEADLINE_S)
    if isinstance(done, Hung):
        raise NotGathered(f"systemctl has not answered within {DEADLINE_S:g} s")
    if done.status:
        raise NotGathered(f"systemctl: {done.complaint}")
    return parse(done.text, unit)


def parse(output: str, unit: str) -> UnitState | None:
    """The block of ``Name=value`` lines whose Names have this unit; None: there is none, or it is not installed."""
    for block in output.strip().split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if unit in values.get("Names", "").split():
            state = UnitState(**{mine: values.get(theirs, "") for theirs, mine in _PROPERTIES.items()})
            return None if state.load == "not-found" else state
    return None
