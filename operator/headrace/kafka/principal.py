"""Whom brokers take a client for, as ACLs name it, where no rule of theirs maps names."""

import ssl
from collections.abc import Iterator

from headrace.api import ClusterAccess
from headrace.kafka.credentials import read_credentials
from headrace.kafka.errors import SecretMissing

_VERSION, _BMP_STRING = 0xA0, 0x1E
_SPECIAL = ',+"\\<>;'
_NAMES = {
    bytes.fromhex(kind): name
    for kind, name in (
        ("550403", "CN"),
        ("550406", "C"),
        ("550407", "L"),
        ("550408", "ST"),
        ("550409", "STREET"),
        ("55040a", "O"),
        ("55040b", "OU"),
        ("0992268993f22c640101", "UID"),
        ("0992268993f22c640119", "DC"),
    )
}
"""Those that RFC 2253 has names of, by their object identifiers."""


def principal_of(cluster: ClusterAccess) -> str:
    """The user's name, or the subject of the client certificate; without either ``ANONYMOUS``."""
    spec = cluster.spec
    if spec.authentication is not None and spec.authentication.username:
        return f"User:{spec.authentication.username}"
    if spec.tls is None or (own := spec.tls.client_certificate) is None:
        return "User:ANONYMOUS"
    try:
        return f"User:{_subject(read_credentials(cluster).certificate)}"
    except (SecretMissing, ValueError, LookupError, StopIteration):
        return f"User:<subject of {own.certificate_key} of Secret {own.secret_name}>"


def _subject(pem: str) -> str:
    """Of the first certificate, as Java writes it (RFC 2253): the last part first. Raises
    ``ValueError``, ``LookupError`` or ``StopIteration`` for one that cannot be read."""
    end = "-----END CERTIFICATE-----"
    first = pem[pem.index("-----BEGIN CERTIFICATE-----") : pem.index(end) + len(end)]
    certificate = memoryview(ssl.PEM_cert_to_DER_cert(first))
    to_be_signed = next(_parts(next(_parts(certificate))[1]))[1]
    # A version, which may be absent; then serial number, algorithm, issuer, validity, subject.
    fields = [content for tag, content in _parts(to_be_signed) if tag != _VERSION]
    parts = ["+".join(map(_attribute, _contents(one))) for one in _contents(fields[4])]
    return ",".join(reversed(parts))


def _attribute(view: memoryview) -> str:
    kind, (tag, value) = _contents(view)[0], list(_parts(view))[1]
    text = bytes(value).decode("utf-16-be" if tag == _BMP_STRING else "utf-8")
    escaped = "".join(f"\\{one}" if one in _SPECIAL else one for one in text)
    return f"{_NAMES[bytes(kind)]}={escaped}"


def _contents(view: memoryview) -> list[memoryview]:
    return [content for _, content in _parts(view)]


def _parts(view: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The elements of a DER encoding: tag and content of each."""
    place = 0
    while place < len(view):
        tag, size = view[place], view[place + 1]
        place += 2
        if size & 0x80:
            octets = size & 0x7F
            size = int.from_bytes(view[place : place + octets], "big")
            place += octets
        yield tag, view[place : place + size]
        place += size
