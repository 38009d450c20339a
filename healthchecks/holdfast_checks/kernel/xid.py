"""``gpu.xid``: the NVIDIA driver's lines in the kernel log. Pure: text in, results out.

:func:`parse_live` is for records of the kernel log of this node: anchored, and only for a PCI address that the node
has, so that no user can forge a fault by writing a line. :func:`parse_loose` is for replaying logs from anywhere.
No pattern looks further than a bounded number of characters, so a line costs what its length costs and no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from holdfast_checks import pci
from holdfast_checks.catalog.xids import Xid, XidClass, lookup, recovery_action
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.kernel.nvlink import LinkFault, block_error, link_error
from holdfast_checks.result import Remedy, Result, ResultDetails, Scalar, Severity
from holdfast_checks.text import one_line

CHECK_ID = "gpu.xid"

# After the address only attributes (of MIG) may follow. The comma is required: without it the number may be half a number.
_WHERE = r"(?P<where>[ \t]*(?:PCI:)?[0-9a-fA-F:.]{0,24}(?:[ ,]{1,4}[\w:-]{1,32}){0,6}[ \t]*)"
_BRACKET = rf"Xid\s{{0,8}}\({_WHERE}\)\s{{0,8}}:\s{{0,8}}(?P<code>\d{{1,5}})\s{{0,4}},(?P<rest>.*)"
_LIVE_XID = re.compile(r"NVRM: " + _BRACKET, re.DOTALL)
_LOOSE_XID = re.compile(r"(?:NVRM:\s{0,8})?" + _BRACKET, re.DOTALL)
_ADDRESS = r"(?:PCI:)?[0-9a-fA-F]{1,8}:[0-9a-fA-F]{1,2}(?::[0-9a-fA-F]{1,2})?(?:\.[0-7])?"
_PCI_ID = r"\(PCI ID: [^)]{1,20}\)"
_AND = r"\s{1,40}(?:NVRM:\s{1,8})?"
"""Between two words of a message that the driver breaks into lines, each with its name in front."""
_FALLEN = re.compile(
    r"NVRM:\s{1,8}(?:"
    rf"The NVIDIA GPU (?P<long>{_ADDRESS})(?:{_AND}{_PCI_ID})?{_AND}installed{_AND}in{_AND}this{_AND}system{_AND}has"
    rf"{_AND}fallen{_AND}off{_AND}the{_AND}bus"
    rf"|GPU (?:at )?(?P<short>{_ADDRESS}):? (?:GPU )?has fallen off the bus)"
)
_FIRST_OF_SEVERAL = re.compile(
    rf"NVRM:\s{{1,8}}The NVIDIA GPU {_ADDRESS}(?:\s{{1,8}}{_PCI_ID})?(?:\s{{1,8}}installed[\w ]{{0,20}})?\s{{0,8}}$"
)
_LATER_LINES = 2
_OTHERS_BETWEEN = 8
_PID = re.compile(r"\bpid\s{0,8}=\s{0,8}'?(?P<pid>\d{1,10}|<unknown>)'?")
_NAME = re.compile(r"\bname\s{0,8}=\s{0,8}'?(?P<name>[^,']{1,64})'?\s{0,8}(?:,|$)")
_MIG = re.compile(r"\bGPU-(?:I|CI|GI):[0-9a-fA-F]{1,8}")
_SM = re.compile(r"\(GPC (?P<gpc>\d{1,3}), TPC (?P<tpc>\d{1,3})(?:, SM (?P<sm>\d{1,3}))?\)")
# Longer than the 15 characters of a process name, which a user chooses and the driver prints into its lines.
_RECOVERY = re.compile(
    r"recovery action changed from (?:0x)?(?P<old>[0-9a-fA-F]{1,8})\b.{0,60}? to (?:0x)?(?P<new>[0-9a-fA-F]{1,8})\b",
    re.IGNORECASE,
)
_CAUSE = re.compile(r"caused by previous Xid (?P<cause>\d{1,5})\b", re.IGNORECASE)
_NVLINK4 = 74

FALLEN_OFF_BUS = 79

_Matcher = Callable[[str], "re.Match[str] | None"]


@dataclass(frozen=True, slots=True)
class XidLine:
    """One parsed line of the driver, before it is judged."""

    code: int
    where: str
    """The text in the brackets."""
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


def parse_loose(text: str) -> Result | None:
    """Judge the driver's words in the log of any node, for replay only: ``text`` is a line without what the log put in front of it
    (:func:`holdfast_checks.kernel.replay.message_of`)."""
    read = _read(text, _LOOSE_XID.match, _FALLEN.match)
    if read is None:
        return None
    return _judge(read, GpuRef(pci=read.address), read.address, None)


def join_split_lines(texts: Iterable[str]) -> Iterator[str]:
    """Messages with the one on a GPU fallen off the bus, which the driver breaks into two or three lines, in one piece.

    Lines of others in between are let through, in their order."""
    held: list[str] = []
    between = 0
    for text in texts:
        if held and text.startswith("NVRM:") and _goes_on(text):
            held.append(text.strip())
            if "fallen off the bus" in text or len(held) > _LATER_LINES:
                yield " ".join(held)
                held = []
            continue
        if held and (between := between + 1) > _OTHERS_BETWEEN:
            yield " ".join(held)
            held = []
        if _FIRST_OF_SEVERAL.match(text[:200]):
            if held:
                yield " ".join(held)
            held, between = [text.strip()], 0
        else:
            yield text
    if held:
        yield " ".join(held)


def _goes_on(text: str) -> bool:
    return "Xid" not in text and ("installed in this" in text or "fallen off the bus" in text or "(PCI ID:" in text)


def from_event(code: int, gpu: GpuRef, *, monotonic_s: float | None = None) -> Result:
    """Judge an Xid that NVML delivered as an event: a number without a line.

    SKIPPED where the line decides: it is in the kernel log too, and the bare number alone could be reported wrongly."""
    row = lookup(code)
    if code == _NVLINK4 or row.kind in (XidClass.ORDER, XidClass.NVLINK):
        return Result.skipped(
            CHECK_ID,
            gpu.component,
            code=str(code),
            summary=f"Xid {code} {row.meaning}: its line in the kernel log decides",
        )
    return _judge(XidLine(code, "", "", ""), gpu, gpu.pci, monotonic_s)


def _read(text: str, match_xid: _Matcher, match_fallen: _Matcher) -> XidLine | None:
    found = match_xid(text)
    if found is not None:
        return XidLine(int(found["code"]), found["where"], found["rest"], text)
    fallen = match_fallen(text)
    if fallen is None:
        return None
    return XidLine(FALLEN_OFF_BUS, fallen["long"] or fallen["short"], "", text, has_xid=False)


def _judge(line: XidLine, gpu: GpuRef, address: str | None, monotonic_s: float | None) -> Result:
    row = lookup(line.code)
    severity, remedy, what = _weigh(row, line)
    about: ResultDetails = {
        "code": str(line.code),
        "summary": f"Xid {line.code} {what}" if line.has_xid else "GPU has fallen off the bus (no Xid in the line)",
        "evidence": {"xid": line.code, "class": row.kind.value, **_details(line)},
        "gpu_uuid": gpu.uuid,
        "gpu_minor": gpu.minor,
        "pci": address or gpu.pci,
        "fault_monotonic_s": monotonic_s,
        "consequence": _is_consequence(row, line),
    }
    if severity is None:
        return Result.skipped(CHECK_ID, gpu.component, **about)
    return Result.finding(CHECK_ID, severity, remedy, gpu.component, **about)


def _weigh(row: Xid, line: XidLine) -> tuple[Severity | None, Remedy, str]:
    if row.kind is XidClass.ORDER:
        order = _RECOVERY.search(line.rest)
        if order is None:
            return Severity.WARNING, Remedy.NONE, f"{row.meaning} (no number in the line)"
        action = recovery_action(int(order["new"], 16))
        return action.severity, action.remedy, f"{row.meaning} to {action.number:#x} ({action.meaning})"
    if row.kind is XidClass.NVLINK:
        block = block_error(line.rest)
        if block is None or not block.fatal:
            return Severity.WARNING, Remedy.NONE, row.meaning
    if row.code == _NVLINK4 and (link := link_error(line.rest)) is not None:
        return _weigh_link(row, link.fault, f"{row.meaning} on link {link.link}")
    return row.severity, row.remedy, row.meaning


def _weigh_link(row: Xid, fault: LinkFault, what: str) -> tuple[Severity, Remedy, str]:
    match fault:
        case LinkFault.HARMLESS:
            return Severity.WARNING, Remedy.NONE, f"{what} that may be ignored"
        case LinkFault.SECONDARY:
            return Severity.WARNING, Remedy.NONE, f"{what}, an echo of the other end"
        case LinkFault.SIGNAL:
            return row.severity, Remedy.REPLACE, f"{what}: too little signal margin"
        case _:
            return row.severity, row.remedy, f"{what} ({fault.value.replace('_', ' ')})"


def _details(line: XidLine) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    if pid := _PID.search(line.rest):
        found["pid"] = pid["pid"]
    if name := _NAME.search(line.rest):
        found["process"] = one_line(name["name"])
    if mig := _MIG.findall(line.where):
        found["mig"] = " ".join(mig)
    if cause := _CAUSE.search(line.rest):
        found["cause_xid"] = int(cause["cause"])
        found["cause"] = lookup(int(cause["cause"])).meaning
    if order := _RECOVERY.search(line.rest):
        found["action_old"] = int(order["old"], 16)
        found["action_new"] = int(order["new"], 16)
    if place := _SM.search(line.rest):
        found |= {key: int(value) for key, value in place.groupdict().items() if value is not None}
    if line.code == _NVLINK4 and (link := link_error(line.rest)):
        found |= link.evidence()
    if block := block_error(line.rest):
        found |= block.evidence()
    if line.message:
        found["line"] = one_line(line.message)
    return found


def _is_consequence(row: Xid, line: XidLine) -> bool:
    if row.kind is XidClass.CONSEQUENCE:
        return True
    link = link_error(line.rest) if row.code == _NVLINK4 else None
    return link is not None and link.fault is LinkFault.SECONDARY
