"""The nouns of a health check: verdict, severity, remedy, grade and result, with a result's constructors. Standard library only."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from holdfast_checks.words import known, safe, unknown_reads_as

Scalar = str | int | float | bool
"""What evidence may hold: nothing nested, so that it fits a log line and a database column."""

NODE_COMPONENT = "node"
"""The component of a result that concerns the node as a whole."""


@unknown_reads_as(
    "unknown", "it says nothing of the component; where a severity is named, the finding remains a finding"
)
class Verdict(StrEnum):
    """What a check found. Only ``OK`` clears an earlier finding; only ``DEGRADED`` and ``FAILED`` raise one."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It could not be asked (a hang, an error). Never health, never a fault on its own."""
    SKIPPED = "skipped"
    """It does not apply here (no such hardware, an old driver); the summary says why."""


@unknown_reads_as("degraded", "the node is taken out of service, and no running job is stopped")
class Severity(StrEnum):
    """How soon a finding calls for action."""

    FATAL = "fatal"
    """Act now: the jobs on the component are lost or produce wrong results."""
    DEGRADED = "degraded"
    """Take the node out of service when its jobs end."""
    WARNING = "warning"
    """Record and watch; never act."""


@unknown_reads_as("human", "no repair is tried; an operator is notified")
class Remedy(StrEnum):
    """What the evidence calls for, in rising order of cost."""

    NONE = "none"
    RESTART_JOB = "restart_job"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    STOP_START = "stop_start"
    REPLACE = "replace"
    HUMAN = "human"


NotBad = Literal[Verdict.OK, Verdict.UNKNOWN, Verdict.SKIPPED]
"""Verdicts of a result without a fault: it has neither severity nor remedy."""
_NOT_BAD: tuple[NotBad, ...] = (Verdict.OK, Verdict.UNKNOWN, Verdict.SKIPPED)
_BAD = (Verdict.FAILED, Verdict.DEGRADED)


@dataclass(frozen=True, slots=True)
class Grade:
    """How bad a finding is: how soon it calls for action, for which action, and its verdict."""

    severity: Severity
    remedy: Remedy
    failed: bool
    """Verdict FAILED, else DEGRADED. Follows from the severity (fatal: failed) unless the check says otherwise: a full disk has failed,
    and yet its jobs may end first. For people and for exit codes; no decision about a node depends on it."""

    def __post_init__(self) -> None:
        """Raises TypeError for words that are no members: what they mean would be guessed later, far from the check."""
        if not isinstance(self.severity, Severity):
            raise TypeError(
                f"severity is {self.severity!r}: use one of {', '.join(f'Severity.{word.name}' for word in Severity)}"
            )
        if not isinstance(self.remedy, Remedy):
            raise TypeError(
                f"remedy is {self.remedy!r}: use one of {', '.join(f'Remedy.{word.name}' for word in Remedy)}"
            )

    @classmethod
    def of(cls, severity: Severity, remedy: Remedy = Remedy.NONE, *, failed: bool | None = None) -> Grade:
        """``failed`` None: as follows from the severity."""
        return cls(severity, remedy, severity is Severity.FATAL if failed is None else failed)

    @classmethod
    def read(cls, verdict: object, severity: object, remedy: object) -> Grade | None:
        """The grade that the words of a message or a file say. None: they say that nothing is wrong, or that nothing is known.

        A missing severity is a warning, a missing remedy none. A word that this release does not know is read as the safe one: the severity
        DEGRADED, the remedy HUMAN; a verdict that it does not know is DEGRADED where there is a severity, as in a report."""
        if verdict in _NOT_BAD or (verdict not in _BAD and not severity):
            return None
        return cls.of(
            _read(Severity, severity) or Severity.WARNING,
            _read(Remedy, remedy) or Remedy.NONE,
            failed=verdict == Verdict.FAILED,
        )

    @property
    def verdict(self) -> Verdict:
        """FAILED or DEGRADED."""
        return Verdict.FAILED if self.failed else Verdict.DEGRADED


_Word = TypeVar("_Word", bound=StrEnum)


def _read(words: type[_Word], said: object) -> _Word | None:
    """None: nothing is said."""
    return known(words, said) or safe(words) if said else None


class ResultDetails(TypedDict, total=False):
    """What a result may say in addition to its verdict, by the names of the fields of :class:`Result`."""

    code: str
    summary: str
    evidence: Mapping[str, Scalar]
    gpu_uuid: str | None
    gpu_minor: int | None
    pci: str | None
    fault_monotonic_s: float | None
    consequence: bool
    sticky: bool


_TEXTS = ("check", "component", "code", "summary")


@dataclass(frozen=True, slots=True)
class Result:
    """One judged result of one check on one component of this node: ``Result.ok``, ``unknown``, ``skipped`` or ``finding``."""

    check: str
    """Id of the check, such as ``gpu.xid``."""
    outcome: NotBad | Grade
    """Verdict, severity and remedy in one: a finding has all three, any other result has its verdict alone."""
    component: str = NODE_COMPONENT
    """GPU UUID, PCI address, EFA device, mount point, or ``node``."""
    code: str = ""
    """What the check's own domain calls the fault (an Xid number); with check and component it names a finding."""
    summary: str = ""
    """One line for people; no control characters."""
    evidence: Mapping[str, Scalar] = field(default_factory=dict)
    gpu_uuid: str | None = None
    gpu_minor: int | None = None
    """Device minor number (``/dev/nvidiaN``), which is what Slurm's GRES index names. None: not a GPU, or unknown."""
    pci: str | None = None
    """PCI address, ``0000:3b:00.0``, lower case."""
    fault_monotonic_s: float | None = None
    """When the fault happened on this node's CLOCK_MONOTONIC, in seconds. None: when the check saw it."""
    consequence: bool = False
    """A consequence of another fault (Xid 43, 45): joins an incident, never opens one."""
    sticky: bool = False
    """The hardware keeps the state (row remap, lost GPU) until it is repaired: an OK of the same check clears it.
    An event (an Xid) is not sticky: nothing but repair or an operator clears it."""

    def __post_init__(self) -> None:
        if not isinstance(self.outcome, Grade) and self.outcome not in _NOT_BAD:
            raise TypeError(
                f"{self.check}: a result is made by Result.ok, unknown, skipped or finding, not {self.outcome!r}"
            )
        for name in _TEXTS:
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{self.check}: {name} is {getattr(self, name)!r}, not text")
        if not isinstance(self.evidence, Mapping):
            raise TypeError(f"{self.check}: evidence is {self.evidence!r}, not names with values")

    @classmethod
    def ok(cls, check: str, component: str = NODE_COMPONENT, **about: Unpack[ResultDetails]) -> Result:
        """The component passed: what the check found on it earlier is over."""
        return cls(check, Verdict.OK, component, **about)

    @classmethod
    def unknown(cls, check: str, component: str = NODE_COMPONENT, **about: Unpack[ResultDetails]) -> Result:
        """The component could not be asked; the summary says why."""
        return cls(check, Verdict.UNKNOWN, component, **about)

    @classmethod
    def skipped(cls, check: str, component: str = NODE_COMPONENT, **about: Unpack[ResultDetails]) -> Result:
        """The check does not apply to the component; the summary says why."""
        return cls(check, Verdict.SKIPPED, component, **about)

    @classmethod
    def finding(
        cls,
        check: str,
        severity: Severity,
        remedy: Remedy = Remedy.NONE,
        component: str = NODE_COMPONENT,
        *,
        failed: bool | None = None,
        **about: Unpack[ResultDetails],
    ) -> Result:
        """Something is wrong. ``failed`` None: the verdict follows from the severity, FAILED for a fatal one and DEGRADED for any other."""
        return cls(check, Grade.of(severity, remedy, failed=failed), component, **about)

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Result | None:
        """The result that :meth:`plain` said, as far as it was said; words as :meth:`Grade.read` takes them. None: no check is named."""
        check, verdict = said.get("check"), said.get("verdict")
        if not isinstance(check, str) or not check:
            return None
        not_bad: NotBad = next((word for word in _NOT_BAD if word == verdict), Verdict.UNKNOWN)
        outcome = Grade.read(verdict, said.get("severity"), said.get("remedy")) or not_bad
        component, code, summary = (str(said.get(name) or "") for name in ("component", "code", "summary"))
        return cls(check, outcome, component or NODE_COMPONENT, code, summary)

    @property
    def grade(self) -> Grade | None:
        """None for what is no finding."""
        return self.outcome if isinstance(self.outcome, Grade) else None

    @property
    def bad(self) -> bool:
        """Whether it is a finding."""
        return isinstance(self.outcome, Grade)

    @property
    def verdict(self) -> Verdict:
        """The verdict of the outcome."""
        return self.outcome.verdict if isinstance(self.outcome, Grade) else self.outcome

    @property
    def severity(self) -> Severity | None:
        """None for what is no finding."""
        return self.outcome.severity if isinstance(self.outcome, Grade) else None

    @property
    def remedy(self) -> Remedy:
        """NONE for what is no finding."""
        return self.outcome.remedy if isinstance(self.outcome, Grade) else Remedy.NONE

    def plain(self) -> dict[str, Any]:
        """As JSON says it: verdict, severity and remedy as separate strings."""
        return {
            "check": self.check,
            "verdict": self.verdict.value,
            "component": self.component,
            "code": self.code,
            "severity": self.severity.value if self.severity else None,
            "remedy": self.remedy.value,
            "summary": self.summary,
            "evidence": dict(self.evidence),
            "gpu_uuid": self.gpu_uuid,
            "gpu_minor": self.gpu_minor,
            "pci": self.pci,
            "fault_monotonic_s": self.fault_monotonic_s,
            "consequence": self.consequence,
            "sticky": self.sticky,
        }


def _accept_calls_of_0_1_0a1() -> None:
    """Calls of release 0.1.0a1 make the same result, with a DeprecationWarning: they name a verdict, and severity and remedy as well.

    Checks in a site's packages are written against one release and run on the next: their faults must not be lost. A bad verdict without
    a severity is refused as ever."""
    make, names = Result.__init__, ("check", "outcome", "component", "code")

    def init(self: Result, *fields: Any, **named: Any) -> None:
        graded: dict[str, Any] = {name: named.pop(name) for name in ("severity", "remedy") if name in named}
        if len(fields) > len(names) and (fields[4] is None or isinstance(fields[4], Severity)):
            graded |= zip(("severity", "remedy"), fields[4:6], strict=False)
            after = (
                "summary",
                "evidence",
                "gpu_uuid",
                "gpu_minor",
                "pci",
                "fault_monotonic_s",
                "consequence",
                "sticky",
            )
            rest = zip(after, fields[6:], strict=False)
            fields, named = fields[:4], {**dict(rest), **named}
        if "verdict" in named:
            graded.setdefault("severity", None)
            named["outcome"] = named.pop("verdict")
        if graded:
            named = {**dict(zip(names, fields, strict=False)), **named}
            fields = ()
            if named.get("outcome") in _NOT_BAD and graded.get("severity"):
                raise TypeError(f"{named.get('check')}: {named['outcome']} is no finding and has no severity")
            if named.get("outcome") in _BAD and graded.get("severity"):
                named["outcome"] = Grade.read(named["outcome"], graded["severity"], graded.get("remedy"))
            text = "Result(check, verdict, severity=…) is of release 0.1.0a1: use Result.ok, unknown, skipped or Result.finding"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        make(self, *fields, **named)

    type.__setattr__(Result, "__init__", init)


_accept_calls_of_0_1_0a1()
