"""Validity of a client certificate."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.kafka.security import UNREADABLE, end_of
from headrace.sandbox import Authority


@pytest.mark.parametrize("days", [-0.01, 1, 365 * 40])
def test_the_end_of_its_validity_in_both_forms_of_a_time(days: float) -> None:
    """The year has two digits, or four from 2050 on."""
    valid = timedelta(days=days)
    certificate, _ = Authority("clients").issue("headrace", valid=valid)
    late = end_of(certificate.decode()) - datetime.now(UTC) - valid
    assert abs(late) < timedelta(seconds=30)


@pytest.mark.parametrize("junk", ["", "junk", "MAA=", "MIH/", "MAUwAzABMA=="])
def test_what_is_none(junk: str) -> None:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    with pytest.raises(UNREADABLE):
        end_of(f"{begin}\n{junk}\n{end}\n")
