"""Faults of EFA, InfiniBand and the kernel modules below them. The device is the machine's first unless the value names another."""

from __future__ import annotations

from pathlib import Path

from holdfast.model.errors import Rejected
from holdfast.practice.cluster.machine import PracticeMachine
from holdfast.practice.faults import PracticeFault
from holdfast.practice.hardware import network

_DROPS = 1_000_000
"""Above any threshold, whatever the time between two reads."""
_LAST_EFA = -1


def _sys(machine: PracticeMachine) -> Path:
    return machine.host.sysfs


def _device(machine: PracticeMachine, value: str, prefix: str, default: int = 0) -> Path:
    """The folder of the named device. Raises Rejected for one that does not exist."""
    found = sorted(_sys(machine).glob(f"class/infiniband/{prefix}*"), key=lambda path: (len(path.name), path.name))
    if not found:
        kind = "EFA devices" if prefix == "rdmap" else 'InfiniBand devices (put {"efa": 0, "ib": 8} into network.json)'
        raise Rejected(f"{machine.name} has no {kind}")
    names = {path.name: path for path in found}
    if value and value not in names:
        raise Rejected(f"{value!r} is none of {', '.join(names)}")
    return names[value] if value else found[default]


def _efa(machine: PracticeMachine, value: str) -> Path:
    return _device(machine, value, "rdmap")


def _ib(machine: PracticeMachine, value: str) -> Path:
    return _device(machine, value, "mlx5_")


def _heal(machine: PracticeMachine) -> None:
    network.restore(machine.host.folder)


def _gone(machine: PracticeMachine, value: str, _gpu: int) -> None:
    network.remove_device(_sys(machine), _device(machine, value, "rdmap", _LAST_EFA).name)


def _unbound(machine: PracticeMachine, value: str, _gpu: int) -> None:
    network.remove_device(_sys(machine), _device(machine, value, "rdmap", _LAST_EFA).name, from_the_bus=False)


def _no_completion(machine: PracticeMachine, value: str, _gpu: int) -> None:
    network.add(_efa(machine, value) / "hw_counters/no_completion_cmds", 1)


def _efa_port(machine: PracticeMachine, value: str, counter: str) -> None:
    network.add(_efa(machine, value) / "ports/1/hw_counters" / counter, _DROPS)


def _dead(machine: PracticeMachine, value: str, _gpu: int) -> None:
    network.add(_efa(machine, value) / "hw_counters/submitted_cmds", 8)


def _provider(machine: PracticeMachine, _value: str, _gpu: int) -> None:
    (machine.host.folder / network.NO_PROVIDER).touch()


def _carrier_down(machine: PracticeMachine, value: str, _gpu: int) -> None:
    name = value or network.netdev_of(0)
    folder = _sys(machine) / "class/net" / name
    if not folder.is_dir():
        raise Rejected(f"{machine.name} has no network device {name!r}")
    if (folder / "carrier").read_text().startswith("1"):
        network.write(folder / "carrier", 0)
        network.write(folder / "operstate", "down")
        network.add(folder / "carrier_changes", 1)
        network.add(folder / "carrier_down_count", 1)


def _carrier_flap(machine: PracticeMachine, value: str, _gpu: int) -> None:
    folder = _sys(machine) / "class/net" / (value or network.DEFAULT_ROUTE)
    if not folder.is_dir():
        raise Rejected(f"{machine.name} has no network device {folder.name!r}")
    network.add(folder / "carrier_changes", 6)
    network.add(folder / "carrier_down_count", 3)


def _ib_down(machine: PracticeMachine, value: str, _gpu: int) -> None:
    port = _ib(machine, value) / "ports/1"
    network.write(port / "state", "1: DOWN")
    network.write(port / "phys_state", "2: Polling")
    network.add(port / "counters/link_downed", 1)


def _ib_gone(machine: PracticeMachine, value: str, _gpu: int) -> None:
    network.remove_device(_sys(machine), _ib(machine, value).name)


def _ib_flap(machine: PracticeMachine, value: str, _gpu: int) -> None:
    network.add(_ib(machine, value) / "ports/1/counters/link_downed", 3)


def _ib_slow(machine: PracticeMachine, value: str, _gpu: int) -> None:
    network.write(_ib(machine, value) / "ports/1/rate", "200 Gb/sec (2X NDR)")


def _ib_errors(machine: PracticeMachine, value: str, _gpu: int) -> None:
    network.add(_ib(machine, value) / "ports/1/counters/symbol_error", _DROPS)


def _module_missing(machine: PracticeMachine, value: str, _gpu: int) -> None:
    folder = _sys(machine) / "module" / (value or "ib_uverbs")
    if not folder.is_dir():
        raise Rejected(f"no module {folder.name!r} is loaded on {machine.name}")
    folder.rmdir()


def _traffic(machine: PracticeMachine, value: str, _gpu: int) -> None:
    if not value.isdigit():
        raise Rejected(f"{value!r} is no number of GB")
    carried_bytes = int(value) * 10**9
    for name in ("hw_counters/tx_bytes", "hw_counters/rx_bytes"):
        for counter in _sys(machine).glob(f"class/infiniband/*/ports/1/{name}"):
            network.add(counter, carried_bytes)
    for name in ("counters/port_xmit_data", "counters/port_rcv_data"):  # in units of four bytes
        for counter in _sys(machine).glob(f"class/infiniband/*/ports/1/{name}"):
            network.add(counter, carried_bytes // 4)


FAULTS = (
    PracticeFault(
        "efa_gone", "An EFA device disappears from the PCI bus (the last, or the one named).", _gone, heal=_heal
    ),
    PracticeFault("efa_unbound", "The efa driver releases a device that stays on the PCI bus.", _unbound, heal=_heal),
    PracticeFault("efa_no_completion", "The firmware of an EFA device does not answer a command.", _no_completion),
    PracticeFault("efa_dead", "Commands are submitted to an EFA device; none completes, no keep-alive comes.", _dead),
    PracticeFault("efa_drops", "An EFA device drops received packets.", lambda m, v, _g: _efa_port(m, v, "rx_drops")),
    PracticeFault(
        "efa_unresponsive",
        "Remote devices do not answer an EFA device of the node.",
        lambda m, v, _g: _efa_port(m, v, "unresponsive_remote_events"),
    ),
    PracticeFault("efa_no_provider", "libfabric offers no EFA device.", _provider, heal=_heal),
    PracticeFault(
        "rdma_traffic",
        "Every EFA or InfiniBand device sends and receives so much at once; RDMA silence is when nothing follows.",
        _traffic,
        value="gigabytes",
    ),
    PracticeFault(
        "carrier_down", "A network device (that of the first EFA device) loses its carrier.", _carrier_down, heal=_heal
    ),
    PracticeFault("carrier_flap", "The default route's network device lost its carrier three times.", _carrier_flap),
    PracticeFault("ib_down", "An InfiniBand port goes down.", _ib_down, heal=_heal),
    PracticeFault("ib_gone", "An InfiniBand device disappears from the PCI bus.", _ib_gone, heal=_heal),
    PracticeFault("ib_flap", "An InfiniBand port lost its link three times.", _ib_flap),
    PracticeFault("ib_slow", "An InfiniBand port comes up at half its rate.", _ib_slow, heal=_heal),
    PracticeFault("ib_errors", "Bits arrive broken at an InfiniBand port.", _ib_errors),
    PracticeFault(
        "module_missing", "A kernel module that EFA needs (ib_uverbs) is not loaded.", _module_missing, heal=_heal
    ),
)
