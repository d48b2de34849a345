"""Subject and validity of a client certificate."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from headrace.kafka.security import UNREADABLE, end_of, subject_of
from headrace.sandbox import Authority

DAY = timedelta(days=1)


@pytest.mark.parametrize("days", [-0.01, 1, 365 * 40])
def test_the_end_of_its_validity_in_both_forms_of_a_time(days: float) -> None:
    """The year has two digits, or four from 2050 on."""
    valid = timedelta(days=days)
    certificate, _ = Authority("clients").issue("headrace", valid=valid)
    late = end_of(certificate.decode()) - datetime.now(UTC) - valid
    assert abs(late) < timedelta(seconds=30)


def test_subject_is_written_as_java_writes_it() -> None:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "NL"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, 'Water, "Ltd"'),
            x509.NameAttribute(NameOID.COMMON_NAME, "headrace"),
        ]
    )
    assert subject_of(certificate_of(name)) == 'CN=headrace,O=Water\\, \\"Ltd\\",C=NL'


def test_subject_with_an_attribute_without_a_name_is_refused() -> None:
    name = x509.Name([x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@example.org")])
    with pytest.raises(UNREADABLE):
        subject_of(certificate_of(name))


def certificate_of(subject: x509.Name) -> str:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + DAY)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


@pytest.mark.parametrize("junk", ["", "junk", "MAA=", "MIH/", "MAUwAzABMA=="])
def test_text_without_a_certificate_is_refused(junk: str) -> None:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    with pytest.raises(UNREADABLE):
        end_of(f"{begin}\n{junk}\n{end}\n")
