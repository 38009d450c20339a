"""The files of authority and certificate in ``/etc/holdfast``: read into a state, changed one whole file at a time."""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from holdfast.model.errors import ConfigError
from holdfast.tls import issue as issuing
from holdfast.tls.issue import PrivateKey, Signer
from holdfast.tls.judge import fingerprint, names_of, signed_by
from holdfast.tls.plan import (
    Issue,
    KeyState,
    MakeAuthority,
    ReplaceAuthority,
    RetireAuthorities,
    TlsState,
    TlsStep,
    TrustAuthority,
)
from holdfast_checks.whole_file import write_whole

DEFAULT_FOLDER = Path("/etc/holdfast")
SERVICE_USER, SERVICE_GROUP = "holdfast-controller", "holdfast"
"""Of lifecycle-scripts/holdfast-sysusers.conf: the one service that reads the key."""
_PUBLIC, _PRIVATE = 0o644, 0o600


@dataclass(frozen=True, slots=True)
class FileOwner:
    """Whose file a new one becomes."""

    uid: int
    gid: int
    name: str


def service_owner() -> FileOwner | None:
    """The controller's user; None where this is not root or the user is not there: files stay this user's."""
    if os.geteuid() != 0:
        return None
    try:
        return FileOwner(pwd.getpwnam(SERVICE_USER).pw_uid, grp.getgrnam(SERVICE_GROUP).gr_gid, SERVICE_USER)
    except KeyError:
        return None


@dataclass(frozen=True, slots=True)
class TlsFolder:
    """Where each file lies."""

    path: Path

    @property
    def trust(self) -> Path:
        """What agents trust: copied to every node."""
        return self.path / "ca.pem"

    @property
    def certificate(self) -> Path:
        return self.path / "tls.pem"

    @property
    def key(self) -> Path:
        return self.path / "tls.key"

    @property
    def authority(self) -> Path:
        return self.path / "ca" / "ca.pem"

    @property
    def authority_key(self) -> Path:
        return self.path / "ca" / "ca.key"

    @property
    def cross(self) -> Path:
        """The present authority, signed by the one before it; sent along while agents may know the old one alone."""
        return self.path / "ca" / "cross.pem"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One at a time. Raises ConfigError where the folder cannot be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o755)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise ConfigError(f"{self.path}: {error.strerror}; run it as root") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def read_certificates(path: Path) -> tuple[x509.Certificate, ...]:
    """All of a PEM file; none where it is not there. Raises ConfigError for what cannot be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    try:
        return tuple(x509.load_pem_x509_certificates(data))
    except ValueError as error:
        raise ConfigError(f"{path}: not a PEM file with certificates: {error}") from error


def read_key(path: Path) -> PrivateKey | None:
    """None where it is not there. Raises ConfigError for what cannot be read or used."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; run it as root") from error
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path}: not a private key without a passphrase: {error}") from error
    if not isinstance(key, PrivateKey):
        raise ConfigError(f"{path}: a {type(key).__name__} cannot be used; EC and RSA keys can")
    return key


def read_state(folder: TlsFolder) -> TlsState:
    """Raises ConfigError for a file that cannot be read."""
    authority, served = read_certificates(folder.authority), read_certificates(folder.certificate)
    trusted = read_certificates(folder.trust)
    authority_key = read_key(folder.authority_key)
    if authority_key is not None and not authority:
        raise ConfigError(
            f"{folder.authority_key} has no certificate {folder.authority}: put it back, or move the key away"
        )
    return TlsState(
        authority=_fit(authority_key, authority[0]) if authority else None,
        trusted=tuple(map(fingerprint, trusted)),
        authority_fingerprint=fingerprint(authority[0]) if authority else "",
        names=names_of(served[0]) if served else None,
        signed=bool(served and authority) and signed_by(served[0], authority[0]),
        ends_at=served[0].not_valid_after_utc if served else None,
        key=_fit(read_key(folder.key), served[0] if served else None),
    )


def _fit(key: PrivateKey | None, certificate: x509.Certificate | None) -> KeyState:
    if key is None:
        return KeyState.ABSENT
    fits = certificate is not None and key.public_key() == certificate.public_key()
    return KeyState.FITS if fits else KeyState.ALONE


LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""For the command line on the head node itself."""
_NOT_REACHED = ("127.", "169.254.", "fe80:", "::")


def found_names() -> tuple[str, ...]:
    """Names and addresses by which other machines may call this one, then loopback."""
    host = socket.gethostname()
    found = [socket.getfqdn(), host, host.split(".")[0]]
    for addresses in psutil.net_if_addrs().values():
        found += [a.address for a in addresses if a.family in (socket.AF_INET, socket.AF_INET6)]
    reached = (name for name in found if not name.startswith((*_NOT_REACHED, "localhost")))
    return tuple(dict.fromkeys((*reached, *LOOPBACK)))


@dataclass(frozen=True, slots=True)
class Maker:
    """Carries out a plan."""

    folder: TlsFolder
    now: datetime
    days: int
    authority_days: int = issuing.AUTHORITY_DAYS
    owner: FileOwner | None = None

    def do(self, step: TlsStep) -> str:
        """One step; what was done, in one line. Raises ConfigError."""
        try:
            match step:
                case MakeAuthority():
                    return self._make_authority()
                case TrustAuthority():
                    self._trust(self._signer().certificate, *read_certificates(self.folder.trust))
                    return f"{self.folder.trust}: the authority is in it"
                case ReplaceAuthority():
                    return self._replace_authority()
                case RetireAuthorities():
                    return self._retire()
                case Issue():
                    return self._issue(step)
        except OSError as error:
            raise ConfigError(f"{error.filename or self.folder.path}: {error.strerror}") from error

    def _make_authority(self) -> str:
        made = issuing.make_authority(socket.gethostname(), self.now, self.authority_days)
        self._write_authority(made)
        self._trust(made.certificate)
        return self._authority_line("made", made)

    def _replace_authority(self) -> str:
        old = self._signer()
        new = issuing.make_authority(socket.gethostname(), self.now, self.authority_days)
        crossed = issuing.cross_sign(new.certificate, old, self.now)
        self._trust(new.certificate, old.certificate)
        kept = self.folder.authority.parent / f"old-{fingerprint(old.certificate)}"
        for path in (self.folder.authority, self.folder.authority_key):
            kept.with_suffix(path.suffix).unlink(missing_ok=True)
            os.link(path, kept.with_suffix(path.suffix))
        _write(self.folder.cross, _pem(crossed), _PUBLIC)
        self._write_authority(new)
        return self._authority_line("made", new) + f"\nthe old authority is kept as {kept}.pem and {kept.name}.key"

    def _retire(self) -> str:
        self._trust(self._signer().certificate)
        self.folder.cross.unlink(missing_ok=True)
        return f"{self.folder.trust}: the present authority alone"

    def _issue(self, step: Issue) -> str:
        key = None if step.new_key else read_key(self.folder.key)
        fresh = key is None
        key = key or issuing.new_key()
        signer = self._signer()
        certificate = issuing.issue(signer, step.names, key, self.now, self.days)
        crossed = [
            c
            for c in read_certificates(self.folder.cross)
            if c.public_key() == signer.certificate.public_key() and c.not_valid_after_utc > self.now
        ]
        if fresh:
            _write(self.folder.key, issuing.key_pem(key), _PRIVATE, self.owner)
        _write(self.folder.certificate, _pem(certificate, *crossed), _PUBLIC)
        owner = self.owner.name if self.owner is not None else "this user"
        whose = f"new key {self.folder.key} (mode 0600, {owner})" if fresh else f"key {self.folder.key} as before"
        return (
            f"{self.folder.certificate}: issued ({step.why}) for {', '.join(step.names)}, "
            f"until {certificate.not_valid_after_utc:%Y-%m-%d}; {whose}"
        )

    def _signer(self) -> Signer:
        certificates, key = read_certificates(self.folder.authority), read_key(self.folder.authority_key)
        if not certificates or key is None:
            raise ConfigError(f"{self.folder.authority_key}: the authority's key or certificate is not there")
        return Signer(certificates[0], key)

    def _write_authority(self, made: Signer) -> None:
        self.folder.authority.parent.mkdir(exist_ok=True, mode=0o700)
        _write(self.folder.authority_key, issuing.key_pem(made.key), _PRIVATE)
        _write(self.folder.authority, _pem(made.certificate), _PUBLIC)

    def _trust(self, *certificates: x509.Certificate) -> None:
        unique = {fingerprint(one): one for one in certificates}
        _write(self.folder.trust, _pem(*unique.values()), _PUBLIC)

    def _authority_line(self, verb: str, made: Signer) -> str:
        ends = f"{made.certificate.not_valid_after_utc:%Y-%m-%d}"
        return f"{self.folder.authority_key}: {verb} an authority, until {ends} (mode 0600; back it up, copy it nowhere else)"


def _write(path: Path, data: bytes, mode: int, owner: FileOwner | None = None) -> None:
    write_whole(path, data, mode, owner=(owner.uid, owner.gid) if owner else None, durable=True)


def _pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)
