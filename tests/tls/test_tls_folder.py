"""`holdfast tls`: files, modes, renewal, and an authority replaced with an overlap; each verified by a real handshake."""

from __future__ import annotations

import os
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from typer.testing import CliRunner, Result

from holdfast.api.transport.certificates import ends_at
from holdfast.cli.app import app, run
from holdfast.model.errors import ConfigError
from holdfast.tls.folder import Maker, TlsFolder, read_certificates, read_state
from holdfast.tls.issue import general_name
from holdfast.tls.plan import Issue, MakeAuthority, ReplaceAuthority
from holdfast.tls.survey import survey
from tls.authorities import former, handshake


def holdfast(*words: str, folder: Path) -> Result:
    """``holdfast tls …``; HOLDFAST_URL leads nowhere."""
    environ = {"HOLDFAST_URL": "http://127.0.0.1:1", "HOLDFAST_TOKEN": "t"}
    return CliRunner().invoke(app, ["tls", *words, "--dir", str(folder)], env=environ)


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    folder = tmp_path / "etc"
    done = holdfast(
        "init", "--name", "localhost", "--name", "10.0.0.5", "--name", "head.cluster.example", folder=folder
    )
    assert done.exit_code == 0, done.output
    return folder


def shaken(etc: Path, trust: Path | None = None, name: str = "localhost", *, strict: bool = True) -> str:
    return handshake(etc / "tls.pem", etc / "tls.key", (trust or etc / "ca.pem").read_text(), name, strict=strict)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("name", ["localhost", "10.0.0.5", "head.cluster.example"])
def test_what_init_makes_passes_strict_verification(etc: Path, name: str) -> None:
    assert shaken(etc, name=name) == ""


def test_another_name_is_refused(etc: Path) -> None:
    assert "mismatch" in shaken(etc, name="other.example")


def test_openssl_itself_finds_nothing_to_refuse(etc: Path) -> None:
    command: list[str | Path] = [
        "openssl",
        "verify",
        "-x509_strict",
        "-purpose",
        "sslserver",
        "-CAfile",
        etc / "ca.pem",
        etc / "tls.pem",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_extension_is_there(etc: Path) -> None:
    (authority,), (served,) = read_certificates(etc / "ca.pem"), read_certificates(etc / "tls.pem")
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = authority.extensions.get_extension_for_class(x509.KeyUsage)
    assert (constraints.critical, constraints.value.ca) == (True, True)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.crl_sign) == (True, True, True)
    purposes = served.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]
    known = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    issuer = served.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert issuer.key_identifier == known.digest
    life = served.not_valid_after_utc - served.not_valid_before_utc
    assert life == timedelta(days=398), "397 days, and one back for clocks that are behind"


def test_keys_are_their_owners_alone(etc: Path) -> None:
    assert {mode(etc / name) for name in ("tls.key", "ca/ca.key")} == {0o600}
    assert mode(etc / "ca") == 0o700
    assert {mode(etc / name) for name in ("ca.pem", "tls.pem")} == {0o644}
    assert not [path.name for path in etc.rglob(".*")], "no draft is left"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_key_becomes_the_services(tmp_path: Path) -> None:
    from holdfast.tls.folder import FileOwner  # noqa: PLC0415

    (tmp_path / "etc").mkdir()
    maker = Maker(TlsFolder(tmp_path / "etc"), datetime.now(UTC), 30, owner=FileOwner(12345, 23456, "somebody"))
    for step in (MakeAuthority(), Issue(("localhost",), False, "test")):
        maker.do(step)
    key, authority = (tmp_path / "etc/tls.key").stat(), (tmp_path / "etc/ca/ca.key").stat()
    assert (key.st_uid, key.st_gid, authority.st_uid) == (12345, 23456, os.geteuid())


def test_init_again_changes_nothing(etc: Path) -> None:
    before = {path: path.read_bytes() for path in etc.rglob("*") if path.is_file()}
    done = holdfast("init", folder=etc)
    assert (done.exit_code, "nothing to do" in done.output) == (0, True)
    assert {path: path.read_bytes() for path in etc.rglob("*") if path.is_file()} == before


def test_init_makes_what_is_missing_and_keeps_the_keys(etc: Path) -> None:
    keys = [(etc / name).read_bytes() for name in ("tls.key", "ca/ca.key")]
    (etc / "tls.pem").unlink()
    (etc / "ca.pem").unlink()
    assert holdfast("init", "--name", "localhost", folder=etc).exit_code == 0
    assert shaken(etc) == ""
    assert [(etc / name).read_bytes() for name in ("tls.key", "ca/ca.key")] == keys


def test_init_with_another_name_adds_it(etc: Path) -> None:
    assert holdfast("init", "--name", "head2", folder=etc).exit_code == 0
    assert shaken(etc, name="head2") == shaken(etc, name="10.0.0.5") == ""


def test_init_leaves_another_authoritys_files_alone(tmp_path: Path, etc: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("ca.pem", "tls.pem", "tls.key"):
        (other / name).write_bytes((etc / name).read_bytes())
    done = run(["tls", "init", "--dir", str(other)])
    assert done == 1
    assert sorted(path.name for path in other.iterdir()) == ["ca.pem", "tls.key", "tls.pem"]


def test_a_half_authority_is_named_and_not_overwritten(etc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (etc / "ca/ca.pem").unlink()
    assert run(["tls", "init", "--dir", str(etc)]) == 2
    assert "has no certificate" in capsys.readouterr().err


def test_renew_keeps_the_key_and_replaces_it_when_told(etc: Path) -> None:
    first, key = (etc / "tls.pem").read_bytes(), (etc / "tls.key").read_bytes()
    assert holdfast("renew", folder=etc).exit_code == 0
    assert (etc / "tls.pem").read_bytes() != first
    assert ((etc / "tls.key").read_bytes(), shaken(etc)) == (key, "")
    assert holdfast("renew", "--new-key", folder=etc).exit_code == 0
    assert (etc / "tls.key").read_bytes() != key
    assert (shaken(etc), shaken(etc, name="head.cluster.example")) == ("", "")


def test_renew_within_leaves_a_certificate_that_lasts(etc: Path) -> None:
    before = (etc / "tls.pem").read_bytes()
    assert "nothing to do" in holdfast("renew", "--within", "60", folder=etc).output
    assert (etc / "tls.pem").read_bytes() == before
    assert holdfast("renew", "--within", "400", folder=etc).exit_code == 0
    assert (etc / "tls.pem").read_bytes() != before


def test_without_the_authoritys_key_nothing_is_renewed(etc: Path) -> None:
    (etc / "ca/ca.key").unlink()
    assert run(["tls", "renew", "--dir", str(etc)]) == 1
    assert shaken(etc) == ""


@pytest.mark.slow
def test_a_new_authority_is_trusted_by_who_knows_either(etc: Path, tmp_path: Path) -> None:
    """An agent with the old file continues during the whole overlap, whenever the new file reaches it."""
    old = tmp_path / "old.pem"
    old.write_bytes((etc / "ca.pem").read_bytes())
    assert holdfast("renew", "--new-ca", folder=etc).exit_code == 0
    new = tmp_path / "new.pem"
    new.write_bytes((etc / "ca/ca.pem").read_bytes())
    assert [shaken(etc, trust) for trust in (old, None, new)] == ["", "", ""]
    assert holdfast("renew", folder=etc).exit_code == 0
    assert [shaken(etc, trust) for trust in (old, None, new)] == ["", "", ""], "also after a renewal meanwhile"
    assert run(["tls", "renew", "--new-ca", "--dir", str(etc)]) == 1, "one overlap at a time"
    assert run(["tls", "renew", "--retire-old-ca", "--dir", str(etc)]) == 1, (
        "it is unknown which agents would be locked out"
    )
    assert holdfast("renew", "--retire-old-ca", "--force", folder=etc).exit_code == 0
    assert [shaken(etc, trust) for trust in (None, new)] == ["", ""]
    assert shaken(etc, old) != ""


@pytest.mark.slow
def test_a_site_of_the_former_page_gets_a_good_authority_without_an_interruption(tmp_path: Path) -> None:
    etc = former(tmp_path / "etc")
    old = tmp_path / "old.pem"
    old.write_bytes((etc / "ca.pem").read_bytes())
    shown = holdfast("show", folder=etc)
    assert (shown.exit_code, "keyUsage is missing" in shown.output) == (1, True)
    assert holdfast("renew", "--new-ca", folder=etc).exit_code == 0
    assert shaken(etc, old, strict=False) == "", "agents on Python 3.11 continue with the file that they have"
    assert shaken(etc) == shaken(etc, name="127.0.0.9") == "", "and those with the new file pass strict verification"
    assert holdfast("show", folder=etc).exit_code == 0


def test_a_certificate_never_outlives_its_authority(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    maker = Maker(TlsFolder(tmp_path / "etc"), datetime.now(UTC), 397, authority_days=40)
    for step in (MakeAuthority(), Issue(("localhost",), False, "test")):
        maker.do(step)
    (authority,), (served,) = read_certificates(tmp_path / "etc/ca.pem"), read_certificates(tmp_path / "etc/tls.pem")
    assert served.not_valid_after_utc == authority.not_valid_after_utc
    later = Maker(TlsFolder(tmp_path / "etc"), datetime.now(UTC) + timedelta(days=20), 397)
    for again in (ReplaceAuthority(), Issue(("localhost",), False, "test")):
        later.do(again)
    crossed = read_certificates(tmp_path / "etc/ca/cross.pem")[0]
    assert crossed.not_valid_after_utc == authority.not_valid_after_utc


def test_files_that_cannot_be_read_are_named(etc: Path) -> None:
    (etc / "tls.pem").write_text("nonsense")
    with pytest.raises(ConfigError, match=r"tls\.pem: not a PEM file"):
        read_state(TlsFolder(etc))
    assert "not a PEM file" in survey(etc / "tls.pem", etc / "ca.pem").problem


@pytest.mark.parametrize("name", ["a b", "", "-x", "a..b", "x" * 64, "*.example", "http://head"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="neither a host name nor an IP address"):
        general_name(name)


def test_the_controller_reads_when_its_certificate_ends(etc: Path, tmp_path: Path) -> None:
    """Without the package `cryptography`, which the daemons do without."""
    (served,) = read_certificates(etc / "tls.pem")
    assert ends_at(etc / "tls.pem") == served.not_valid_after_utc
    old = former(tmp_path / "former") / "tls.pem"
    assert ends_at(old) == read_certificates(old)[0].not_valid_after_utc
    for text in ("", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        (tmp_path / "no.pem").write_text(text)
        assert ends_at(tmp_path / "no.pem") is None
    assert ends_at(tmp_path / "missing.pem") is None
