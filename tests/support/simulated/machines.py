"""The physical side: machines that live, die and fall silent, each with its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Machine:
    """One machine. What Slurm, the provider and the agents show of it follows from here."""

    instance_id: str
    node: str
    gpus: int = 8
    gres: Mapping[str, tuple[int, ...]] | None = field(default_factory=lambda: {"gpu": tuple(range(8))})
    """Minor of each GRES index, as its agent proves it; None: it proves nothing."""
    powered: bool = True
    cut_off: bool = False
    """Cut off from the controller and from slurmctld; peers still reach it."""
    agent_up: bool = True
    healthy: bool = True
    """Whether a validation passes."""
    all_ok: bool = True
    """Whether its agent reports that every applicable check has answered OK. Findings that a test reports do not change this."""
    deep_ok: bool = True
    """Whether deep checks pass."""
    path_broken: bool = False
    """Its network fails under load, and nothing on it says so."""
    says_it_reaches: set[str] = field(default_factory=set)
    """Nodes that its agent reports as reachable, whether they are or not."""
    spoils_probes_with: set[str] = field(default_factory=set)
    """Nodes whose pair probes with it fail on both sides: its agent lies, or sends nothing."""
    kill_helps: bool = True
    """Whether SIGKILL ends hanging processes: it does not while they are in a driver call."""
    deaf: bool = False
    """No process of a job handles the signal to save."""
    fabric_moved_s: float | None = None
    """When its RDMA devices last carried bytes (elapsed time of the site); None: it has none, or they cannot be read."""
    boots_at_s: float = 0.0
    """When a launched machine's agent starts to report."""
    boot: int = 1
    gpu_prefix: str = ""
    """Serials of its GPUs; another machine with the same prefix is the same hardware."""
    sequence: int = 0
    heartbeat_s: float | None = None
    """Its agent's own interval; None: the site's."""
    claims_interval_s: float | None = None
    """The interval that its heartbeats report; None: the actual one."""
    next_beat_s: float = 0.0
    taken: set[str] = field(default_factory=set)
    """Orders that its agent remembers."""
    unreachable_by: set[str] = field(default_factory=set)
    """Peers that cannot reach it although it lives (a broken link of theirs)."""

    @property
    def boot_id(self) -> str:
        return f"{self.instance_id}-boot-{self.boot}"

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        prefix = self.gpu_prefix or self.instance_id
        return tuple(f"GPU-{prefix}-{n}" for n in range(self.gpus))

    def fabric_silent_s(self, now_s: float) -> float | None:
        return None if self.fabric_moved_s is None else now_s - self.fabric_moved_s

    def speaks(self, now_s: float) -> bool:
        """Its agent's reports reach the controller."""
        return self.powered and self.agent_up and not self.cut_off and now_s >= self.boots_at_s

    def slurmd(self, now_s: float) -> bool:
        """slurmctld receives its slurmd's messages."""
        return self.powered and not self.cut_off and now_s >= self.boots_at_s
