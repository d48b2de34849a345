"""Principal of a client as seen by brokers."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from headrace.api import ClusterAccess, ClusterSpec
from headrace.kafka import principal_of

_OWN = {"tls": {"clientCertificate": {"secretName": "own"}}}


def access(fields: dict[str, Any], folder: Path | None = None) -> ClusterAccess:
    spec = {"alias": "east", "bootstrapServers": "east:9092", **fields}
    return ClusterAccess(ClusterSpec.model_validate(spec), "spec.source", folder)


def certificate(subject: str) -> bytes:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name.from_rfc4514_string(subject)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name.from_rfc4514_string("CN=somebody else"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )


@pytest.mark.parametrize(
    "subject",
    [
        "CN=headrace",
        "CN=head race,OU=Streams,O=Mühle\\, Ltd.,L=Bern,ST=BE,C=CH",
        "CN=headrace+UID=7,DC=mill,DC=example",
    ],
)
def test_the_subject_of_the_client_certificate_as_java_writes_it(
    subject: str, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "tls.crt").write_bytes(certificate(subject) + certificate("CN=authority"))
    (tmp_path / "own" / "tls.key").write_text("not read")
    assert principal_of(access(_OWN, tmp_path)) == f"User:{subject}"


def test_one_that_cannot_be_read_is_named_by_its_secret(tmp_path: Path) -> None:
    wanted = "User:<subject of the certificate in Secret own>"
    assert principal_of(access(_OWN, tmp_path)) == wanted
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "tls.key").write_text("")
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    for junk in ("junk", f"{begin}\n{end}\n", f"{begin}\nMAA=\n{end}\n", f"{begin}\nMIH/\n{end}\n"):
        (tmp_path / "own" / "tls.crt").write_text(junk)
        assert principal_of(access(_OWN, tmp_path)) == wanted


def test_the_user_by_password_and_nobody() -> None:
    password = {"secretName": "a", "key": "b"}
    login = {"type": "Plain", "username": "ann", "password": password}
    assert principal_of(access({"authentication": login})) == "User:ann"
    assert principal_of(access({})) == "User:ANONYMOUS"


def test_the_user_of_a_secret(tmp_path: Path) -> None:
    login = {
        "type": "Plain",
        "usernameFrom": {"secretName": "a"},
        "password": {"secretName": "a"},
    }
    flow = access({"authentication": login}, tmp_path)
    assert principal_of(flow) == "User:<username of Secret a>"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "username").write_text("ann\n")
    (tmp_path / "a" / "password").write_text("hidden")
    assert principal_of(flow) == "User:ann"
