"""What a certificate says, read from its DER encoding: the standard library has no reader of it.

Of the first certificate of a PEM text. Each raises one of ``UNREADABLE`` for what is none.
"""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime

UNREADABLE = (ValueError, LookupError, StopIteration)
_VERSION, _BMP_STRING, _UTC_TIME = 0xA0, 0x1E, 0x17
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


def subject_of(pem: str) -> str:
    """As Java writes it (RFC 2253): the last part first."""
    parts = ["+".join(map(_attribute, _contents(one))) for one in _contents(_fields(pem)[4])]
    return ",".join(reversed(parts))


def end_of(pem: str) -> datetime:
    """When its validity ends."""
    _, (tag, value) = _parts(_fields(pem)[3])
    year = "%y" if tag == _UTC_TIME else "%Y"
    return datetime.strptime(bytes(value).decode(), f"{year}%m%d%H%M%SZ").replace(tzinfo=UTC)


def _fields(pem: str) -> list[memoryview]:
    """Serial number, algorithm, issuer, validity, subject, and what follows."""
    end = "-----END CERTIFICATE-----"
    first = pem[pem.index("-----BEGIN CERTIFICATE-----") : pem.index(end) + len(end)]
    certificate = memoryview(ssl.PEM_cert_to_DER_cert(first))
    to_be_signed = next(_parts(next(_parts(certificate))[1]))[1]
    return [content for tag, content in _parts(to_be_signed) if tag != _VERSION]


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
