"""Which records are copied, by their headers."""

from typing import Any

import pytest

from headrace.api import HEARTBEATS, RecordFilter
from headrace.replication import record_filter

EU = {"name": "region", "value": "eu"}
TEST = {"name": "test"}


@pytest.mark.parametrize(
    ("wanted", "headers", "copied"),
    [
        ({"include": [EU]}, [("region", b"eu")], True),
        ({"include": [EU]}, {"region": "eu"}, True),
        ({"include": [EU]}, [("region", b"us"), ("region", b"eu")], True),
        ({"include": [EU]}, [("region", b"eu-west")], False),
        ({"include": [EU]}, [("region", b"\xff")], False),
        ({"include": [EU]}, [("region", None), ("Region", b"eu")], False),
        ({"include": [EU]}, None, False),
        ({"include": [EU, TEST]}, [("test", None)], True),
        ({"exclude": [TEST]}, None, True),
        ({"exclude": [TEST]}, [("test", None)], False),
        ({"exclude": [EU]}, [("region", b"us")], True),
        ({"include": [EU], "exclude": [TEST]}, [("region", b"eu"), ("test", b"1")], False),
    ],
)
def test_one_header_of_include_and_none_of_exclude(
    wanted: dict[str, Any], headers: Any, copied: bool
) -> None:
    copies = record_filter(RecordFilter.model_validate({"headers": wanted}))
    assert copies is not None
    assert copies("orders", headers) is copied
    assert copies(HEARTBEATS, headers)


def test_a_filter_that_says_nothing_costs_nothing() -> None:
    assert record_filter(None) is None
    assert record_filter(RecordFilter()) is None
