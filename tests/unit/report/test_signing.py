"""Signed reports, as an auditor verifies them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from headrace.api import MirrorTest, Verdict
from headrace.cli.main import main
from headrace.cli.screen.exits import Exit
from headrace.errors import HeadraceError, InvalidSpec
from headrace.mirror_test import Counts, Result, documents
from headrace.report.signing import key_sha256, read_private_key, sign_report, verify_report

KEY = Ed25519PrivateKey.generate()
SPEC = {
    "source": {"alias": "east", "bootstrapServers": "e:1"},
    "target": {"alias": "west", "bootstrapServers": "w:1"},
}
RESULT = Result(
    verdict=Verdict.PASSED,
    reasons=("all records are on the target, überall",),
    run="r-1",
    test=MirrorTest.model_validate({"metadata": {"name": "migration"}, "spec": SPEC}),
    counts=Counts(acknowledged=1_000),
    acknowledged_per_second=1.5e-7,
    judged_ms=1_000,
    test_sha256="0" * 64,
    versions={"headrace": "0.1.0"},
)


def write_public(folder: Path, key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> Path:
    file = folder / "public.pem"
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    file.write_bytes(pem)
    return file


def write_private(
    folder: Path, key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey, password: bytes = b""
) -> Path:
    file = folder / "key.pem"
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return file


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Return a report that the key of this file has signed."""
    file = tmp_path / documents.REPORT
    documents.write(file, RESULT)
    sign_report(file, read_private_key(write_private(tmp_path, KEY)), 1_764_345_600_000)
    return file


@pytest.fixture
def verify(tmp_path: Path) -> Callable[[Path], int]:
    public = write_public(tmp_path, KEY)
    return lambda report: main(
        ["test", "report", "--verify-signature", str(public), str(report)],
    )


def test_a_signed_report_is_verified_with_key_and_time(
    report: Path, verify: Callable[[Path], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(report) == Exit.OK
    printed = capsys.readouterr().out
    assert "is as it was signed at 2025-11-28 16:00:00 UTC" in printed
    assert key_sha256(KEY.public_key()) in printed
    assert "Passed: run r-1 of migration" in printed
    signed = Result.model_validate_json(report.read_text())
    assert signed.model_copy(update={"signature": None}) == RESULT
    report.write_text(json.dumps(json.loads(report.read_text()), indent=4))
    assert verify(report) == Exit.OK


def test_each_changed_byte_is_refused(report: Path) -> None:
    public, text = KEY.public_key(), report.read_bytes()
    for place, byte in enumerate(text):
        for bit in (0x01, 0x20):
            report.write_bytes(text[:place] + bytes([byte ^ bit]) + text[place + 1 :])
            with pytest.raises(HeadraceError):
                verify_report(report, public)
    for place in range(0, len(text), 7):
        report.write_bytes(text[:place])
        with pytest.raises(HeadraceError):
            verify_report(report, public)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"verdict": "Passed"', '"verdict": "Failed"'),
        ('"verdict": "Passed"', '"verdict": "Failed", "verdict": "Passed"'),
        ('"acknowledged": 1000', '"acknowledged": NaN'),
        ('"signedMs": 1764345600000', '"signedMs": 1764345600001'),
        ('"algorithm"', '"algorithms"'),
    ],
)
def test_a_changed_report_is_a_sentence_and_exit_1(
    report: Path,
    verify: Callable[[Path], int],
    old: str,
    new: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = report.read_text()
    assert old in text
    report.write_text(text.replace(old, new, 1))
    assert verify(report) == Exit.FAILED
    message = capsys.readouterr().err
    assert str(report) in message
    assert "changed" in message


def test_another_key_and_no_signature_are_refused(
    report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = str(write_public(tmp_path, Ed25519PrivateKey.generate()))
    words = ["test", "report", str(report), "--verify-signature", other]
    assert main(words) == Exit.FAILED
    assert "was signed with another key" in capsys.readouterr().err
    documents.write(report, RESULT)
    assert main(words) == Exit.FAILED
    assert "has no signature: `headrace verify --sign-key KEY.pem` signs" in capsys.readouterr().err


def test_files_that_cannot_be_read_are_usage_errors(
    report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public = write_public(tmp_path, KEY)
    other_kind = tmp_path / "other"
    other_kind.mkdir()
    other = write_public(other_kind, ec.generate_private_key(ec.SECP256R1()))
    absent = tmp_path / "absent"
    for key, file, sentence in (
        (absent, report, "the key"),
        (report, report, "is not a public key in PEM format"),
        (other, report, "is a public key of another kind than Ed25519"),
        (public, absent, "the report"),
    ):
        words = ["test", "report", str(file), "--verify-signature", str(key)]
        assert main(words) == Exit.USAGE
        assert sentence in capsys.readouterr().err


def test_a_private_key_of_another_kind_is_refused_before_the_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test.yaml").write_text("{}")
    words = ["verify", str(tmp_path / "test.yaml"), "--sign-key", str(tmp_path / "key.pem")]
    assert main(words) == Exit.USAGE
    assert "cannot be read" in capsys.readouterr().err
    write_private(tmp_path, ec.generate_private_key(ec.SECP256R1()))
    assert main(words) == Exit.USAGE
    assert "create one with `openssl genpkey -algorithm ed25519`" in capsys.readouterr().err
    with pytest.raises(InvalidSpec, match="is encrypted: use a key without a passphrase"):
        read_private_key(write_private(tmp_path, KEY, b"secret"))
