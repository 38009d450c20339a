"""The ParallelCluster provider's own decisions, over a simulated Slurm and machines in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.model.errors import ConfigError, NotFound, Rejected, Unavailable
from holdfast.model.ids import incident_of_reason
from holdfast.model.machine import Instance
from holdfast.providers import KINDS, ParallelClusterSettings
from holdfast.providers.parallelcluster.adapter import ParallelClusterProvider, is_dynamic
from holdfast.providers.parallelcluster.ec2_machines import addresses
from support.simulated.clock import SimClock
from support.simulated.slurm import PowerSaving, SimSlurm

STATIC, DYNAMIC = "gpu-st-p5-1", "gpu-dy-p5-1"
INCIDENT = "0a1b2c3d4e5f"


class Machines:
    """EC2 as the provider sees it."""

    def __init__(self) -> None:
        self.shown: dict[str, Instance] = {}
        self.rebooted: list[str] = []

    def add(self, instance_id: str, address: str, state: str = "running") -> None:
        self.shown[instance_id] = Instance(instance_id, "", state, address=address)

    def at(self, address: str) -> Instance | None:
        live = [i for i in self.shown.values() if i.address == address and i.state in ("pending", "running")]
        return live[0] if live else None

    def one(self, instance_id: str) -> Instance:
        if instance_id not in self.shown:
            raise NotFound(instance_id)
        return self.shown[instance_id]

    def reboot(self, instance_id: str) -> None:
        self.rebooted.append(instance_id)


class Bench:
    def __init__(self, **settings: object) -> None:
        self.clock = SimClock()
        self.slurm = SimSlurm(self.clock, (STATIC, DYNAMIC))
        self.slurm.saving = PowerSaving()
        self.slurm.addresses = {STATIC: "10.1.0.1", DYNAMIC: "10.1.0.2"}
        self.machines = Machines()
        self.machines.add("i-1", "10.1.0.1")
        self.machines.add("i-2", "10.1.0.2")
        self.while_waiting: Callable[[], None] = lambda: None
        made = ParallelClusterSettings("pc", "us-east-1", **settings)  # type: ignore[arg-type]
        self.provider = ParallelClusterProvider(
            made,
            scheduler=self.slurm,
            machines=self.machines,
            sleep=self._sleep,
            monotonic=self.clock.monotonic_s,
        )

    def _sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.while_waiting()
        self.slurm.step(lambda _node: True)

    def replace(self, node: str, instance_id: str) -> Instance:
        return self.provider.replace(node, instance_id, incident=INCIDENT, token=f"{INCIDENT}-1")

    def asked(self) -> list[tuple[str, str]]:
        return [call for call in self.slurm.calls if call[0] in ("power_down", "power_up")]


@pytest.mark.parametrize(
    ("name", "dynamic"),
    [
        ("gpu-st-p5-1", False),
        ("gpu-dy-p5-12", True),
        ("a-dy-b-st-c-3", True),
        ("n1", False),
        ("-dy-", False),
        ("gpu-dy-p5-x", False),
    ],
)
def test_names(name: str, dynamic: bool) -> None:
    assert is_dynamic(name) is dynamic


def test_a_static_node_is_powered_down_once() -> None:
    bench = Bench()
    for _ in range(3):
        shown = bench.replace(STATIC, "i-1")
        assert (shown.instance_id, shown.node, shown.state) == ("i-1", STATIC, "shutting-down")
    assert bench.asked() == [("power_down", STATIC)]
    assert incident_of_reason(bench.slurm.node(STATIC).reason) == INCIDENT


def test_a_job_that_started_meanwhile_is_waited_for() -> None:
    bench = Bench()
    job = bench.slurm.submit(required=(STATIC,))
    bench.replace(STATIC, "i-1")
    bench.clock.advance(60)
    bench.slurm.step(lambda _node: True)
    assert job.state == "RUNNING"
    assert bench.slurm.suspended == []


def test_an_order_that_is_long_done_hits_nobody() -> None:
    bench = Bench()
    bench.machines.add("i-1", "", "terminated")
    bench.machines.add("i-9", "10.1.0.9")
    bench.slurm.addresses[STATIC] = "10.1.0.9"
    assert bench.replace(STATIC, "i-1").instance_id == "i-9"
    del bench.machines.shown["i-1"]
    assert bench.replace(STATIC, "i-1").instance_id == "i-9"
    assert bench.asked() == []


def test_another_nodes_machine_is_left_alone() -> None:
    bench = Bench()
    with pytest.raises(Rejected, match="is gpu-dy-p5-1's machine"):
        bench.replace(STATIC, "i-2")
    assert bench.asked() == []


def test_a_node_that_is_down_is_asked_for_already() -> None:
    bench = Bench()
    bench.slurm.set_down(STATIC, "holdfast[0a1b2c3d4e5f]: dead", drain=False)
    assert bench.replace(STATIC, "i-1").state == "shutting-down"
    assert bench.asked() == []


def test_a_node_without_a_machine_is_under_way() -> None:
    bench = Bench()
    bench.slurm.addresses[STATIC] = STATIC
    assert bench.provider.instance_of(STATIC) is None
    assert bench.replace(STATIC, "i-1").state == "terminated"
    assert bench.asked() == []


def test_what_ec2_does_not_show_yet_is_not_gone() -> None:
    """Slurm names an address, EC2 lists nothing there, and the machine lives: one of the two is late."""
    bench = Bench()
    bench.slurm.addresses[STATIC] = "10.1.0.7"
    with pytest.raises(Unavailable, match="ask again"):
        bench.replace(STATIC, "i-1")
    assert bench.asked() == []
    bench.machines.add("i-1", "10.1.0.1", "shutting-down")
    assert bench.replace(STATIC, "i-1").state == "terminated"


def test_a_dynamic_node_is_waited_for_and_brought_back() -> None:
    bench = Bench()
    with pytest.raises(Unavailable, match="not powered down yet"):
        bench.replace(DYNAMIC, "i-2")
    assert bench.asked() == [("power_down", DYNAMIC)]
    bench.slurm.addresses[DYNAMIC] = DYNAMIC
    with pytest.raises(Unavailable):
        bench.replace(DYNAMIC, "i-2")
    assert bench.replace(DYNAMIC, "i-2").state == "terminated"
    assert bench.asked() == [("power_down", DYNAMIC), ("power_up", DYNAMIC)]
    assert bench.replace(DYNAMIC, "i-2").state == "terminated", "it is powering up"
    assert len(bench.asked()) == 2


def test_reboot_is_slurms_unless_ec2_may() -> None:
    bench = Bench()
    assert not bench.provider.can.reboot
    with pytest.raises(Rejected, match="ec2_reboot"):
        bench.provider.reboot("i-1")
    allowed = Bench(ec2_reboot=True)
    assert allowed.provider.can.reboot
    allowed.provider.reboot("i-1")
    allowed.machines.add("i-2", "10.1.0.2", "stopped")
    with pytest.raises(Rejected, match="is stopped"):
        allowed.provider.reboot("i-2")
    assert allowed.machines.rebooted == ["i-1"]


def test_whose_machine_it_is() -> None:
    bench = Bench()
    assert bench.provider.instance("i-2").node == DYNAMIC
    bench.machines.add("i-2", "10.1.0.2", "terminated")
    assert bench.provider.instance("i-2").node == ""
    found = bench.provider.instance_of(STATIC)
    assert found is not None
    assert (found.instance_id, found.node) == ("i-1", STATIC)


def test_all_addresses_of_a_machine_count() -> None:
    raw = {"PrivateIpAddress": "10.0.0.1", "NetworkInterfaces": [{"PrivateIpAddress": "10.0.0.2"}, {}]}
    assert list(addresses(raw)) == ["10.0.0.1", "10.0.0.2"]  # type: ignore[arg-type]


@pytest.mark.parametrize(("changes", "words"), [({"cluster": ""}, "cluster is empty"), ({"attempts": 0}, "attempts")])
def test_settings_that_make_no_sense(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ParallelClusterSettings(**{"cluster": "pc", "region": "us-east-1", **changes})  # type: ignore[arg-type]


def test_only_here_nodes_are_kept_by_reservations() -> None:
    assert [name for name, kind in KINDS.items() if kind.gives_drained_away] == ["parallelcluster"]
