"""What a certificate says, and what strict verification refuses about it. Pure: certificates in, sentences out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from holdfast.fingerprint import FINGERPRINT_DIGITS

E = TypeVar("E", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True)
class CertificateView:
    """One certificate as people and rules look at it."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    """Host names and addresses that it is for; empty for an authority."""
    fingerprint: str
    """The first digits of its SHA-256, as agents report them of the authorities that they trust."""
    ends_at: datetime


def view(certificate: x509.Certificate) -> CertificateView:
    """The parts that are shown."""
    return CertificateView(
        subject=_shown(certificate.subject),
        issuer=_shown(certificate.issuer),
        names=names_of(certificate),
        fingerprint=fingerprint(certificate),
        ends_at=certificate.not_valid_after_utc,
    )


def fingerprint(certificate: x509.Certificate) -> str:
    """The first digits of the SHA-256 of the whole certificate."""
    return certificate.fingerprint(hashes.SHA256()).hex()[:FINGERPRINT_DIGITS]


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Host names and addresses in the order of the certificate."""
    alternatives = _extension(certificate, x509.SubjectAlternativeName)
    if alternatives is None:
        return ()
    return tuple(str(name.value) for name in alternatives.value if isinstance(name, x509.DNSName | x509.IPAddress))


def signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether ``issuer``'s key made the signature under that subject."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def refusals(chain: Sequence[x509.Certificate]) -> list[str]:
    """Why OpenSSL with ``X509_V_FLAG_X509_STRICT`` refuses this chain; the server's certificate first, the trusted one last.

    The rules are those of ``check_extensions`` in OpenSSL's ``crypto/x509/x509_vfy.c`` (3.0 to 3.5) that such a chain can
    break; a test compares them with OpenSSL itself."""
    last = len(chain) - 1
    return [
        f"{_shown(one.subject) or 'no subject'}: {why}"
        for number, one in enumerate(chain)
        for rule in RULES
        for why in rule(one, number == last)
    ]


def _constraints(one: x509.Certificate, _: bool) -> Iterator[str]:
    found = _extension(one, x509.BasicConstraints)
    if found is not None and found.value.ca and not found.critical:
        yield "basicConstraints is not critical"


def _key_usage(one: x509.Certificate, _: bool) -> Iterator[str]:
    found = _extension(one, x509.KeyUsage)
    if _is_authority(one) and found is None:
        yield "keyUsage is missing"
    elif _is_authority(one) and found is not None and not found.value.key_cert_sign:
        yield "keyUsage lacks keyCertSign"
    elif not _is_authority(one) and found is not None and found.value.key_cert_sign:
        yield "keyUsage has keyCertSign, and it is no authority"


def _identifiers(one: x509.Certificate, last: bool) -> Iterator[str]:
    subject, issuer = _extension(one, x509.SubjectKeyIdentifier), _extension(one, x509.AuthorityKeyIdentifier)
    if _is_authority(one) and subject is None:
        yield "subjectKeyIdentifier is missing"
    if not last and (issuer is None or issuer.value.key_identifier is None):
        yield "authorityKeyIdentifier is missing"
    if (subject is not None and subject.critical) or (issuer is not None and issuer.critical):
        yield "a key identifier is critical"


def _subjects(one: x509.Certificate, _: bool) -> Iterator[str]:
    if not list(one.issuer):
        yield "the issuer is empty"
    alternatives = _extension(one, x509.SubjectAlternativeName)
    if not list(one.subject) and (_is_authority(one) or alternatives is None or not alternatives.critical):
        yield "the subject is empty"


RULES: tuple[Callable[[x509.Certificate, bool], Iterator[str]], ...] = (
    _constraints,
    _key_usage,
    _identifiers,
    _subjects,
)


def _is_authority(one: x509.Certificate) -> bool:
    found = _extension(one, x509.BasicConstraints)
    return found is not None and found.value.ca


def _extension(one: x509.Certificate, kind: type[E]) -> x509.Extension[E] | None:
    try:
        return one.extensions.get_extension_for_class(kind)
    except x509.ExtensionNotFound:
        return None


def _shown(name: x509.Name) -> str:
    common = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(common[0].value) if common else name.rfc4514_string()
