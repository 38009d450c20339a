"""A pending job's requirements on its nodes: all are understood, or they are unknown. What a user writes never reduces them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.model.slurm.asks import Asks, Has
from holdfast.slurm import parse
from holdfast.slurm.asks import asks
from holdfast.slurm.records import Own

DATA = Path(__file__).parent / "data"
HELD = (
    " ReqNodeList=(null) ExcNodeList=(null) NodeList= NumNodes=2 NumCPUs=6 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*"
    " TRES=cpu=6,node=2,billing=6 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*"
)
REST = (
    "1 MinMemoryNode=0 MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=NO Contiguous=0"
    " Licenses=(null) Network=(null) Command=/h/run.sh WorkDir=/h StdOut=/h/o Power= TresPerNode=gres:gpu:8"
)


def asked(held: str = HELD, rest: str = REST) -> Asks | None:
    return asks(Own("", "", held, rest))


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_the_records_of_each_release_are_understood(release: str) -> None:
    record = (DATA / f"job_{release}.txt").read_text()
    _, _, held = record.partition(" AllocNode:Sid=")
    held, _, rest = held.partition(" MinCPUsNode=")
    found = asked(held, rest.split(" SubmitLine=")[0])
    assert found is not None
    assert not found.features


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("", "", Asks(gpus=8, cpus=3)),
        ("Features=(null)", "Features=big", Asks(frozenset({"big"}), 8, cpus=3)),
        ("Features=(null)", "Features=big&ib", Asks(frozenset({"big", "ib"}), 8, cpus=3)),
        ("Features=(null)", "Features=big|ib", None),
        ("Features=(null)", "Features=[rack1|rack2]", None),
        ("Features=(null)", "Features=big*2", None),
        ("Features=(null)", "Features=a Features=(null)", None),
        ("gres:gpu:8", "gres:gpu:h100:4", Asks(gpus=4, gpu_type="h100", cpus=3)),
        ("gres:gpu:8", "gres/gpu:h100", Asks(gpus=1, gpu_type="h100", cpus=3)),
        ("gres:gpu:8", "gres:gpu:8,gres:nic:1", None),
        ("gres:gpu:8", "gres:shard:8", None),
        ("TresPerNode=gres:gpu:8", "TresPerJob=gres:gpu:8", None),
        ("TresPerNode=gres:gpu:8", "MemPerTres=gpu:100", None),
        ("TresPerNode=gres:gpu:8", "TresPerTask=cpu=3", Asks(cpus=3)),
        ("WorkDir=/h", "WorkDir=/h TresPerNode=gres:gpu:1", Asks(gpus=8, cpus=3)),
        ("WorkDir=/h", "WorkDir=/h TresPerNode=gres:gpu:a:1", None),
        ("Power=", "Switches=1@1:00", None),
        ("MinMemoryNode=0", "MinMemoryNode=2G", Asks(gpus=8, cpus=3, memory_mb=2048)),
        ("MinMemoryNode=0", "MinMemoryCPU=1.50G", Asks(gpus=8, cpus=3, memory_per_cpu_mb=1536)),
        ("MinTmpDiskNode=0", "MinTmpDiskNode=5G", None),
        ("Contiguous=0", "Contiguous=1", None),
        ("Licenses=(null)", "Licenses=matlab:1", None),
        ("Licenses=(null)", "Reservation=r Licenses=(null)", None),
        ("OverSubscribe=NO", "Reservation=r OverSubscribe=NO Exclusive=NODE", Asks(gpus=8, cpus=3)),
    ],
)
def test_what_is_asked_for(old: str, new: str, wanted: Asks | None) -> None:
    assert asked(rest=REST.replace(old, new)) == wanted


@pytest.mark.parametrize(
    ("old", "new", "cpus"),
    [
        ("NumCPUs=6", "NumCPUs=7", 4),
        ("NtasksPerN:B:S:C=0:0:*:*", "NtasksPerN:B:S:C=8:0:*:1", 8),
        ("ReqB:S:C:T=0:0:*:*", "ReqB:S:C:T=0:2:*:*", None),
        ("CoreSpec=*", "CoreSpec=2", None),
        ("Socks/Node=*", "Socks/Node=2", None),
    ],
)
def test_how_many_cpus(old: str, new: str, cpus: int | None) -> None:
    found = asked(held=HELD.replace(old, new))
    assert (found.cpus if found is not None else None) == cpus


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        (Asks(), True),
        (Asks(frozenset({"ib"}), 8, cpus=32, memory_mb=1000), True),
        (Asks(frozenset({"big"})), False),
        (Asks(gpus=9), False),
        (Asks(gpus=8, gpu_type="h100"), True),
        (Asks(gpus=8, gpu_type="a100"), False),
        (Asks(cpus=33), False),
        (Asks(memory_mb=1001), False),
        (Asks(memory_per_cpu_mb=31), True),
        (Asks(memory_per_cpu_mb=32), False),
    ],
)
def test_what_a_node_has(wanted: Asks, there: bool) -> None:
    has = Has(frozenset({"ib", "x"}), "gpu:h100:8(S:0-1),nic:4", 8, 32, 1000)
    assert has.meets(wanted) is there


def test_cpus_and_memory_of_a_node() -> None:
    node = parse.node((DATA / "node_22.05.txt").read_text().splitlines()[0])
    assert (node.cpus, node.memory_mb) == (32, 1024)
