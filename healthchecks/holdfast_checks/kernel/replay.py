"""Judging a log of any node after the fact: dmesg, journal, syslog or ``/dev/kmsg`` text, all classes. Pure.

A line's message begins after the prefix of the log, and a fault is searched for only there: what a process printed, or is
called, is not a message of the kernel, wherever in the line it occurs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from holdfast_checks.kernel.devices import Devices
from holdfast_checks.kernel.repeats import Repeats
from holdfast_checks.kernel.table import judge_record
from holdfast_checks.kernel.xid import join_split_lines, parse_loose
from holdfast_checks.probes.kmsg_record import parse as parse_record
from holdfast_checks.result import Result

MAX_CHARS = 4096
"""Of a line are read: the kernel's own longest record has 1 KiB (LOG_LINE_MAX)."""
_HEAD_CHARS = 256

_KMSG = re.compile(r"\d{1,10},\d{1,20},\d{1,20},")
_LEVEL = re.compile(r"<\d{1,3}>")
_FACILITY = re.compile(r"(?P<facility>[a-z0-9]{3,8}) {0,4}:(?:emerg|alert|crit|err|warn|notice|info|debug) {0,4}: ?")
"""``dmesg -x``."""
_SYSLOG = re.compile(r"(?:\S{0,80}[^\s:]\s{1,16}){0,8}kernel(?:\[\d{1,10}\])?:\s")
"""Time, host and ``kernel:``; words that end with a colon are another program's name."""
_HOST = re.compile(r"[\w.-]{1,64}: (?=\[ {0,12}\d{1,12}\.\d{1,9}\] )")
"""``pdsh dmesg``."""
_STAMPS = re.compile(
    r"(?:\[ {0,12}\d{1,12}\.\d{1,9}\] ?|\[ {0,12}[TC]\d{1,10}\] ?|\[<? {0,12}\d{1,12}\.\d{1,9}>?\] ?"
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:.]{8,15} \d{4}\] ?"
    r"|\d{4}-\d\d-\d\dT[\d:,.]{8,18}(?:Z|[+-]\d\d:?\d\d) )"
)
"""dmesg's times (plain, with the caller, ``-T``, ``--time-format``)."""
_MOST_STAMPS = 4


def replay(lines: Iterable[str]) -> Iterator[Result]:
    """The findings of a log, in its order. Any text is taken: what cannot be read is passed over."""
    repeats = Repeats()
    devices = Devices(anywhere=True)
    messages = (message for line in lines if (message := message_of(line)))
    for message in join_split_lines(messages):
        result = parse_loose(message) or judge_record(message, devices)
        if result is not None:
            yield repeats.weigh(result)


def message_of(line: str) -> str:
    """The kernel's words in a line, without what the log put in front of them; empty: another program's words."""
    line = line[:MAX_CHARS].rstrip("\r\n")
    if _KMSG.match(line):
        record = parse_record(line)
        if record is not None:
            return record.message if record.from_kernel else ""
    text = line.lstrip(" \t\0\ufeff")
    text = _without(_LEVEL, text)
    facility = _FACILITY.match(text)
    if facility is not None:
        if facility["facility"] != "kern":
            return ""
        text = text[facility.end() :]
    text = _without(_HOST, text)
    text = _without(_SYSLOG, text)
    for _ in range(_MOST_STAMPS):
        shorter = _without(_STAMPS, text)
        if shorter is text:
            break
        text = shorter
    return text


def _without(head: re.Pattern[str], text: str) -> str:
    match = head.match(text, 0, _HEAD_CHARS)
    return text if match is None else text[match.end() :]
