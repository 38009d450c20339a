"""Names under which browsers reach the controller, checked as settings are read."""

from __future__ import annotations

import re

from holdfast.config.sections import DashboardSection
from holdfast.model.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?")

_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_PATH = re.compile(r"/(?!/)[!-~]{0,500}")
_ADDRESS = re.compile(r"https://[A-Za-z0-9.-]+(:[0-9]+)?(/[!-~]{0,500})?")


def check_dashboard(section: DashboardSection, where: str) -> None:
    """Raises ConfigError for what no browser sends as a name: a URL, a port, a pattern."""
    for name in section.hosts:
        if len(name) > 253 or not _NAME.fullmatch(name):
            raise ConfigError(
                f"{where}: hosts: {name!r} is not a host name such as holdfast.example.org, without https:// and port"
            )
    _check_proxy(section, where)


_RESERVED = frozenset(
    {"authorization", "connection", "content-length", "content-type", "cookie", "host", "origin", "referer", "te", "transfer-encoding",
     "upgrade", "x-holdfast-proxy-secret"}
)  # fmt: skip
"""Headers that say something else already."""


def _check_proxy(section: DashboardSection, where: str) -> None:
    header, file = section.proxy_user_header, section.proxy_secret_file
    if bool(header) != (file is not None):
        missing = "proxy_secret_file" if header else "proxy_user_header"
        raise ConfigError(f"{where}: {missing} is missing: a proxy is believed with both, or not at all")
    if header and (not _HEADER.fullmatch(header) or header.lower() in _RESERVED or header.lower().startswith("sec-")):
        raise ConfigError(
            f"{where}: proxy_user_header: {header!r} cannot be used: take another header, such as X-Remote-User"
        )
    out = section.proxy_sign_out
    if out and not (_PATH.fullmatch(out) or _ADDRESS.fullmatch(out)):
        raise ConfigError(
            f"{where}: proxy_sign_out: {out!r} is no path such as /oauth2/sign_out, nor an https:// address"
        )
