"""Any name as the value of a label."""

import re

from hypothesis import given
from hypothesis import strategies as st

from headrace.api.labels import label_value


@given(st.text(max_size=300), st.text(max_size=300))
def test_values_are_valid_and_told_apart(one: str, other: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", label_value(one))
    assert (label_value(one) == label_value(other)) is (one == other)
