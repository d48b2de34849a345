"""Tests of record filters and header changes."""

from typing import Any

import pytest

from headrace.api import HEARTBEATS, HeaderChanges, RecordFilter
from headrace.replication import RecordChanges
from headrace.replication.filters import Headers

EU = {"name": "region", "value": "eu"}
TEST = {"name": "test"}


def changes(
    wanted: dict[str, Any] | None = None, headers: dict[str, Any] | None = None
) -> RecordChanges:
    return RecordChanges(
        None if wanted is None else RecordFilter.model_validate({"headers": wanted}),
        None if headers is None else HeaderChanges.model_validate(headers),
    )


@pytest.mark.parametrize(
    ("wanted", "headers", "copied"),
    [
        ({"include": [EU]}, (("region", b"eu"),), True),
        ({"include": [EU]}, (("region", b"us"), ("region", b"eu")), True),
        ({"include": [EU]}, (("region", b"eu-west"),), False),
        ({"include": [EU]}, (("region", b"\xff"),), False),
        ({"include": [EU]}, (("region", None), ("Region", b"eu")), False),
        ({"include": [EU]}, (), False),
        ({"include": [EU, TEST]}, (("test", None),), True),
        ({"exclude": [TEST]}, (), True),
        ({"exclude": [TEST]}, (("test", None),), False),
        ({"exclude": [EU]}, (("region", b"us"),), True),
        ({"include": [EU], "exclude": [TEST]}, (("region", b"eu"), ("test", b"1")), False),
    ],
)
def test_a_record_needs_one_header_of_include_and_none_of_exclude(
    wanted: dict[str, Any], headers: Headers, copied: bool
) -> None:
    assert changes(wanted).apply(headers) == (headers if copied else None)


def test_headers_are_removed_before_others_are_added() -> None:
    found = changes(
        headers={
            "remove": ["trace", "via"],
            "add": [{"name": "via", "value": "headrace"}, {"name": "ü", "value": "ä"}],
        }
    ).apply((("trace", b"1"), ("a", None), ("via", b"old"), ("trace", None)))
    assert found == (("a", None), ("via", b"headrace"), ("ü", "ä".encode()))


def test_the_filter_sees_the_headers_of_the_source() -> None:
    found = changes({"exclude": [TEST]}, {"remove": ["test"]})
    assert found.apply((("test", b"1"),)) is None
    added = changes({"include": [EU]}, {"add": [{"name": "region", "value": "eu"}]})
    assert added.apply(()) is None


def test_headers_that_do_not_change_are_returned_themselves() -> None:
    headers = (("a", b"1"),)
    assert changes({"exclude": [TEST]}, {"remove": ["b"]}).apply(headers) is headers


@pytest.mark.parametrize("one", [RecordChanges(None, None), changes({}, {})])
def test_empty_changes_concern_no_topic(one: RecordChanges) -> None:
    assert not one.concern("orders")


@pytest.mark.parametrize(
    "one",
    [
        changes({"include": [EU]}),
        changes({"exclude": [EU]}),
        changes(headers={"remove": ["a"]}),
        changes(headers={"add": [EU]}),
    ],
)
def test_heartbeats_are_copied_unchanged(one: RecordChanges) -> None:
    assert one.concern("orders")
    assert not one.concern(HEARTBEATS)
