"""Check of ``[telemetry]``. Standard library only."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

from holdfast.config.in_clear import in_clear
from holdfast.config.sections import TelemetrySection
from holdfast.model.errors import ConfigError


def check_telemetry(section: TelemetrySection, where: str) -> None:
    """Raises ConfigError in one line."""
    if section.otlp_url:
        _check_url(section.otlp_url, f"{where}.otlp_url")
    elif section.otlp_header_file is not None:
        raise ConfigError(f"{where}.otlp_header_file: there is no otlp_url to send it to")
    if section.emf_file not in ("", "-") and not Path(section.emf_file).is_absolute():
        raise ConfigError(f"{where}.emf_file: {section.emf_file!r} is no absolute path, and not - for standard output")
    if section.otlp_header_file is not None and in_clear(section.otlp_url):
        raise ConfigError(f"{where}.otlp_url: the header would cross the network unencrypted: use https://")


def _check_url(url: str, where: str) -> None:
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{where}: {url!r} is no address such as http://127.0.0.1:4318/v1/traces")
    if parts.username or parts.password:
        raise ConfigError(f"{where}: write no password into an address; set otlp_header_file")
    if parts.path in ("", "/"):
        raise ConfigError(f"{where}: the path is missing, usually /v1/traces: {url.rstrip('/')}/v1/traces")
