"""``gpu.xid``: what the NVIDIA driver says in the kernel log. Pure: text in, results out.

:func:`parse_live` is for records of the kernel log of this node: anchored, and only for a PCI address that the node
has, so that nobody can forge a fault by writing a line. :func:`parse_loose` is for replaying logs from anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from holdfast_checks import pci
from holdfast_checks.catalog.xids import Xid, XidClass, lookup, recovery_action
from holdfast_checks.inventory import GpuRef
from holdfast_checks.result import Remedy, Result, Scalar, Severity, Verdict

CHECK_ID = "gpu.xid"

MAX_EVIDENCE_CHARS = 300
"""A kernel line in evidence is cut here."""

_BRACKET = r"Xid\s*\((?P<where>[^)]{0,120})\)\s*:\s*(?P<code>\d{1,5})\b(?P<rest>.*)"
_LIVE_XID = re.compile(r"NVRM: " + _BRACKET, re.DOTALL)
_LOOSE_XID = re.compile(r"(?:NVRM:\s*)?" + _BRACKET, re.DOTALL)
_ADDRESS = r"(?:PCI:)?[0-9a-fA-F]{1,8}:[0-9a-fA-F]{1,2}(?::[0-9a-fA-F]{1,2})?(?:\.[0-7])?"
_FALLEN = re.compile(
    r"NVRM:\s+(?:"
    rf"The NVIDIA GPU (?P<long>{_ADDRESS}) \(PCI ID: [^)]{{1,20}}\)\s+(?:NVRM:\s+)?installed in this system has\s+"
    r"(?:NVRM:\s+)?fallen off the bus"
    rf"|GPU (?:at )?(?P<short>{_ADDRESS}):? (?:GPU )?has fallen off the bus)"
)
_FIRST_OF_TWO = re.compile(rf"NVRM:\s+The NVIDIA GPU {_ADDRESS} \(PCI ID: [^)]*\)\s*$")
_PID = re.compile(r"\bpid\s*=\s*'?(?P<pid>\d+|<unknown>)'?")
_NAME = re.compile(r"\bname\s*=\s*'?(?P<name>[^,']{1,64})'?\s*(?:,|$)")
_MIG = re.compile(r"\b(?P<mig>GPU-(?:I|CI):[0-9a-fA-F]+)")
# Longer than the 15 characters of a process name, which a user chooses and the driver prints into its lines.
_RECOVERY = re.compile(
    r"recovery action changed from (?:0x)?(?P<old>[0-9a-fA-F]{1,8})\b.{0,60}? to (?:0x)?(?P<new>[0-9a-fA-F]{1,8})\b",
    re.IGNORECASE,
)
_NVLINK5 = re.compile(r"\b[A-Z][A-Z0-9_]{3,40} (?P<fatal>Fatal|Non-?fatal) XC\d+ i-?\d+ Link -?\d+ \(0x")
_CAUSE = re.compile(r"(?:caused by previous|previous) Xid (?P<cause>\d{1,5})\b", re.IGNORECASE)

FALLEN_OFF_BUS = 79

_Matcher = Callable[[str], "re.Match[str] | None"]


@dataclass(frozen=True, slots=True)
class Line:
    """What one line of the driver says, before it is judged."""

    code: int
    where: str
    """What stands in the brackets."""
    rest: str
    message: str
    has_xid: bool = True
    """False for the lines about a GPU fallen off the bus that carry no Xid."""

    @property
    def address(self) -> str | None:
        """The PCI address in its one spelling; None when it was elided or unreadable."""
        words = self.where.split()
        return pci.normalise(words[0].rstrip(",")) if words else None


def parse_live(message: str, known_pci: Mapping[str, GpuRef], *, monotonic_s: float | None = None) -> Result | None:
    """Judge one message of this node's kernel log; None when it is no Xid line of a GPU of this node.

    ``message`` is the record without its prefix; the caller has checked that the facility is the kernel's.
    ``known_pci``: address → GPU, in the one spelling. ``monotonic_s``: the record's time."""
    line = _read(message, _LIVE_XID.match, _FALLEN.match)
    if line is None or line.address is None:
        return None
    gpu = known_pci.get(line.address)
    return None if gpu is None else _judge(line, gpu, line.address, monotonic_s)


def parse_loose(line: str) -> Result | None:
    """Judge a line of any log (dmesg, journal, syslog), wherever in it the driver's words stand; for replay only."""
    read = _read(line, _LOOSE_XID.search, _FALLEN.search)
    if read is None:
        return None
    return _judge(read, GpuRef(pci=read.address), read.address, None)


def join_split_lines(lines: Iterable[str]) -> Iterator[str]:
    """Lines of a log with the fallen-off-the-bus message, which the driver spreads over two lines, in one piece."""
    held: str | None = None
    for line in lines:
        text = line.rstrip("\n")
        if held is not None:
            if "fallen off the bus" in text and "Xid" not in text:
                yield f"{held.rstrip()} {text[max(0, text.find('NVRM:')) :].strip()}"
                held = None
                continue
            yield held
            held = None
        if _FIRST_OF_TWO.search(text):
            held = text
        else:
            yield text
    if held is not None:
        yield held


def from_event(code: int, gpu: GpuRef, *, monotonic_s: float | None = None) -> Result:
    """Judge an Xid that NVML delivered as an event: a number without a line."""
    return _judge(Line(code, "", "", ""), gpu, gpu.pci, monotonic_s)


def _read(text: str, match_xid: _Matcher, match_fallen: _Matcher) -> Line | None:
    found = match_xid(text)
    if found is not None:
        return Line(int(found["code"]), found["where"], found["rest"], text)
    fallen = match_fallen(text)
    if fallen is None:
        return None
    return Line(FALLEN_OFF_BUS, fallen["long"] or fallen["short"], "", text, has_xid=False)


def _judge(line: Line, gpu: GpuRef, address: str | None, monotonic_s: float | None) -> Result:
    row = lookup(line.code)
    severity, remedy, what = _weigh(row, line)
    evidence: dict[str, Scalar] = {"xid": line.code, "class": row.kind.value, **_details(line)}
    return Result(
        check=CHECK_ID,
        verdict=_verdict(severity),
        component=gpu.component,
        code=str(line.code),
        severity=severity,
        remedy=remedy,
        summary=f"Xid {line.code} {what}" if line.has_xid else "GPU has fallen off the bus (no Xid in the line)",
        evidence=evidence,
        gpu_uuid=gpu.uuid,
        gpu_minor=gpu.minor,
        pci=address or gpu.pci,
        fault_monotonic_s=monotonic_s,
        consequence=row.kind is XidClass.CONSEQUENCE,
    )


def _verdict(severity: Severity | None) -> Verdict:
    if severity is None:
        return Verdict.SKIPPED
    return Verdict.FAILED if severity is Severity.FATAL else Verdict.DEGRADED


def _weigh(row: Xid, line: Line) -> tuple[Severity | None, Remedy, str]:
    if row.kind is XidClass.ORDER:
        order = _RECOVERY.search(line.rest)
        if order is None:
            return Severity.WARNING, Remedy.NONE, f"{row.meaning} (no number in the line)"
        action = recovery_action(int(order["new"], 16))
        return action.severity, action.remedy, f"{row.meaning} to {action.number:#x} ({action.meaning})"
    if row.kind is XidClass.NVLINK:
        said = _NVLINK5.search(line.rest)
        if said is None or said["fatal"] != "Fatal":
            return Severity.WARNING, Remedy.NONE, row.meaning
    return row.severity, row.remedy, row.meaning


def _details(line: Line) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    if pid := _PID.search(line.rest):
        found["pid"] = pid["pid"]
    if name := _NAME.search(line.rest):
        found["process"] = _clean(name["name"])
    if mig := _MIG.search(line.where):
        found["mig"] = mig["mig"]
    if cause := _CAUSE.search(line.rest):
        found["cause_xid"] = int(cause["cause"])
    if order := _RECOVERY.search(line.rest):
        found["action_old"] = int(order["old"], 16)
        found["action_new"] = int(order["new"], 16)
    if line.message:
        found["line"] = _clean(line.message)
    return found


def _clean(text: str) -> str:
    """One line without control characters, cut to its bound."""
    return "".join(char if char.isprintable() else " " for char in text[: 2 * MAX_EVIDENCE_CHARS]).strip()[
        :MAX_EVIDENCE_CHARS
    ]
