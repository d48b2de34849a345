"""What a secure cluster is made of: an authority, its certificates, a user and a password.

They lie in a folder laid out as Kubernetes mounts Secrets, ``<name>/<key>``, for ``--secrets``.
"""

import base64
import hashlib
import ipaddress
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from headrace.sandbox.ports import HOST

USERNAME = "headrace"
_ITERATIONS = 4096  # Kafka's least
_VALID = timedelta(days=365)


@dataclass(frozen=True)
class Security:
    """Of one cluster: ports, files for its brokers, and the user's password."""

    ports: Sequence[tuple[int, int]]
    """For SASL over TLS and for client certificates, of each broker."""
    key_store: Path
    """The brokers' private key and certificate, PEM."""
    trust_store: Path
    """The authority's certificate, PEM: it signed the brokers' and the clients' certificates."""
    password: str
    """Of ``USERNAME``."""

    @classmethod
    def make(
        cls, cluster: str, secrets_folder: Path, folder: Path, ports: Sequence[tuple[int, int]]
    ) -> "Security":
        """Write the brokers' files into ``folder``, and the Secrets ``<cluster>-ca``, ``-client``
        and ``-user`` for clients."""
        authority = Authority(cluster)
        certificate, key = authority.issue(cluster, address=HOST)
        key_store = folder / "broker.pem"
        write_private(key_store, key + certificate)
        trust_store = secrets_folder / f"{cluster}-ca" / "ca.crt"
        write_private(trust_store, authority.certificate)
        certificate, key = authority.issue(USERNAME)
        write_private(secrets_folder / f"{cluster}-client" / "tls.crt", certificate)
        write_private(secrets_folder / f"{cluster}-client" / "tls.key", key)
        password = secrets.token_urlsafe(18)
        write_private(secrets_folder / f"{cluster}-user" / "password", password.encode())
        return cls(ports, key_store, trust_store, password)

    def scram_users(self) -> Iterator[str]:
        """What ``kafka-storage format`` is given; salted, as anybody may see a command line."""
        for digest in ("sha256", "sha512"):
            salt = secrets.token_bytes(16)
            salted = hashlib.pbkdf2_hmac(digest, self.password.encode(), salt, _ITERATIONS)
            fields = {
                "name": USERNAME,
                "salt": f'"{base64.b64encode(salt).decode()}"',
                "saltedpassword": f'"{base64.b64encode(salted).decode()}"',
                "iterations": _ITERATIONS,
            }
            joined = ",".join(f"{name}={value}" for name, value in fields.items())
            yield f"SCRAM-SHA-{digest.removeprefix('sha')}=[{joined}]"


class Authority:
    """A certificate authority that signs for as long as it is in memory."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"{name} authority")
        certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(Encoding.PEM)
        """PEM."""

    def issue(
        self, name: str, *, address: str | None = None, valid: timedelta = _VALID
    ) -> tuple[bytes, bytes]:
        """A certificate and its private key, PEM; ``address`` is the one that a server has. It is
        valid for an hour before now, and so long from now on: of less than nothing it has
        expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), self._name, key, valid)
        if address is not None:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(Encoding.PEM), key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    valid: timedelta = _VALID,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # a clock may be behind
        .not_valid_after(now + valid)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def write_private(file: Path, content: bytes) -> None:
    """Write a file that nobody else may read; its folder is made where it is not there."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.touch(mode=0o600)
    file.write_bytes(content)
