"""What strict verification refuses: our rules agree with OpenSSL's own verdict in a handshake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast.tls.folder import read_certificates
from holdfast.tls.issue import key_pem
from holdfast.tls.judge import refusals
from holdfast.tls.survey import chain_of
from tls.authorities import certificate, extensions, former, handshake, leaf_extensions, pem

Parts = dict[str, tuple[x509.ExtensionType, bool]]
Spoil = Callable[[Parts, Parts], None]


def loosen(parts: Parts, name: str) -> None:
    parts[name] = (parts[name][0], not parts[name][1])


def certifying(leaf: Parts, _authority: Parts) -> None:
    leaf["usage"] = (_authority["usage"][0], True)


def no_certifying(_leaf: Parts, authority: Parts) -> None:
    authority["usage"] = (_usage(key_cert_sign=False), True)


def _usage(*, key_cert_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


SPOILED: dict[str, Spoil] = {
    "authority without keyUsage": lambda _leaf, authority: authority.__delitem__("usage"),
    "authority's basicConstraints not critical": lambda _leaf, authority: loosen(authority, "constraints"),
    "authority without subjectKeyIdentifier": lambda _leaf, authority: authority.__delitem__("subject_id"),
    "authority's key identifier critical": lambda _leaf, authority: loosen(authority, "subject_id"),
    "authority may not sign": no_certifying,
    "certificate without authorityKeyIdentifier": lambda leaf, _authority: leaf.__delitem__("issuer_id"),
    "certificate's key identifier critical": lambda leaf, _authority: loosen(leaf, "issuer_id"),
    "certificate that may sign others": certifying,
}
FINE: dict[str, Spoil] = {
    "as it should be": lambda _leaf, _authority: None,
    "certificate without basicConstraints": lambda leaf, _authority: leaf.__delitem__("constraints"),
    "certificate without subjectKeyIdentifier": lambda leaf, _authority: leaf.__delitem__("subject_id"),
    "authority without authorityKeyIdentifier": lambda _leaf, authority: authority.__delitem__("issuer_id"),
    "keyUsage not critical": lambda _leaf, authority: loosen(authority, "usage"),
}


def made(folder: Path, spoil: Spoil, subject: str = "localhost") -> tuple[str, list[x509.Certificate]]:
    """What OpenSSL says, and the chain."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    above = extensions(authority_key.public_key(), authority_key.public_key())
    below = leaf_extensions(key.public_key(), authority_key.public_key())
    spoil(below, above)
    authority = certificate("authority", "authority", authority_key.public_key(), authority_key, above)
    leaf = certificate(subject, "authority", key.public_key(), authority_key, below)
    (folder / "tls.pem").write_text(pem(leaf))
    (folder / "tls.key").write_bytes(key_pem(key))
    return handshake(folder / "tls.pem", folder / "tls.key", pem(authority)), [leaf, authority]


@pytest.mark.parametrize("name", SPOILED)
def test_what_openssl_refuses_is_refused(tmp_path: Path, name: str) -> None:
    verdict, chain = made(tmp_path, SPOILED[name])
    assert verdict, "OpenSSL itself accepts it"
    assert len(refusals(chain)) == 1


@pytest.mark.parametrize("name", FINE)
def test_what_openssl_accepts_is_accepted(tmp_path: Path, name: str) -> None:
    verdict, chain = made(tmp_path, FINE[name])
    assert (verdict, refusals(chain)) == ("", [])


def test_an_empty_subject_is_refused(tmp_path: Path) -> None:
    verdict, chain = made(tmp_path, FINE["as it should be"], subject="")
    assert verdict
    assert refusals(chain) == ["no subject: the subject is empty"]


def test_the_authority_of_the_former_page_is_refused_for_its_missing_key_usage(tmp_path: Path) -> None:
    """Debian 13's Python 3.13 could not speak to a controller that was set up by the documentation."""
    etc = former(tmp_path / "etc")
    trust = (etc / "ca.pem").read_text()
    assert handshake(etc / "tls.pem", etc / "tls.key", trust, strict=False) == ""
    assert handshake(etc / "tls.pem", etc / "tls.key", trust) == "CA cert does not include key usage extension"
    chain = chain_of(read_certificates(etc / "tls.pem"), read_certificates(etc / "ca.pem"))
    assert "Holdfast of localhost: keyUsage is missing" in refusals(chain)
