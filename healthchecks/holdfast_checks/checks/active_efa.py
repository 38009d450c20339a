"""``active.efa``: every EFA device with itself, by libfabric."""

from __future__ import annotations

from holdfast_checks.active.check import Calls, active_check
from holdfast_checks.registry import Need
from holdfast_checks.result import Remedy, Severity

CHECK = active_check(
    "efa",
    "Each EFA device carries data to itself fast enough",
    Calls((Severity.DEGRADED, Remedy.HUMAN), (Severity.DEGRADED, Remedy.HUMAN)),
    frozenset({Need.NETWORK, Need.COMMAND}),
)
