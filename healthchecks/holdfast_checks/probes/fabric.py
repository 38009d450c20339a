"""InfiniBand and RoCE ports that carry jobs' traffic: without EFA, without bridges of NVSwitch boards, without the management network."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from holdfast_checks.catalog.instance_types import lookup
from holdfast_checks.probes import rdma
from holdfast_checks.probes import sysfs as files
from holdfast_checks.probes.netdev import default_route, link, with_lower
from holdfast_checks.probes.rdma import EFA_DRIVER, Device, Port
from holdfast_checks.registry import Context, NotApplicable
from holdfast_checks.settings import CheckSettings

_EC2 = "Amazon EC2"
_NO_INFINIBAND = "EC2 has no InfiniBand: RDMA devices other than EFA manage NVLink"


@dataclass(frozen=True, slots=True)
class FabricPort:
    """One port of one device."""

    device: Device
    port: Port

    @property
    def name(self) -> str:
        """``mlx5_0/1``."""
        return f"{self.device.name}/{self.port.number}"


def fabric_ports(context: Context) -> tuple[FabricPort, ...]:
    """The ports to read. Raises NotApplicable, with the reason, where there are none by nature."""
    settings = context.settings
    if lookup(settings.instance_type) is not None or files.text(settings.sysfs / "class/dmi/id/sys_vendor") == _EC2:
        raise NotApplicable(_NO_INFINIBAND)
    found = rdma.devices(settings.sysfs)
    if any(device.driver == EFA_DRIVER for device in found):
        raise NotApplicable(_NO_INFINIBAND)
    kept = [device for device in found if not _passed_over(device, settings)]
    kept = _without_management(kept, settings)
    return tuple(FabricPort(device, port) for device in kept for port in rdma.ports(settings.sysfs, device.name))


def management_devices(settings: CheckSettings) -> frozenset[str]:
    """Network devices that the default route needs."""
    named = settings.network.default_route_device
    return with_lower({named}, settings.sysfs) if named else default_route(settings.proc, settings.sysfs)


def _passed_over(device: Device, settings: CheckSettings) -> bool:
    if any(fnmatchcase(device.name, pattern) for pattern in settings.network.ignore_devices):
        return True
    return rdma.is_bridge(settings.sysfs, device.name)


def _without_management(devices: list[Device], settings: CheckSettings) -> list[Device]:
    """Ordered by cost: most nodes' RDMA devices have no network device of the default route, and the route is read once."""
    netdevs = {device.name: set(rdma.netdevs(settings.sysfs, device.name)) for device in devices}
    if not any(netdevs.values()):
        return devices
    management = management_devices(settings)
    return [device for device in devices if not netdevs[device.name] & management]


def losses(sysfs: Path, seen: FabricPort) -> int | None:
    """How often the port's link went down, by its own count, else by that of its network device."""
    counted = rdma.port_counters(sysfs, seen.device.name, seen.port.number, {"counters": ("link_downed",)})
    if "link_downed" in counted:
        return counted["link_downed"]
    links = (link(sysfs, name) for name in rdma.netdevs(sysfs, seen.device.name))
    return next((one.losses for one in links if one is not None and one.losses is not None), None)
