"""Shipped profiles: named sets of other defaults. A key in the file goes before the profile's. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROFILES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "practice": {
        "brakes": {
            "drains_10min": 1000,
            "drains_60min": 1000,
            "stopped_jobs_60min": 1000,
            "stopped_gpu_share_60min": 100.0,
            "hang_stops_60min": 1000,
            "hang_stops_per_user_60min": 1000,
        },
        "repair": {
            "quiet_s": 1.0,
            "terminations_per_hour": 1000,
            "terminations_per_day": 1000,
            "cycles_per_hour": 1000,
            "cycles_per_day": 1000,
            "launches_per_hour": 1000,
            "launches_per_day": 1000,
            "budget_cluster_share": 1.0,
            "third_fault_window_s": 0,
            "group_window_s": 0,
            "rungs": ["replace"],
        },
        "spares": {"deep_from": "00:00", "deep_until": "00:00"},
        "hangs": {"act": "restart", "floor_s": 5.0, "settle_s": 15.0},
        "suspects": {"jobs_per_hour_per_user": 12, "size_mib": 1, "min_gigabytes_s": 0.0, "cluster_share": 1.0},
        "elastic": {"grow_after_idle_s": 1.0, "shrink_useless_after_s": 10.0, "settle_s": 2.0, "priority_wait_s": 5.0},
    }
}
"""``practice``: for the demo and the benches, where faults are thrown every minute: quiet time, brakes, ladder memory, and
every fault takes the longest way, a replacement; the nodes' one machine is slow where a network is fast, and
knows no night."""
