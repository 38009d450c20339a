"""Where the server may listen. Standard library only."""

from __future__ import annotations

import ipaddress

from holdfast.model.errors import ConfigError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_loopback(host: str) -> bool:
    """Whether a bind to ``host`` can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def networks(names: tuple[str, ...], where: str) -> tuple[Network, ...]:
    """Addresses and networks as such. Raises ConfigError."""
    found: list[Network] = []
    for name in names:
        try:
            found.append(ipaddress.ip_network(name))
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from error
    return tuple(found)


def check_bind(host: str, tls_cert: object | None, tls_key: object | None) -> None:
    """Tokens cross no network in the clear. Raises ConfigError for a bind beyond loopback without TLS."""
    if (tls_cert is None) != (tls_key is None):
        raise ConfigError("server: tls_cert and tls_key belong together: set both or neither")
    if tls_cert is None and not is_loopback(host):
        raise ConfigError(
            f"server: host {host!r} is not loopback and TLS is not set: add tls_cert and tls_key, or use 127.0.0.1"
        )
