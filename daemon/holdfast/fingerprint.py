"""How certificates are named between agents, controller and command line. Standard library only, since agents use it."""

from __future__ import annotations

import hashlib
import re
import ssl

FINGERPRINT_DIGITS = 16
"""64 bits of a SHA-256: enough to tell a site's few authorities apart, short enough to read."""
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def fingerprints(pem: str) -> tuple[str, ...]:
    """Of each certificate in a PEM file, in its order. Raises ValueError for one that is not base64."""
    ders = (ssl.PEM_cert_to_DER_cert(found.group()) for found in _PEM.finditer(pem))
    return tuple(hashlib.sha256(der).hexdigest()[:FINGERPRINT_DIGITS] for der in ders)
