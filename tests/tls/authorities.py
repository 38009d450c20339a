"""Certificates for tests: good ones, those of the page before 2026-11-22, and broken ones; and a handshake in memory."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = datetime.now(UTC).replace(microsecond=0)

FORMER_PAGE = """
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=Holdfast of localhost" \\
  -keyout ca/ca.key -out ca/ca.pem
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=localhost" -keyout tls.key -out tls.csr
printf 'subjectAltName=DNS:localhost,IP:127.0.0.9\\nextendedKeyUsage=serverAuth\\n' >tls.ext
openssl x509 -req -in tls.csr -CA ca/ca.pem -CAkey ca/ca.key -CAcreateserial -days 825 -extfile tls.ext -out tls.pem
cp ca/ca.pem .
"""
"""What docs/install.md instructed its readers to do until `holdfast tls` existed."""


def former(folder: Path) -> Path:
    """A site that was set up by that page."""
    (folder / "ca").mkdir(parents=True)
    subprocess.run(["sh", "-euc", FORMER_PAGE], cwd=folder, check=True, capture_output=True)
    return folder


def extensions(
    key: ec.EllipticCurvePublicKey, issuer: ec.EllipticCurvePublicKey
) -> dict[str, tuple[x509.ExtensionType, bool]]:
    """A good authority's, by name."""
    others = (
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "encipher_only",
        "decipher_only",
    )
    usage = dict.fromkeys(("digital_signature", *others), False)
    return {
        "constraints": (x509.BasicConstraints(ca=True, path_length=None), True),
        "usage": (x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True), True),
        "subject_id": (x509.SubjectKeyIdentifier.from_public_key(key), False),
        "issuer_id": (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), False),
    }


def leaf_extensions(
    key: ec.EllipticCurvePublicKey, issuer: ec.EllipticCurvePublicKey
) -> dict[str, tuple[x509.ExtensionType, bool]]:
    """A good server's, by name."""
    return {
        "constraints": (x509.BasicConstraints(ca=False, path_length=None), True),
        "names": (x509.SubjectAlternativeName([x509.DNSName("localhost")]), False),
        "subject_id": (x509.SubjectKeyIdentifier.from_public_key(key), False),
        "issuer_id": (x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), False),
    }


def certificate(
    subject: str,
    issuer: str,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    parts: Mapping[str, tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder(_name(issuer), _name(subject), key, x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=90))
    )
    for extension, critical in parts.values():
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(signer, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)] if text else [])


def pem(*certificates: x509.Certificate) -> str:
    return "".join(one.public_bytes(serialization.Encoding.PEM).decode() for one in certificates)


def handshake(
    certificate_file: Path, key_file: Path, trust: str, name: str = "localhost", *, strict: bool = True
) -> str:
    """What OpenSSL says to a client that trusts ``trust``: empty, or why it refuses."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate_file, key_file)
    client = ssl.create_default_context(cadata=trust)
    client.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if strict:
        client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return ""
