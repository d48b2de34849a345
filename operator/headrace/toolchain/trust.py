"""The machine's certificate authorities as a trust store that Java reads."""

import os
import re
import warnings
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import NoEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
)
from cryptography.utils import CryptographyDeprecationWarning

from headrace.errors import InvalidSpec
from headrace.host import cache_home, write_whole

# Where distributions keep the bundle; the list that Go's crypto/x509 goes through (root_linux.go).
BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),  # Debian, Ubuntu, Arch, Gentoo
    Path("/etc/pki/tls/certs/ca-bundle.crt"),  # Fedora, RHEL 6
    Path("/etc/ssl/ca-bundle.pem"),  # openSUSE
    Path("/etc/pki/tls/cacert.pem"),  # OpenELEC
    Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),  # CentOS, RHEL 7
    Path("/etc/ssl/cert.pem"),  # Alpine
)


def ca_bundle() -> Path | None:
    """The PEM file of trusted authorities: SSL_CERT_FILE, else the distribution's, or None."""
    if given := os.environ.get("SSL_CERT_FILE"):
        if not Path(given).is_file():
            raise InvalidSpec(f"SSL_CERT_FILE is {given}, which is no file: correct it or unset it")
        return Path(given)
    return next((path for path in BUNDLES if path.is_file()), None)


def trust_store(bundle: Path) -> Path:
    """A PKCS12 trust store without password that holds the certificates of ``bundle``.

    It is named by the bundle's content, so that a changed bundle makes a new one.
    """
    pem = bundle.read_bytes()
    store = cache_home() / "java" / f"trust-{sha256(pem).hexdigest()[:16]}.p12"
    if not store.exists():
        # Java files each entry under its friendly name: two of one name would be one.
        entries = [PKCS12Certificate(c, b"ca-%d" % n) for n, c in enumerate(_certificates(pem))]
        if not entries:
            raise InvalidSpec(
                f"{bundle} holds no certificate that can be read: point SSL_CERT_FILE at a file of "
                "PEM certificates"
            )
        write_whole(store, serialize_java_truststore(entries, NoEncryption()))
    return store


def _certificates(pem: bytes) -> Iterator[x509.Certificate]:
    """Those that can be read: bundles hold a few of old authorities that break today's rules.

    One that is left out can make a connection fail, never succeed.
    """
    for block in re.findall(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", pem, re.S):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            try:
                yield x509.load_pem_x509_certificate(block)
            except ValueError:
                continue
