"""The certificate that the API serves: checked before it is used, and replaced while the server runs."""

from __future__ import annotations

import logging
import ssl
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


def reload_certificate(server: uvicorn.Server) -> None:
    """Serve new connections with what the files hold now; connections that are open go on as they are.

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
