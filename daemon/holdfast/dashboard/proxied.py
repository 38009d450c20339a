"""Who has signed in at a reverse proxy in front of the dashboard, as the proxy says.

The proxy proves itself by a secret in each request. An address proves nothing: on the head node itself everyone can connect from loopback,
and who can send the request can also write the header with the name."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from pathlib import Path

from starlette.datastructures import Headers

from holdfast.config.sections import DashboardSection
from holdfast.model.errors import ConfigError

SECRET_HEADER = "x-holdfast-proxy-secret"  # noqa: S105 - the name of a header
LEAST_CHARS = 32
"""Of the secret: as 24 random bytes in base64."""
MOST_CHARS = 512
_LONGEST_NAME = 252


@dataclass(frozen=True, slots=True)
class ProxyTrust:
    """How a request of the proxy is known."""

    user_header: str
    """In lower case."""
    secret: str = field(repr=False)

    def user(self, headers: Headers) -> str | None:
        """Name of who has signed in there; None: the proxy did not send this, or no one has.

        A header that is there twice counts as none: a proxy that adds its own and lets the client's through would let anyone choose."""
        shown, names = headers.getlist(SECRET_HEADER), headers.getlist(self.user_header)
        if len(shown) != 1 or len(names) != 1 or not hmac.compare_digest(shown[0].encode(), self.secret.encode()):
            return None
        name = names[0].strip(" \t")
        return name if name and len(name) <= _LONGEST_NAME and name.isprintable() else None


def read_trust(section: DashboardSection) -> ProxyTrust | None:
    """What the settings say; None: no proxy is believed. Raises ConfigError."""
    if not section.proxy_user_header or section.proxy_secret_file is None:
        return None
    return ProxyTrust(section.proxy_user_header.lower(), _secret(section.proxy_secret_file))


def _secret(file: Path) -> str:
    where = f"dashboard.proxy_secret_file: {file}"
    try:
        with open(file, encoding="ascii") as opened:
            secret = opened.read(MOST_CHARS + 2).strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where} cannot be read: {error}") from None
    if not LEAST_CHARS <= len(secret) <= MOST_CHARS or not secret.isprintable() or " " in secret:
        raise ConfigError(
            f"{where} must have one line of {LEAST_CHARS} to {MOST_CHARS} characters without spaces: "
            f"openssl rand -base64 32 > {file}"
        )
    return secret
