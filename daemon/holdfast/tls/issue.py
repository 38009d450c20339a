"""Makes an authority and the controllers' certificates, with every extension that RFC 5280 demands.

Python 3.13 sets ``VERIFY_X509_STRICT`` by default, and OpenSSL then refuses an authority without a critical ``basicConstraints``, without
``keyUsage`` or without a subject key identifier (https://docs.python.org/3/whatsnew/3.13.html#ssl)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast.model.errors import ConfigError

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
_Extension = tuple[x509.ExtensionType, bool]
"""An extension, and whether it is critical."""

AUTHORITY_DAYS = 3650
BACKDATED = timedelta(days=1)
"""A fresh node's clock may be hours behind until it is set; a certificate of today must not be one of tomorrow there."""
_LABEL = re.compile(r"^(?!-)[A-Za-z0-9_-]{1,63}(?<!-)$")
_LONGEST_NAME = 253
_LONGEST_COMMON_NAME = 64
"""X.520, ub-common-name."""


@dataclass(frozen=True, slots=True)
class Signer:
    """An authority that can sign."""

    certificate: x509.Certificate
    key: PrivateKey


def new_key() -> ec.EllipticCurvePrivateKey:
    """A P-256 key: small on the wire, and spoken by every TLS library in use."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey) -> bytes:
    """PKCS #8 without a passphrase: the service reads it with no operator at hand."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def general_name(text: str) -> x509.GeneralName:
    """A host name or an address as it goes into a certificate. Raises ConfigError for what is neither."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if len(text) > _LONGEST_NAME or not all(_LABEL.match(label) for label in text.split(".")):
        raise ConfigError(f"{text!r} is neither a host name nor an IP address")
    return x509.DNSName(text.lower())


def make_authority(label: str, now: datetime, days: int = AUTHORITY_DAYS) -> Signer:
    """A new authority. Its subject is unique: two that overlap are never taken for each other."""
    key, serial = new_key(), x509.random_serial_number()
    subject = _common_name(f"Holdfast CA {serial % 16**8:08x} {label}")
    ends = now + timedelta(days=days)
    own = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    builder = _builder(subject, subject, key.public_key(), now, ends, _authority(key.public_key(), own, 1))
    return Signer(builder.serial_number(serial).sign(key, hashes.SHA256()), key)


def cross_sign(new: x509.Certificate, old: Signer, now: datetime) -> x509.Certificate:
    """The new authority's subject and key, signed by the old authority.

    A server that sends it along is trusted by nodes that know the new authority and by nodes that still know the old one alone."""
    ends = min(new.not_valid_after_utc, old.certificate.not_valid_after_utc)
    public = _public(new)
    extensions = _authority(public, _identifier_of(old.certificate), 0)
    builder = _builder(new.subject, old.certificate.subject, public, now, ends, extensions)
    return builder.serial_number(x509.random_serial_number()).sign(old.key, hashes.SHA256())


def issue(signer: Signer, names: tuple[str, ...], key: PrivateKey, now: datetime, days: int) -> x509.Certificate:
    """A controller's certificate for these names and addresses. It never outlives its authority. Raises ConfigError."""
    if not names:
        raise ConfigError("a certificate needs at least one host name or address: --name HEAD")
    alternatives = x509.SubjectAlternativeName([general_name(name) for name in names])
    ends = min(now + timedelta(days=days), signer.certificate.not_valid_after_utc)
    public = key.public_key()
    rsa_too = isinstance(key, rsa.RSAPrivateKey)  # RFC 5246: key exchange without forward secrecy, for old clients
    extensions: list[_Extension] = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(digital_signature=True, key_encipherment=rsa_too), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (alternatives, False),
        (x509.SubjectKeyIdentifier.from_public_key(public), False),
        (_identifier_of(signer.certificate), False),
    ]
    builder = _builder(_common_name(names[0]), signer.certificate.subject, public, now, ends, extensions)
    return builder.serial_number(x509.random_serial_number()).sign(signer.key, hashes.SHA256())


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: PublicKey,
    now: datetime,
    ends: datetime,
    extensions: list[_Extension],
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    builder = builder.not_valid_before(now - BACKDATED).not_valid_after(ends)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder


def _authority(public: PublicKey, issuer: x509.AuthorityKeyIdentifier, path_length: int) -> list[_Extension]:
    """``path_length``: 1 leaves room for a cross-signed successor below this authority."""
    return [
        (x509.BasicConstraints(ca=True, path_length=path_length), True),
        (_usage(key_cert_sign=True, crl_sign=True), True),
        (x509.SubjectKeyIdentifier.from_public_key(public), False),
        (issuer, False),
    ]


def _usage(
    *,
    digital_signature: bool = False,
    key_encipherment: bool = False,
    key_cert_sign: bool = False,
    crl_sign: bool = False,
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=key_encipherment,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _identifier_of(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        known = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(_public(issuer))
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _public(certificate: x509.Certificate) -> PublicKey:
    public = certificate.public_key()
    if not isinstance(public, PublicKey):
        raise ConfigError(f"an authority with a {type(public).__name__} cannot be used; EC and RSA keys can")
    return public


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_LONGEST_COMMON_NAME])])
