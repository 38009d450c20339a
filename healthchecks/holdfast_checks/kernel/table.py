"""One record of the kernel log in, a result or nothing out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from holdfast_checks.kernel.devices import Devices
from holdfast_checks.kernel.gpu import DRIVER_RULES, PEERMEM_RULES, SXID_RULES, init_failed
from holdfast_checks.kernel.host import HOST_RULES
from holdfast_checks.kernel.memory import MEMORY_RULES
from holdfast_checks.kernel.network import EFA_RULES, MLX5_RULES, WATCHDOG_RULES
from holdfast_checks.kernel.network_fs import NETWORK_FS_RULES
from holdfast_checks.kernel.pcie import PCIE_RULES
from holdfast_checks.kernel.rule import KernelRule
from holdfast_checks.kernel.storage import DISK_RULES, NVME_RULES
from holdfast_checks.kernel.xid import parse_live
from holdfast_checks.result import Result

_Starts = tuple[str, ...]
_KEY_CHARS = 2

_TABLE: tuple[tuple[_Starts, tuple[KernelRule, ...]], ...] = (
    (("nvidia-nvswitch",), SXID_RULES),
    (("nvidia-peermem ", "nvidia_peermem ", "nvidia-peermem: ", "nvidia_peermem: "), PEERMEM_RULES),
    (("NVRM: ",), DRIVER_RULES),
    (("efa ", "infiniband "), EFA_RULES),
    (("mlx5_core ",), MLX5_RULES),
    (("NETDEV WATCHDOG: ",), WATCHDOG_RULES),
    (("pcieport ",), PCIE_RULES),
    (("nvme nvme",), NVME_RULES),
    (("EXT4-fs ", "XFS (", "BTRFS", "blk_update_request: ", "I/O error, ", "critical ", "Buffer I/O "), DISK_RULES),
    (
        (
            "Out of memory: ",
            "INFO: ",
            "BUG: ",
            "watchdog: ",
            "NMI watchdog: ",
            "rcu: ",
            "kernel BUG at ",
            "Oops: ",
            "Internal error: ",
            "Unable to handle kernel ",
            "general protection fault, ",
            "Kernel panic ",
        ),
        HOST_RULES,
    ),
    (("mce: ", "[Hardware Error]", "Memory failure: ", "EDAC MC", *(f"{{{n}" for n in range(1, 10))), MEMORY_RULES),
    (("nfs: ", "NFS: ", "lockd: ", "LustreError: ", "Lustre: "), NETWORK_FS_RULES),
)
"""How the lines of some rules begin. No line of theirs begins otherwise."""


def _indexed() -> Mapping[str, tuple[tuple[_Starts, tuple[KernelRule, ...]], ...]]:
    found: dict[str, list[tuple[_Starts, tuple[KernelRule, ...]]]] = defaultdict(list)
    for starts, rules in _TABLE:
        for key in dict.fromkeys(start[:_KEY_CHARS] for start in starts):
            mine = tuple(start for start in starts if start.startswith(key))
            found[key].append((mine, rules))
    return {key: tuple(entries) for key, entries in found.items()}


_BY_START = _indexed()
"""First characters → what may begin so: an ordinary line costs one look-up and no pattern."""


def judge_record(message: str, devices: Devices, monotonic_s: float | None = None) -> Result | None:
    """Judge one message of this node's kernel log; None when it is no fault.

    ``message`` is the record without its prefix; the caller has checked that the facility is the kernel's. ``monotonic_s``: the
    record's time. A line that a user can bring about never becomes a fault: see :class:`~holdfast_checks.kernel.rule.KernelRule`."""
    entries = _BY_START.get(message[:_KEY_CHARS])
    if entries is None:
        return None
    for starts, rules in entries:
        if not message.startswith(starts):
            continue
        if rules is DRIVER_RULES:
            found = parse_live(message, devices.gpus, monotonic_s=monotonic_s)
            found = found or init_failed(message, devices, monotonic_s)
            if found is not None:
                return found
        return _first(rules, message, devices, monotonic_s)
    return None


def rules() -> Iterable[KernelRule]:
    """Every rule, for tests and the reference."""
    return (rule for _starts, rules in _TABLE for rule in rules)


def _first(rules: tuple[KernelRule, ...], message: str, devices: Devices, monotonic_s: float | None) -> Result | None:
    for rule in rules:
        if (result := rule.judge(message, devices, monotonic_s)) is not None:
            return result
    return None
