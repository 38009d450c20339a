"""EC2's instance metadata service, version 2: a token, then small documents. Plain HTTP to a link-local address, never by a proxy.

One request costs a fraction of a millisecond. A service that does not answer is asked ever more rarely, so that it delays no one."""

from __future__ import annotations

import http.client
import time
import urllib.parse
from dataclasses import dataclass

from holdfast_checks.probes import sysfs as files
from holdfast_checks.registry import Context, NotApplicable
from holdfast_checks.settings import CheckSettings

URL = "http://169.254.169.254"
DEADLINE_S = 1.0
TOKEN_S = 21600
"""The longest life of a token that the service gives."""
QUIET_MAX_S = 60.0
_QUIET_S = 5.0
_EC2 = ("amazon ec2", "amazon")
_MOST_BYTES = 65536


class ImdsRefused(OSError):
    """The service answered, and not with a document: switched off, or not what it should be."""


@dataclass(frozen=True, slots=True)
class ImdsDocument:
    """One reading of one document."""

    document: str | None = None
    """None: there is none, nothing is planned."""
    why_not: str = ""
    """Why the service could not be asked; empty: it was."""
    token: str = ""
    token_until_s: float = 0.0
    """On CLOCK_MONOTONIC."""
    misses: int = 0
    """Times in a row that it did not answer."""
    quiet_until_s: float = 0.0
    """Not asked before then."""


def base_url(settings: CheckSettings) -> str:
    """Where the service is. Raises NotApplicable where there is none."""
    told = settings.cloud.imds
    if told != "auto":
        if not told:
            raise NotApplicable("the site says that there is no instance metadata")
        return told.rstrip("/")
    if not on_ec2(settings):
        raise NotApplicable("not a machine of EC2")
    return URL


def on_ec2(settings: CheckSettings) -> bool:
    """By the firmware's own tables, without a packet on the network."""
    for name in ("sys_vendor", "bios_vendor", "bios_version"):
        word = (files.text(f"{settings.sysfs}/class/dmi/id/{name}") or "").lower()
        if word in _EC2 or word.endswith(".amazon"):
            return True
    return False


def look(context: Context, path: str) -> ImdsDocument:
    """The document under ``latest/meta-data/``. Raises NotApplicable."""
    base = base_url(context.settings)
    before = context.before.facts if context.before is not None else None
    last = before if isinstance(before, ImdsDocument) else ImdsDocument()
    now_s = time.monotonic()
    if now_s < last.quiet_until_s:
        return last
    try:
        return _ask(base, path, last, now_s)
    except (OSError, http.client.HTTPException) as error:
        misses = last.misses + 1
        quiet_s = 0.0 if misses == 1 else min(QUIET_MAX_S, _QUIET_S * 2 ** min(misses, 10))
        why = f"instance metadata does not answer: {error or type(error).__name__}"
        return ImdsDocument(why_not=" ".join(why.split())[:200], misses=misses, quiet_until_s=now_s + quiet_s)


def _ask(base: str, path: str, last: ImdsDocument, now_s: float) -> ImdsDocument:
    token, until_s = last.token, last.token_until_s
    if not token or now_s >= until_s:
        token, until_s = new_token(base), now_s + TOKEN_S / 2
    status, text = _request(base, "GET", f"/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": token})
    if status == http.client.UNAUTHORIZED:  # it was made anew meanwhile, and forgot its tokens
        token, until_s = new_token(base), now_s + TOKEN_S / 2
        status, text = _request(base, "GET", f"/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": token})
    if status == http.client.NOT_FOUND:
        return ImdsDocument(None, token=token, token_until_s=until_s)
    if status != http.client.OK:
        raise ImdsRefused(f"status {status}")
    return ImdsDocument(text, token=token, token_until_s=until_s)


def new_token(base: str) -> str:
    """Raises OSError, HTTPException."""
    status, text = _request(
        base, "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S), "Content-Length": "0"}
    )
    if status != http.client.OK or not text.isprintable() or not 0 < len(text) < 1024:
        raise ImdsRefused(f"no token (status {status})")
    return text


def document(base: str, path: str) -> str | None:
    """Read one document, with a new token; None: there is none. Raises OSError, HTTPException."""
    return _ask(base, path, ImdsDocument(), time.monotonic()).document


def _request(base: str, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
    parts = urllib.parse.urlsplit(base)
    if parts.scheme != "http" or not parts.hostname:
        raise ImdsRefused(f"not an address of instance metadata: {base}")
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=DEADLINE_S)
    try:
        connection.request(method, f"{parts.path}{path}", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES).decode("utf-8", errors="replace").strip()
    finally:
        connection.close()
