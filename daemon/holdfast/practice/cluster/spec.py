"""Specification of a practice cluster: written once at ``create`` to ``practice.json``, read by every later command."""

from __future__ import annotations

import json
import os
import random
import socket
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.model.errors import ConfigError

FILE = "practice.json"
_PORTS = range(20000, 32000)
"""Below Linux's ephemeral range (32768–60999), so that no outgoing connection takes a port between two starts."""
_LONGEST_FOLDER = 60
"""Unix sockets below the folder must fit into 108 bytes (``sun_path``): ``spool/n999/n999_4294967295.batch`` and the
like."""


@dataclass(frozen=True, slots=True)
class Spec:
    """Sizes, addresses and ports of one practice cluster."""

    name: str
    """Slurm's ClusterName."""
    nodes: tuple[str, ...]
    gpus: int
    """GPUs per node."""
    gpu_type: str
    """GRES type such as ``h100``; empty: untyped."""
    cpus: int
    """CPUs per node as Slurm sees them; the machine's own are shared."""
    network: str
    """First three octets of the loopback addresses of this cluster; node K of the list lives at ``network.K``."""
    slurmctld_port: int
    slurmd_ports: tuple[int, ...]
    controller_port: int
    """For ``holdfast controller``'s API."""
    relay_ports: tuple[int, ...]
    """Each node's agent reaches the controller through a relay on this port, which can drop all traffic."""
    aws_port: int
    extra_slurm_conf: str
    elastic: bool = False
    """Whether Slurm is set up for elastic jobs: a second partition whose jobs may be preempted."""

    def address(self, node: str) -> str:
        """Loopback address of a node."""
        return f"{self.network}.{self.nodes.index(node) + 1}"

    def slurmd_port(self, node: str) -> int:
        return self.slurmd_ports[self.nodes.index(node)]

    def relay_port(self, node: str) -> int:
        return self.relay_ports[self.nodes.index(node)]


def new_spec(
    *,
    nodes: int,
    gpus: int,
    gpu_type: str,
    cpus: int,
    name: str,
    extra_slurm_conf: str,
    prefix: str = "n",
    elastic: bool = False,
) -> Spec:
    """Choose free ports and a separate network for a new cluster, whose nodes are ``prefix`` and a number."""
    if not 1 <= nodes <= 250:
        raise ConfigError(f"a practice cluster has 1 to 250 nodes, not {nodes}")
    ports = _free_ports(2 * nodes + 3)
    chooser = random.SystemRandom()
    return Spec(
        name=name,
        nodes=tuple(f"{prefix}{number}" for number in range(1, nodes + 1)),
        gpus=gpus,
        gpu_type=gpu_type,
        cpus=cpus,
        network=f"127.{chooser.randint(2, 254)}.{chooser.randint(0, 254)}",
        slurmctld_port=next(ports),
        slurmd_ports=tuple(next(ports) for _ in range(nodes)),
        controller_port=next(ports),
        relay_ports=tuple(next(ports) for _ in range(nodes)),
        aws_port=next(ports),
        extra_slurm_conf=extra_slurm_conf,
        elastic=elastic,
    )


def _free_ports(count: int) -> Iterator[int]:
    """Consecutive ports that are all free now, from a random start so that two clusters rarely try the
    same."""
    first = random.SystemRandom().choice(_PORTS[:-count])
    free: list[int] = []
    for port in (*range(first, _PORTS[-1]), *range(_PORTS[0], first)):
        free = [*free, port] if port_is_free(port) else []
        if len(free) == count:
            return iter(free)
    raise ConfigError(f"no {count} free ports in a row between {_PORTS[0]} and {_PORTS[-1]}")


def port_is_free(port: int) -> bool:
    """Whether a server could listen on the port on any address of this machine now."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def save(spec: Spec, folder: Path) -> None:
    """Write ``practice.json``, in a folder that is made if missing. Raises ConfigError when its path is too long for the sockets
    below it, and when another user may write to it."""
    if len(os.fspath(folder)) > _LONGEST_FOLDER:
        raise ConfigError(
            f"the folder's path is longer than {_LONGEST_FOLDER} characters, too long for Unix sockets: {folder}"
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    _be_ours(folder)
    (folder / FILE).write_text(json.dumps(asdict(spec), indent=1) + "\n")


def load(folder: Path) -> Spec:
    """Read ``practice.json``. Raises ConfigError when there is none, and when another user may write to the folder: its content decides
    which programs are run and which processes are killed."""
    try:
        _be_ours(folder)
        found: dict[str, Any] = json.loads((folder / FILE).read_text())
    except FileNotFoundError as error:
        raise ConfigError(f"no practice cluster in {folder} ({FILE} is missing)") from error
    lists = ("nodes", "slurmd_ports", "relay_ports")
    found.update({key: tuple(found[key]) for key in lists})
    return Spec(**found)


def _be_ours(folder: Path) -> None:
    """Raises ConfigError when another user may change its content, FileNotFoundError when it does not exist."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        why = "is no folder, or a link"
    elif found.st_uid != os.geteuid():
        why = f"belongs to uid {found.st_uid}, not to {os.geteuid()}"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = "may be written to by other users (chmod go-w)"
    elif any(_is_anybodys(parent.stat().st_mode) for parent in folder.parents):
        why = "lies in a folder in which any user may replace it"
    else:
        return
    raise ConfigError(f"{folder} {why}: name a folder of your own with --dir, or HOLDFAST_PRACTICE_DIR")


def _is_anybodys(mode: int) -> bool:
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
