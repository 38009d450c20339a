"""Rules about the certificate that the controller serves, and the authorities that agents trust (docs/how-to-tls.md)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, names
from holdfast.tls.judge import CertificateView
from holdfast.tls.plan import RENEW_WITHIN, without

URGENT = timedelta(days=7)
AUTHORITY_WITHIN = timedelta(days=180)
"""A new authority has to reach every node: that takes a site longer than a certificate on the head node."""
_RENEW = "holdfast tls renew && systemctl reload holdfast-controller   # as root on the head node"
_NEW_CA = "holdfast tls renew --new-ca && systemctl reload holdfast-controller   # as root; then ca.pem to every node"


def unusable(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.tls is not None and facts.tls.problem:
        yield Advice(
            "tls.unusable",
            AdviceLevel.ERROR,
            facts.tls.problem,
            "No agent can verify the controller: none reports.",
            "holdfast tls show   # as root on the head node; holdfast tls init makes what is missing",
        )


def ends(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.tls is None:
        return
    if facts.tls.served is not None:
        yield from _ends(facts, facts.tls.served, "certificate", RENEW_WITHIN, _RENEW)
    for authority in facts.tls.trusted[:1]:
        yield from _ends(facts, authority, "authority", AUTHORITY_WITHIN, _NEW_CA)


def _ends(facts: DoctorFacts, one: CertificateView, what: str, within: timedelta, fix: str) -> Iterator[Advice]:
    left = one.ends_at - facts.now
    if left < within:
        shown = f"ends in {left.days} days, on" if left > timedelta() else "has ended on"
        yield Advice(
            "tls.ends",
            AdviceLevel.ERROR if left < URGENT else AdviceLevel.WARNING,
            f"the {what} {one.subject} {shown} {one.ends_at:%Y-%m-%d}",
            "From that day on every agent refuses the controller: none reports, and faults are seen by no one.",
            fix,
        )


def refused(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.tls is not None and facts.tls.refused:
        yield Advice(
            "tls.strict",
            AdviceLevel.ERROR,
            f"strict verification refuses the certificate: {names(facts.tls.refused, 3)}",
            "Python 3.13 (Debian 13) verifies so by default: agents and command lines on it cannot connect.",
            _NEW_CA,
        )


def not_reloaded(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.tls is None or facts.tls.served is None or not facts.tls_running:
        return
    if facts.tls_running != facts.tls.served.fingerprint:
        yield Advice(
            "tls.not_reloaded",
            AdviceLevel.WARNING,
            f"the controller serves another certificate than {facts.tls.path} holds",
            "The new one takes effect with a reload; until then the old one's end counts.",
            "systemctl reload holdfast-controller",
        )


def overlap(facts: DoctorFacts) -> Iterator[Advice]:
    """Two authorities are trusted: who lacks the new one, else that the old one can go."""
    if facts.tls is None or len(facts.tls.trusted) < 2 or facts.agents is None:
        return
    trusted = {node: each[-1].authorities for node, each in facts.agents.items() if each}
    behind = without(facts.tls.trusted[0].fingerprint, trusted)
    fix = "copy ca.pem to each of them" if behind else "holdfast tls renew --retire-old-ca   # as root on the head node"
    what = f"agents not known to trust it: {names(behind)}" if behind else "every agent trusts it"
    yield Advice(
        "tls.overlap",
        AdviceLevel.HINT,
        f"a new authority replaces the old one; {what}",
        "The old one is trusted until it is retired, no matter who has its key.",
        fix,
    )


RULES = (unusable, ends, refused, not_reloaded, overlap)
