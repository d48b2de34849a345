"""Launcher of the JRE from PyPI, and its trust store."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from headrace.errors import InvalidSpec
from headrace.toolchain import java as jre
from headrace.toolchain.java import ca_bundle, trust_store

BROKEN = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a bundle of two authorities, with text between them as in distributions' bundles."""
    path = tmp_path / "bundle.pem"
    path.write_text("".join(f"# {name}\n{_authority(name)}" for name in ("One", "Two")))
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return path


def _authority(name: str) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM).decode()


def _arguments(home: Path, *arguments: str) -> list[str]:
    run: list[str | Path] = [home / "bin" / "java", *arguments]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: Path) -> Path:
    """Return the home of a JRE whose java prints its arguments, one on each line."""
    java = tmp_path / "it's java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    monkeypatch.setattr(jre, "JAVA", java)
    return jre.packaged_jre()


@pytest.mark.parametrize(
    "flag",
    [["--add-modules=jdk.incubator.vector"], ["--add-modules", "jdk.incubator.vector"]],
)
def test_launcher_drops_the_flag_that_spark_passes(home: Path, flag: list[str]) -> None:
    given = ["-Xmx1g", *flag, "-cp", "a b:*", "Main", "", "it's", "$HOME"]
    arguments = _arguments(home, *given)
    assert arguments[2:] == ["-Xmx1g", "-cp", "a b:*", "Main", "", "it's", "$HOME"]


def test_launcher_keeps_other_modules(home: Path) -> None:
    given = ["--add-modules=java.sql", "--add-modules", "java.se", "Main"]
    assert _arguments(home, *given)[2:] == given


def test_launcher_brings_the_authorities_of_the_machine(home: Path, bundle: Path) -> None:
    store, kind = _arguments(home)[:2]
    assert kind == "-Djavax.net.ssl.trustStoreType=PKCS12"
    path = Path(store.removeprefix("-Djavax.net.ssl.trustStore="))
    authorities = load_pkcs12(path.read_bytes(), None).additional_certs
    names = {entry.certificate.subject.rfc4514_string() for entry in authorities}
    assert names == {"CN=One", "CN=Two"}
    assert len({entry.friendly_name for entry in authorities}) == 2


def test_a_changed_bundle_makes_another_launcher(home: Path, bundle: Path) -> None:
    assert jre.packaged_jre() == home
    bundle.write_text(_authority("Three"))
    assert jre.packaged_jre() != home


def test_an_unreadable_authority_is_left_out(bundle: Path) -> None:
    bundle.write_text(BROKEN + _authority("Good"))
    authorities = load_pkcs12(trust_store(bundle).read_bytes(), None).additional_certs
    assert [a.certificate.subject.rfc4514_string() for a in authorities] == ["CN=Good"]


def test_a_bundle_without_certificates_is_refused(bundle: Path) -> None:
    bundle.write_text("hello")
    with pytest.raises(
        InvalidSpec, match=r"bundle\.pem contains no readable certificate.*SSL_CERT_FILE"
    ):
        trust_store(bundle)


def test_ssl_cert_file_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    with pytest.raises(InvalidSpec, match=r"SSL_CERT_FILE is /nowhere/ca\.pem, which is no file"):
        ca_bundle()
