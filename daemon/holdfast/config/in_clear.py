"""Whether a token would cross a network unencrypted. Standard library only."""

from __future__ import annotations

import ipaddress
import urllib.parse


def in_clear(url: str) -> bool:
    """``http://`` to another machine: whoever is on the way could read the token, and answer in the controller's place."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme == "http" and not _loopback(parts.hostname or "")


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
