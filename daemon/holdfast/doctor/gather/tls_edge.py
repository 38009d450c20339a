"""The doctor's look at the controller's certificate: in its files, and as the running controller serves it."""

from __future__ import annotations

import hashlib
import socket
import ssl

from holdfast.config.sections import ServerSection
from holdfast.fingerprint import FINGERPRINT_DIGITS
from holdfast.tls.survey import TlsSurvey, survey

TIMEOUT_S = 2.0
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - what a bind to every address means here


def surveyed(server: ServerSection) -> TlsSurvey | None:
    """None: the controller serves no TLS. The authorities are those of ca.pem in the certificate's folder."""
    return survey(server.tls_cert, server.tls_cert.parent / "ca.pem") if server.tls_cert is not None else None


def running(server: ServerSection) -> str:
    """Fingerprint of the certificate that the controller on this machine serves now; empty where it does not answer."""
    if server.tls_cert is None:
        return ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is compared, not trusted: nothing is sent
    try:
        with (
            socket.create_connection((_ANY.get(server.host, server.host), server.port), TIMEOUT_S) as connection,
            context.wrap_socket(connection) as agreed,
        ):
            served = agreed.getpeercert(binary_form=True) or b""
    except OSError:
        return ""
    return hashlib.sha256(served).hexdigest()[:FINGERPRINT_DIGITS]
