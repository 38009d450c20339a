"""What agents meet: the served certificate, the authorities that they trust, and what is wrong with either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from holdfast.model.errors import ConfigError
from holdfast.tls.folder import read_certificates
from holdfast.tls.judge import CertificateView, refusals, signed_by, view


@dataclass(frozen=True, slots=True)
class TlsSurvey:
    """The certificate that a controller serves, and the file that agents trust."""

    path: str
    served: CertificateView | None = None
    trusted: tuple[CertificateView, ...] = ()
    """The present authority first; two while a new one replaces an old one."""
    refused: tuple[str, ...] = ()
    """Why strict verification (Python 3.13's default) refuses it; empty: it does not."""
    problem: str = ""
    """Why it could not be read, or why no one who trusts the authorities above can trust it."""


def survey(certificate: Path, trust: Path) -> TlsSurvey:
    """Read both files. Raises nothing: what cannot be read is a problem in the survey."""
    try:
        served, trusted = read_certificates(certificate), read_certificates(trust)
    except ConfigError as error:
        return TlsSurvey(str(certificate), problem=str(error))
    views = tuple(map(view, trusted))
    if not served:
        return TlsSurvey(
            str(certificate), trusted=views, problem=f"{certificate} is not there, or holds no certificate"
        )
    chain = chain_of(served, trusted)
    unsigned = trusted and chain[-1] not in trusted
    return TlsSurvey(
        str(certificate),
        view(served[0]),
        views,
        tuple(refusals(chain)),
        f"{certificate} is signed by no authority in {trust}" if unsigned else "",
    )


def chain_of(served: Sequence[x509.Certificate], trusted: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """From the server's certificate up to the first trusted one, as OpenSSL builds it (trusted first)."""
    chain = [served[0]]
    rest = list(served[1:])
    while chain[-1] not in trusted:
        above = next((one for one in (*trusted, *rest) if one not in chain and signed_by(chain[-1], one)), None)
        if above is None:
            break
        chain.append(above)
    return chain
