"""A simulated cluster behind the ports: Slurm, a provider, machines with their agents, and a store in memory.

The controller's own loop, turn and actor run on it unchanged, under a clock that the tests control."""

from support.simulated.clock import EPOCH, SimClock
from support.simulated.machines import Machine
from support.simulated.provider import SimProvider
from support.simulated.site import Crash, Site
from support.simulated.slurm import SimSlurm
from support.simulated.store import MemoryStore

__all__ = ["EPOCH", "Crash", "Machine", "MemoryStore", "SimClock", "SimProvider", "SimSlurm", "Site"]
