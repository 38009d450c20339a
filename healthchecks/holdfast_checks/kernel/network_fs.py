"""Lustre and NFS clients. Trouble of a server shows on every node at once: it is recorded, and no node is blamed for it."""

from __future__ import annotations

from holdfast_checks.kernel.rule import rule
from holdfast_checks.result import Remedy, Severity

LUSTRE = "kernel.lustre"
NFS = "kernel.nfs"

_SOURCE = r"\d{1,10}:\d{1,10}:\([\w.-]{1,60}:\d{1,6}:\w{1,80}\(\)\) "
_TARGET = r"(?P<target>[\w.-]{1,80}?-(?:OST|MDT|MGS|MGT)[0-9a-fA-F]{0,8})"

NETWORK_FS_RULES = (
    rule(
        NFS,
        r"(?:nfs|NFS|lockd): server (?P<server>\S{1,253}) not responding, (?P<what>still trying|timed out)",
        "not_responding",
        Severity.WARNING,
        Remedy.NONE,
        "NFS server {server} does not answer ({what})",
        component="{server}",
    ),
    rule(
        LUSTRE,
        rf"LustreError: {_SOURCE}LBUG\b",
        "lbug",
        Severity.DEGRADED,
        Remedy.REBOOT,
        "Lustre's client hit an internal bug and froze",
    ),
    rule(
        LUSTRE,
        rf"LustreError: (?:\d{{1,5}}-\w{{1,3}}|{_SOURCE[:-1]}): {_TARGET}\S{{0,80}}: This client was evicted by ",
        "evicted",
        Severity.WARNING,
        Remedy.NONE,
        "Lustre evicted this client from {target}: what was under way is lost",
        component="{target}",
    ),
    rule(
        LUSTRE,
        rf"Lustre: {_TARGET}\S{{0,80}}: Connection to \S{{1,80}} \(at (?P<server>\S{{1,80}})\) was lost",
        "connection_lost",
        Severity.WARNING,
        Remedy.NONE,
        "Lustre lost {target}",
        component="{target}",
    ),
    rule(
        LUSTRE,
        rf"LustreError: (?:\d{{1,5}}-\w{{1,3}}): {_TARGET}\S{{0,80}}: "
        r"operation (?P<operation>\w{1,40}) to node (?P<server>\S{1,80}) failed",
        "operation_failed",
        Severity.WARNING,
        Remedy.NONE,
        "Lustre: {operation} to {target} failed",
        component="{target}",
    ),
)
