"""One spelling for PCI addresses: ``0000:3b:00.0``, lower case, with function.

The kernel log writes ``PCI:0000:3b:00`` (no function), NVML ``00000000:3B:00.0``, lspci ``3b:00.0``.
"""

from __future__ import annotations

import re

_ADDRESS = re.compile(
    r"(?:PCI:)?(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{1,2}):(?P<device>[0-9a-f]{1,2})(?:\.(?P<function>[0-7]))?",
    re.IGNORECASE,
)


def normalise(text: str) -> str | None:
    """The one spelling of an address in any of the known ones; None when it is not an address."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        return None
    device = int(match["device"], 16)
    if device > 0x1F:
        return None
    domain = int(match["domain"] or "0", 16)
    return f"{domain:04x}:{int(match['bus'], 16):02x}:{device:02x}.{match['function'] or '0'}"
