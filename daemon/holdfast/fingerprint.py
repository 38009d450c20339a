"""Certificate fingerprints, as used by agents, controller and command line. Standard library only, since agents use it."""

from __future__ import annotations

import hashlib
import re
import ssl

FINGERPRINT_DIGITS = 16
"""64 bits of a SHA-256: enough to distinguish a site's few authorities, short enough to read."""
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def fingerprints(pem: str) -> tuple[str, ...]:
    """Fingerprints of the certificates in a PEM file, in file order. Raises ValueError for one that is not base64."""
    ders = (ssl.PEM_cert_to_DER_cert(found.group()) for found in _PEM.finditer(pem))
    return tuple(hashlib.sha256(der).hexdigest()[:FINGERPRINT_DIGITS] for der in ders)
