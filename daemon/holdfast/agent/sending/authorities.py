"""Certificate authorities that this agent trusts: read from ``ca_file``, and again when the file changes."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

from holdfast.fingerprint import fingerprints

log = logging.getLogger(__name__)


def trust_context(ca_file: Path | None) -> ssl.SSLContext | None:
    """TLS context to verify servers; None: the system's. Raises OSError in one line that names the file."""
    if ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except ssl.SSLError as error:
        raise OSError(f"ca_file {ca_file}: no PEM file with certificates ({error.reason or error})") from error
    except OSError as error:
        raise OSError(f"ca_file {ca_file}: {error.strerror or error}; copy ca.pem from the head node") from error


class Authorities:
    """Fingerprints of the file's certificates, for the controller's record; costs one ``stat`` where nothing has changed."""

    def __init__(self, ca_file: Path | None) -> None:
        self._ca_file = ca_file
        self._stamp: tuple[int, int, int] | None = None
        self._known: tuple[str, ...] = ()

    def known(self) -> tuple[str, ...]:
        """The fingerprints; empty: the system's authorities, or a file that cannot be read now."""
        stamp = file_stamp(self._ca_file)
        if stamp != self._stamp:
            self._stamp, self._known = stamp, self._read()
        return self._known

    def _read(self) -> tuple[str, ...]:
        if self._ca_file is None:
            return ()
        try:
            return fingerprints(self._ca_file.read_text(encoding="ascii", errors="replace"))
        except (OSError, ValueError) as error:
            log.warning("event=authorities_unreadable path=%s error=%r", self._ca_file, str(error))
            return ()


def file_stamp(path: Path | None) -> tuple[int, int, int] | None:
    """Values that change when a file is replaced or written; None: it does not exist."""
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
