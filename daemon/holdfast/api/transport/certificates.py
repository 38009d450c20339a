"""The certificate that the API serves: checked before it is used, and replaced while the server runs."""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime
from os import PathLike

import uvicorn

from holdfast.model.errors import ConfigError

log = logging.getLogger(__name__)
Path = str | PathLike[str]


def check_pair(certificate: Path, key: Path) -> None:
    """Raises ConfigError in one line where the two cannot be read by this user or do not belong together."""
    for path in (certificate, key):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise ConfigError(f"server: {path}: {error.strerror or error}") from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"server: {certificate} and {key} are no certificate with its key ({error}); see `holdfast tls show`"
        ) from error


def ends_at(certificate: Path) -> datetime | None:
    """When the first certificate of a PEM file ends; None: it cannot be read."""
    try:
        with open(certificate, encoding="ascii", errors="replace") as file:
            pem = file.read(1 << 20)
        start, end = pem.index(_BEGIN), pem.index(_END)
        return _not_after(ssl.PEM_cert_to_DER_cert(pem[start : end + len(_END)]))
    except (OSError, ValueError, IndexError):
        return None


_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_GENERALIZED_TIME, _VERSION = 0x18, 0xA0


def _not_after(der: bytes) -> datetime:
    """Of RFC 5280's Certificate: version, serial, algorithm, issuer, and then the validity, of which it is the second part."""
    _, certificate, _ = _part(der)
    _, fields, _ = _part(certificate)
    tag, _, rest = _part(fields)
    if tag != _VERSION:
        rest = fields
    for _ in range(3):
        _, _, rest = _part(rest)
    _, validity, _ = _part(rest)
    _, _, rest = _part(validity)
    tag, value, _ = _part(rest)
    form = "%Y%m%d%H%M%SZ" if tag == _GENERALIZED_TIME else "%y%m%d%H%M%SZ"
    return datetime.strptime(value.decode("ascii"), form).replace(tzinfo=UTC)


def _part(data: bytes) -> tuple[int, bytes, bytes]:
    """Tag and value of the first element, and what follows it."""
    tag, size, start = data[0], data[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    return tag, data[start : start + size], data[start + size :]


def reload_certificate(server: uvicorn.Server) -> None:
    """Serve new connections with what the files hold now; open connections keep the old ones.

    A pair that cannot be used changes nothing: it is tried apart first, as OpenSSL would keep half of it."""
    config = server.config
    certificate, key, context = config.ssl_certfile, config.ssl_keyfile, getattr(config, "ssl", None)
    if certificate is None or key is None or context is None:
        log.info("event=certificate_reload outcome=nothing reason=no_tls")
        return
    try:
        check_pair(certificate, key)
        context.load_cert_chain(certificate, key)
    except (ConfigError, ssl.SSLError, OSError) as error:
        log.error("event=certificate_reload outcome=kept_the_old_one error=%r", str(error))
        return
    log.info("event=certificate_reload outcome=done certificate=%s", certificate)
