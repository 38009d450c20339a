"""What ``holdfast tls init`` and ``renew`` do with what is there. Pure: the folder's state in, steps with their reasons out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

RENEW_WITHIN = timedelta(days=30)
"""``init`` issues again what ends sooner than this; the doctor warns from the same day on."""


class KeyState(StrEnum):
    """A private key and its certificate."""

    ABSENT = "absent"
    FITS = "fits"
    """It is the certificate's."""
    ALONE = "alone"
    """There is a key and no certificate for it."""


@dataclass(frozen=True, slots=True)
class TlsState:
    """What lies in the folder."""

    authority: KeyState | None = None
    """The authority's key; None: there is no certificate of an authority of our own."""
    trusted: tuple[str, ...] = ()
    """Fingerprints in the file that agents trust."""
    authority_fingerprint: str = ""
    names: tuple[str, ...] | None = None
    """Of the controllers' certificate; None: there is none."""
    signed: bool = False
    """The certificate is signed by the authority."""
    ends_at: datetime | None = None
    key: KeyState = KeyState.ABSENT
    """The controllers' key."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the operator asked for."""

    names: tuple[str, ...] = ()
    """Given; empty: those of the present certificate, else those found on this machine."""
    found: tuple[str, ...] = ()
    """Names and addresses of this machine."""
    new_key: bool = False
    within: timedelta | None = None
    """Renew only what ends sooner than this; None: at once."""


@dataclass(frozen=True, slots=True)
class MakeAuthority:
    """A first authority."""


@dataclass(frozen=True, slots=True)
class TrustAuthority:
    """The file that agents trust lacks the authority."""


@dataclass(frozen=True, slots=True)
class ReplaceAuthority:
    """A second authority, signed by the present one; agents trust both."""


@dataclass(frozen=True, slots=True)
class RetireAuthorities:
    """Agents trust the present authority alone."""


@dataclass(frozen=True, slots=True)
class Issue:
    """A new certificate for the controllers."""

    names: tuple[str, ...]
    new_key: bool
    why: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing to do."""

    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nothing is done; ``why`` says what to do instead."""

    why: str


TlsStep = MakeAuthority | TrustAuthority | ReplaceAuthority | RetireAuthorities | Issue
Plan = tuple[TlsStep, ...] | Keep | Refuse

NO_SIGNER = (
    "the authority's key is not here; run this where ca/ca.key is, and copy ca.pem, tls.pem and tls.key from there"
)


def plan_init(state: TlsState, wishes: Wishes, now: datetime) -> Plan:
    """Make what is missing. What is there and good stays; no key is ever replaced."""
    names = _union(wishes.names or (state.names or wishes.found), state.names)
    if state.authority is None:
        foreign = _foreign(state)
        return Refuse(foreign) if foreign else (MakeAuthority(), Issue(names, False, "there was none"))
    trust = () if state.authority_fingerprint in state.trusted else (TrustAuthority(),)
    why = _reason_to_issue(state, wishes, now)
    if why is None:
        return trust or Keep("authority, key and certificate are there and good")
    if state.authority is not KeyState.FITS:
        return Refuse(f"{why}, and {NO_SIGNER}")
    return (*trust, Issue(names, False, why))


def plan_renew(state: TlsState, wishes: Wishes, now: datetime) -> Plan:
    """A new certificate from the present authority, with the present key unless another is asked for."""
    if state.authority is None:
        return Refuse(_foreign(state) or "there is no authority here; holdfast tls init makes one")
    if state.authority is not KeyState.FITS:
        return Refuse(NO_SIGNER)
    within = wishes.within
    asked = wishes.names or wishes.new_key
    if within is not None and not asked and state.ends_at is not None and state.ends_at - now > within:
        return Keep(f"the certificate is good until {state.ends_at:%Y-%m-%d}")
    names = _union(wishes.names or (state.names or wishes.found), state.names)
    return (Issue(names, wishes.new_key, "renewed"),)


def plan_replace(state: TlsState, wishes: Wishes) -> Plan:
    """A new authority that overlaps with the present one, and a certificate from it."""
    if state.authority is None:
        return Refuse(_foreign(state) or "there is no authority here; holdfast tls init makes one")
    if state.authority is not KeyState.FITS:
        return Refuse(NO_SIGNER)
    if len(state.trusted) > 1:
        return Refuse(
            "an authority before this one is still trusted; end that overlap first: holdfast tls renew --retire-old-ca"
        )
    names = _union(wishes.names or (state.names or wishes.found), state.names)
    return (ReplaceAuthority(), Issue(names, wishes.new_key, "the authority is new"))


def plan_retire(state: TlsState, agents: Mapping[str, tuple[str, ...] | None] | None, *, force: bool = False) -> Plan:
    """End the overlap. ``agents``: node → the authorities that its agent reports (None: it does not say); None: not asked.

    An agent that trusts the old authority alone would no longer report: one such, or one that is not known, is a refusal."""
    if state.authority is not KeyState.FITS:
        return Refuse(NO_SIGNER if state.authority else "there is no authority here")
    if len(state.trusted) < 2:
        return Keep("one authority is trusted; there is no old one to retire")
    if not force:
        if agents is None:
            return Refuse(
                "the controller was not asked which agents trust the new authority (HOLDFAST_URL, HOLDFAST_CA_FILE and a token); "
                "--force continues without knowing"
            )
        behind = without(state.authority_fingerprint, agents)
        if behind:
            shown = ", ".join(behind[:8]) + (f" and {len(behind) - 8} more" if len(behind) > 8 else "")
            return Refuse(
                f"not known to trust the new authority: {shown}; copy ca.pem there first (--force continues anyway)"
            )
    again = (Issue(state.names, False, "the old authority is retired"),) if state.names is not None else ()
    return (RetireAuthorities(), *again)


def without(fingerprint: str, agents: Mapping[str, tuple[str, ...] | None]) -> list[str]:
    """Nodes whose agents are not known to trust this authority, sorted."""
    return sorted(node for node, trusted in agents.items() if trusted is None or fingerprint not in trusted)


def _reason_to_issue(state: TlsState, wishes: Wishes, now: datetime) -> str | None:
    lacking = [name for name in wishes.names if name not in (state.names or ())]
    if state.names is None:
        return "there was none"
    if not state.signed:
        return "the present one is signed by another authority"
    if state.key is not KeyState.FITS:
        return "the present one is not for the key in tls.key"
    if lacking:
        return f"the present one is not for {', '.join(lacking)}"
    if state.ends_at is not None and state.ends_at - now < RENEW_WITHIN:
        return f"the present one ends on {state.ends_at:%Y-%m-%d}"
    return None


def _foreign(state: TlsState) -> str:
    """Why files that are there are not of our making; empty: none are."""
    if state.trusted:
        return "ca.pem is another authority's: renew the certificate with that one, or move ca.pem, tls.pem and tls.key away first"
    if state.names is not None:
        return "tls.pem is another authority's: renew it with that one, or move tls.pem and tls.key away first"
    return ""


def _union(wanted: tuple[str, ...], present: tuple[str, ...] | None) -> tuple[str, ...]:
    """Names that agents may be using are never dropped."""
    return tuple(dict.fromkeys((*wanted, *(present or ()))))
