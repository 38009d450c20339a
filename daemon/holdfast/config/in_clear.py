"""Whether a token would cross a network unencrypted. Standard library only."""

from __future__ import annotations

import urllib.parse

from holdfast.config.binding import is_loopback


def in_clear(url: str) -> bool:
    """``http://`` to another machine: another host on the way could read the token, and answer in the controller's place."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")
