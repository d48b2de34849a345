"""Keys of a cluster: an authority, its certificates, and the ServiceAccounts' key."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = timedelta(days=365)
CLOCKS_DIFFER_BY = timedelta(minutes=5)


class Authority:
    """Authority that writes certificates to ``<name>.crt`` and keys to ``<name>.key``, both PEM."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = write_key(folder / "ca.key")
        self._subject = _name("headrace-tests")
        certificate = (
            self._builder(self._subject, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        _write(folder / "ca.crt", certificate)

    @property
    def certificate(self) -> Path:
        """Certificate of the authority itself."""
        return self.folder / "ca.crt"

    def sign(
        self, name: str, common_name: str, organization: str = "", *, servers: Sequence[str] = ()
    ) -> None:
        """Write a certificate for a client and for a server on 127.0.0.1 and at ``servers``.

        The API server reads the user from ``common_name`` and the group from ``organization``.
        """
        key = write_key(self.folder / f"{name}.key")
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        names = [_server_name(name) for name in ("127.0.0.1", *servers)]
        certificate = (
            self._builder(_name(common_name, organization), key)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        _write(self.folder / f"{name}.crt", certificate)

    def user(self, name: str) -> dict[str, str]:
        """Return the kubeconfig user that authenticates with the certificate ``name``."""
        files = {"client-certificate": f"{name}.crt", "client-key": f"{name}.key"}
        return {field: str(self.folder / file) for field, file in files.items()}

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCKS_DIFFER_BY)
            .not_valid_after(now + VALID_FOR)
        )


def write_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Write a private key to ``path`` and its public key to ``<name>.pub``.

    Only the owner of the file can read the private key.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    path.with_suffix(".pub").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return key


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _server_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common_name: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)
