"""What the doctor checks, read once; the rules read nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.model.access.tokens import TokenRow
from holdfast.model.agents.report import AgentView
from holdfast.model.machine import MetadataOptions, ProviderCan
from holdfast.model.parts import DiskRoom, PartState
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import Node, Partition, Reservation
from holdfast.tls.survey import TlsSurvey

_NO_VALUE = frozenset({"", "(null)", "(null type)", "none", "n/a"})
_GONE_FLAGS = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN"})


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """Slurm as it runs now."""

    version: str
    config: Mapping[str, str]
    """As ``scontrol show config`` prints it."""
    nodes: Mapping[str, Node]
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    partitions: tuple[Partition, ...] = ()
    elastic_jobs: int = 0
    """Job arrays that declare themselves elastic in their comment."""
    may_change: bool | None = None
    """Whether this user may change nodes, found by trying; None: it could not be found out."""
    may_reserve: bool | None = None
    """The same for reservations: an operator may, though no more than that."""

    def value(self, key: str) -> str:
        """A setting without Slurm's words for nothing. Several values of one key (``Epilog[0]``) are joined."""
        values = [text for name, text in self.config.items() if name == key or name.startswith(f"{key}[")]
        return ",".join(text for text in values if text.lower() not in _NO_VALUE)

    def number(self, key: str) -> int | None:
        """The number at the start of a setting (``300 sec``); None when it is absent or no number."""
        first = self.value(key).split(" ", 1)[0]
        return int(first) if first.isdecimal() else None

    def options(self, key: str) -> dict[str, str]:
        """A comma list of ``option`` or ``option=value``, with lower-case names."""
        parts = (part.partition("=") for part in self.value(key).split(",") if part)
        return {name.strip().lower(): value for name, _, value in parts}

    @property
    def release(self) -> tuple[int, int]:
        """``(22, 5)`` for 22.05.8; ``(0, 0)`` when it cannot be read."""
        parts = self.version.split(".")
        return (
            (int(parts[0]), int(parts[1]))
            if len(parts) > 1 and parts[0].isdecimal() and parts[1].isdecimal()
            else (0, 0)
        )

    @property
    def computing(self) -> tuple[Node, ...]:
        """Nodes that are there: not FUTURE, not switched off to save power."""
        return tuple(n for _, n in sorted(self.nodes.items()) if n.base_state != "FUTURE" and not n.flags & _GONE_FLAGS)


@dataclass(frozen=True, slots=True)
class SpankLine:
    """A line of plugstack.conf with Holdfast's plug-in."""

    kind: str
    """``optional`` or ``required``."""
    path: str
    there: bool
    readable: bool
    release: tuple[int, int] | None
    """Slurm's release that it was compiled for; None: it cannot be seen."""


@dataclass(frozen=True, slots=True)
class SlurmScript:
    """A Prolog or Epilog of Holdfast's in slurm.conf, as it lies on this machine."""

    key: str
    path: str
    there: bool
    executable: bool


@dataclass(frozen=True, slots=True)
class PluginFacts:
    """Holdfast's plug-ins in Slurm, as far as this machine shows them."""

    seen: bool = False
    """Slurm's configuration lies on this machine; False: nothing is known of its plug-ins."""
    folder: str = ""
    """Of slurm.conf."""
    spank: tuple[SpankLine, ...] = ()
    lua_glue: str = ""
    """The text of job_submit.lua; empty: there is none."""
    lua_module: str = ""
    """The path of holdfast.lua in it."""
    lua_module_there: bool = False
    lemons_not_writable: str = ""
    """The file of lemons in job_submit.lua, where SlurmUser may not write to it; empty: it may, or this machine does not show it."""
    scripts: tuple[SlurmScript, ...] = ()


@dataclass(frozen=True, slots=True)
class QuorumFacts:
    """The quorum service of this site."""

    bind: str
    """Address that rendezvous listen on."""
    problem: str = ""
    """Why it does not answer; empty: it does."""
    unwritten: Mapping[str, str] = field(default_factory=dict)
    """Rendezvous → why it cannot be recorded now."""


@dataclass(frozen=True, slots=True)
class MetadataFacts:
    """EC2's instance metadata, as a user without rights on this machine meets it."""

    tried: bool
    """False: only root can try it."""
    open_at: tuple[str, ...] = ()
    """Addresses that answered such a user."""
    meant: bool = False
    """The installer chose to leave it open here (HOLDFAST_HEAD_METADATA, ``metadata.sh open``)."""


@dataclass(frozen=True, slots=True)
class Aside:
    """What a process could not read, and has set aside (docs/upgrade.md)."""

    count: int = 0
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class ControllerFacts:
    """What the running controller reports of itself."""

    failing: tuple[str, ...] = ()
    """Parts that fail unexpectedly, each with its error."""
    set_aside: tuple[str, ...] = ()
    """Inputs that no decision can be made about."""
    held: tuple[str, ...] = ()
    """Nodes with an incident that no decision is made about."""
    parts: tuple[PartState, ...] = ()
    """How each of its parts is."""


@dataclass(frozen=True, slots=True)
class DoctorFacts:
    """Everything the rules may look at."""

    now: datetime
    policy: Policy
    user: str
    """Who runs the doctor: rights were tried as this user."""
    slurm: SlurmFacts | None = None
    """None: Slurm does not answer, and ``slurm_problem`` says why."""
    slurm_problem: str = ""
    agents: Mapping[str, tuple[AgentView, ...]] | None = None
    """Node → agents that have reported to the controller; None: the controller was not asked or did not answer."""
    not_asked: str = ""
    """Why the doctor could not ask the controller at all: no token, no URL; empty: it asked."""
    no_answer: str = ""
    """The error with which the controller did not answer; empty: it did, or it was not asked."""
    actor_user: str = ""
    """Account that the actor of this machine runs as; empty: not known."""
    controller_user: str = ""
    """The same of the controller."""
    changeable: tuple[str, ...] = ()
    """How others could change the settings, the store or the provider's script."""
    readable: tuple[str, ...] = ()
    """Files with secrets that every user of this machine can read."""
    untaken: str | None = None
    """Which planned step no actor takes, as the controller says it; None: it says nothing of the kind."""
    controller: ControllerFacts = field(default_factory=ControllerFacts)
    """Empty too where the controller did not answer."""
    store_path: str = ""
    """File of an SQLite store; empty: another database, or not known."""
    store_filesystem: str = ""
    """Type of the file system that holds it, as the kernel names it; empty: not known."""
    store_on_network: bool = False
    disk: DiskRoom | None = None
    """Space where an SQLite store lies; None: another database, or it cannot be read."""
    provider_problem: str = ""
    """Why the provider does not answer; empty: it does, or was not asked."""
    provider_denied: Mapping[str, str] = field(default_factory=dict)
    """Call → why this user may not make it, found by dry runs and by reading."""
    provider_refused: Mapping[str, str] = field(default_factory=dict)
    """Call → any other error that a dry run met."""
    provider_can: ProviderCan | None = None
    """None: there is no provider, or it did not say."""
    provider_repairs: bool = False
    """It replaces broken machines automatically."""
    plugins: PluginFacts = field(default_factory=PluginFacts)
    quorum: QuorumFacts | None = None
    """None: the site has no quorum service."""
    unreadable_rows: Aside = field(default_factory=Aside)
    """Rows of the store that the controller could not read since its start."""
    unreadable_rooms: Aside = field(default_factory=Aside)
    """Rendezvous that the quorum service has set aside."""
    metadata: MetadataFacts | None = None
    """None: this is no machine of EC2."""
    own_id: str = ""
    """This machine's id on EC2; empty: it has none, or it is not known."""
    metadata_options: MetadataOptions | None = None
    """How EC2 serves this machine's metadata; None: it could not be had."""
    tokens: tuple[TokenRow, ...] = ()
    """Bearer tokens of the API; empty too where the store cannot be read."""
    tls: TlsSurvey | None = None
    """The certificate that agents meet; None: the controller serves none."""
    tls_running: str = ""
    """Fingerprint of what the running controller serves; empty: it was not reached."""

    def spares(self) -> tuple[Node, ...]:
        """Nodes of the spare pool's reservation that Slurm knows."""
        if self.slurm is None or (pool := self.slurm.reservations.get(self.policy.spare_reservation)) is None:
            return ()
        return tuple(self.slurm.nodes[name] for name in pool.nodes if name in self.slurm.nodes)


def names(things: Iterable[str], most: int = 8) -> str:
    """``n1, n2, n3 and 5 more``."""
    listed = sorted(things)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
