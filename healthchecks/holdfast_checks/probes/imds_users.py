"""Whether a user without rights reaches EC2's instance metadata, and with it the machine's role: tried as the user ``nobody``.

A child of root's becomes that user for good and asks for a token (IMDSv2) and for a document without one (IMDSv1). Plain HTTP to a
link-local address, never by a proxy; of the answer only the status is read."""

from __future__ import annotations

import json
import os
import pwd
import sys
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from holdfast_checks.probes.child import CHILDREN, Finished
from holdfast_checks.probes.imds import URL
from holdfast_checks.registry import NotGathered

URL_V6 = "http://[fd00:ec2::254]"
EACH_S = 1.0
"""For one request: the service answers in less than a millisecond."""
DEADLINE_S = 4 * EACH_S + 4.0
_NOBODY = 65534
_ASK = """
import json, os, socket, sys, encodings.idna
uid, gid, wait_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
os.setgroups([])
os.setresgid(gid, gid, gid)
os.setresuid(uid, uid, uid)
asked = (
    ("PUT", "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 1\\r\\nContent-Length: 0\\r\\n"),
    ("GET", "/latest/meta-data/", ""),
)
found = []
for base, host, port, path in json.loads(sys.argv[4]):
    for method, rest, headers in asked:
        status = 0
        try:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as to:
                to.settimeout(wait_s)
                to.connect((host, port))
                to.sendall(f"{method} {path}{rest} HTTP/1.1\\r\\nHost: metadata\\r\\nConnection: close\\r\\n{headers}\\r\\n".encode())
                line = to.recv(64).split()
            status = int(line[1]) if line[0].startswith(b"HTTP/") else 0
        except (OSError, ValueError, IndexError):
            pass
        found.append([base, method, status])
print(json.dumps(found))
"""
"""All that it needs is loaded before it gives root's rights up: Python's own files may be root's alone."""


@dataclass(frozen=True, slots=True)
class MetadataReached:
    """What such a user reached."""

    tokens: tuple[str, ...] = ()
    """Addresses that gave a token (IMDSv2)."""
    plain: tuple[str, ...] = ()
    """Addresses that answered without one (IMDSv1)."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """By either way."""
        return tuple(dict.fromkeys((*self.tokens, *self.plain)))


def addresses(base: str) -> tuple[str, ...]:
    """Where to ask: a machine of EC2 may answer by IPv6, too."""
    return (URL, URL_V6) if base == URL else (base,)


def try_as_user(bases: Sequence[str]) -> MetadataReached:
    """Raises NotGathered where this process cannot become another user, or the child said nothing."""
    if os.geteuid() != 0:
        raise NotGathered("only root can try it as another user")
    user, group = _unprivileged()
    argv = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        _ASK,
        str(user),
        str(group),
        str(EACH_S),
        json.dumps([_place(base) for base in bases]),
    ]
    try:
        done = CHILDREN.run("imds_users", argv, DEADLINE_S, env={"LC_ALL": "C"})
    except OSError as error:
        raise NotGathered(f"python could not be started: {error}") from error
    if not isinstance(done, Finished):
        raise NotGathered(f"the try has not ended within {DEADLINE_S:g} s")
    if done.status:
        raise NotGathered(f"the try failed: {done.complaint}")
    try:
        found = [(str(base), str(method), int(status)) for base, method, status in json.loads(done.text)]
    except (ValueError, TypeError) as error:
        raise NotGathered("the try said something else than its result") from error
    good = [(base, method) for base, method, status in found if status == 200]
    return MetadataReached(*(tuple(base for base, method in good if method == wanted) for wanted in ("PUT", "GET")))


def _place(base: str) -> tuple[str, str, int, str]:
    """URL, host, port, path. Raises NotGathered for what is no address of instance metadata."""
    try:
        parts = urllib.parse.urlsplit(base)
        host, port = str(ip_address(parts.hostname or "")), parts.port or 80
    except ValueError as error:
        raise NotGathered(f"{base}: no address of instance metadata") from error
    return base, host, port, parts.path


def _unprivileged() -> tuple[int, int]:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return _NOBODY, _NOBODY
    return (entry.pw_uid, entry.pw_gid) if entry.pw_uid else (_NOBODY, _NOBODY)
