"""Codes of the kernel log in words, for ``holdfast-checks explain``."""

from __future__ import annotations

from holdfast_checks.catalog import sxids, xids
from holdfast_checks.result import Severity

_ACTS = {
    Severity.FATAL: "acted upon at once: the jobs on it are lost or wrong",
    Severity.DEGRADED: "acted upon when the node's jobs end",
    Severity.WARNING: "recorded and watched; never acted upon alone",
}


def explain(kind: str, number: str) -> tuple[str, ...]:
    """Lines of text on ``xid 79`` or ``sxid 12028``. Raises ValueError for what is no number."""
    if not (number.isascii() and number.isdigit()):
        raise ValueError(f"an {'SXid' if kind == 'sxid' else 'Xid'} is a number, not {number!r}")
    return _sxid(int(number)) if kind == "sxid" else _xid(int(number))


def _xid(code: int) -> tuple[str, ...]:
    row = xids.lookup(code)
    lines = [
        f"Xid {row.code}: {row.meaning}",
        f"class    {row.kind} ({xids.CLASS_TEXT[row.kind]})",
        f"severity {row.severity} ({_ACTS[row.severity]})",
        f"remedy   {row.remedy}",
    ]
    if row.note:
        lines.append(f"note     {row.note}")
    lines.append(f"source   {xids.source()}" if row.kind is not xids.XidClass.UNKNOWN else "source   none names it")
    return tuple(lines)


def _sxid(code: int) -> tuple[str, ...]:
    row = sxids.lookup(code)
    acts = row.kind in (sxids.SxidClass.FATAL, sxids.SxidClass.HOST)
    return (
        f"SXid {code}: NVSwitch, {row.family}",
        f"class    {row.kind}",
        f"severity {'fatal where the line says Fatal, else warning' if acts else 'warning'}",
        f"remedy   {row.remedy}",
        f"source   {sxids.SOURCE}",
    )
