"""Signatures of reports: Ed25519 over the canonical JSON of ``report.json``.

The canonical JSON has sorted keys, no spaces, and only ASCII characters. It contains the whole
report except ``signature.value``.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from headrace.errors import HeadraceError, InvalidSpec, from_exception
from headrace.mirror_test import ReportSignature

_ALGORITHM = "Ed25519"
_FIELD, _VALUE = "signature", "value"


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Read the private key that signs reports.

    Raise ``InvalidSpec`` if the file does not contain an unencrypted Ed25519 key.
    """
    hint = "create one with `openssl genpkey -algorithm ed25519`"
    try:
        key = load_pem_private_key(_read(path, "the key"), None)
    except TypeError as error:
        raise InvalidSpec(f"{path} is encrypted: use a key without a passphrase") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidSpec(f"{path} is not a private key in PEM format: {hint}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidSpec(f"{path} is a private key of another kind than {_ALGORITHM}: {hint}")
    return key


def read_public_key(path: Path) -> Ed25519PublicKey:
    """Read the public key that verifies reports.

    Raise ``InvalidSpec`` if the file does not contain an Ed25519 key.
    """
    hint = "`openssl pkey -in KEY.pem -pubout` prints the key that belongs to KEY.pem"
    try:
        key = load_pem_public_key(_read(path, "the key"))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidSpec(f"{path} is not a public key in PEM format: {hint}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidSpec(f"{path} is a public key of another kind than {_ALGORITHM}: {hint}")
    return key


def key_sha256(key: Ed25519PublicKey) -> str:
    """Return the SHA-256 of a public key in DER, which identifies the signer."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def sign_report(path: Path, key: Ed25519PrivateKey, now_ms: int) -> None:
    """Add a signature to the report in a file."""
    report = _parse(path.read_bytes(), path)
    signature = {
        "algorithm": _ALGORITHM,
        "keySha256": key_sha256(key.public_key()),
        "signedMs": now_ms,
    }
    value = key.sign(_canonical({**report, _FIELD: signature})).hex()
    report[_FIELD] = {**signature, _VALUE: value}
    unfinished = path.with_suffix(".part")
    text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False)
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def verify_report(path: Path, key: Ed25519PublicKey) -> tuple[dict[str, Any], ReportSignature]:
    """Return a report without its signature, and the signature.

    Raises:
        InvalidSpec: The file cannot be read.
        HeadraceError: The report is not signed with this key, or was changed.
    """
    text = _read(path, "the report")
    if _parse(text, path).get(_FIELD) is None:
        raise HeadraceError(
            f"{path} has no signature: `headrace verify --sign-key KEY.pem` signs a report"
        )
    report = _parse(text, path, _unchanged)
    found = report.pop(_FIELD)
    changed = f"{path} was changed after it was signed"
    try:
        signature = ReportSignature.model_validate(found)
        value = bytes.fromhex(signature.value)
    except ValueError as error:
        raise HeadraceError(f"{changed}: its signature is not readable") from error
    if signature.key_sha256 != key_sha256(key):
        raise HeadraceError(
            f"{path} was signed with another key: its key has the SHA-256 "
            f"{signature.key_sha256}, and the given key {key_sha256(key)}"
        )
    signed = {name: text for name, text in found.items() if name != _VALUE}
    try:
        if value.hex() != signature.value:
            raise HeadraceError(f"{changed}: its signature is not readable")
        key.verify(value, _canonical({**report, _FIELD: signed}))
    except (InvalidSignature, ValueError) as error:
        raise HeadraceError(f"{changed}: the signature does not match") from error
    return report, signature


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidSpec(f"{what} {path} cannot be read: {from_exception(error)}") from error


def _parse(text: bytes, path: Path, parse_float: Callable[[str], float] = float) -> dict[str, Any]:
    """Parse a report. Reject JSON that other programs may parse differently."""
    try:
        report = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_without_repetitions,
            parse_float=parse_float,
            parse_constant=_refuse,
        )
    except (ValueError, RecursionError) as error:
        raise HeadraceError(
            f"{path} is not valid JSON: it is not a report, or it was changed"
        ) from (error)
    if not isinstance(report, dict):
        raise HeadraceError(f"{path} is not a report of headrace")
    return report


def _without_repetitions(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is repeated")
    return found


def _unchanged(number: str) -> float:
    """Parse a number. Raise ``ValueError`` if ``sign_report`` would write it in another form."""
    found = float(number)
    if repr(found) != number:
        raise ValueError(f"{number} is not as it was written")
    return found


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is no JSON")


def _canonical(report: dict[str, Any]) -> bytes:
    text = json.dumps(
        report, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return text.encode("ascii")
