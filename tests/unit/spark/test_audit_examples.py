"""Differences that the report of an audit lists."""

from collections.abc import Mapping, Sequence

import pytest

from headrace.api import ClusterAccess, MirrorTest
from headrace.mirror_test import (
    MAX_EXAMPLES,
    AuditDifference,
    AuditedTopic,
    FindingType,
    MirrorTestRun,
    Place,
    ShownBytes,
    ShownRecord,
)
from headrace_spark.audit.differences import HashedRecord, RecordDifference
from headrace_spark.audit.examples import examples

TOPICS = [
    AuditedTopic(source=name, target=f"east.{name}", source_partitions=1, target_partitions=1)
    for name in ("orders", "users")
]
HERE = HashedRecord("orders", 0, 7, 1_000, 1, 2, 3, 4)
CHANGED = RecordDifference(
    FindingType.CORRUPTED,
    HERE,
    HERE._replace(offset=9, timestamp_ms=5, value=-1),
    "timestamp, value",
)


def listed(content: str, *differences: RecordDifference) -> tuple[AuditDifference, ...]:
    spec = {
        "source": {"alias": "east", "bootstrapServers": "e:1"},
        "target": {"alias": "west", "bootstrapServers": "w:1"},
        "audit": {"topics": [".*"], "examples": content},
    }
    test = MirrorTest.model_validate({"metadata": {"name": "t"}, "spec": spec})

    def contents(cluster: ClusterAccess, places: Sequence[Place]) -> Mapping[Place, ShownRecord]:
        value = ShownBytes.of(cluster.alias.encode())
        return {place: ShownRecord(value=value) for place in places if place.offset != 8}

    return examples(MirrorTestRun(name="r", test=test), TOPICS, differences, contents)


HASHES = [
    ("timestamp", "1000 ms", "5 ms"),
    ("value", "hash 0000000000000002", "hash ffffffffffffffff"),
]


@pytest.mark.parametrize(
    ("content", "changes", "values"),
    [
        ("Coordinates", [], [None, None]),
        ("Hashes", HASHES, [None, None]),
        ("Records", HASHES, ["east", "west"]),
    ],
)
def test_a_difference_has_the_content_that_the_test_asks_for(
    content: str, changes: list[tuple[str, str, str]], values: list[str | None]
) -> None:
    [found] = listed(content, CHANGED)
    assert found.source == Place(topic="orders", partition=0, offset=7)
    assert found.target == Place(topic="east.orders", partition=0, offset=9)
    assert [(one.what, one.expected, one.found) for one in found.changes] == changes
    shown = [found.source_record, found.target_record]
    assert [one and one.value and one.value.text for one in shown] == values


def test_the_record_of_one_side_is_shown_and_a_deleted_one_is_not() -> None:
    missing = RecordDifference(FindingType.MISSING, HERE, None)
    deleted = RecordDifference(FindingType.MISSING, HERE._replace(offset=8), None)
    first, second = listed("Records", missing, deleted)
    assert first.source_record is not None
    assert (first.target_record, second.source_record) == (None, None)


def test_each_topic_has_an_example_before_another_has_two() -> None:
    many = [
        RecordDifference(FindingType.MISSING, HERE._replace(offset=offset), None)
        for offset in range(50)
    ]
    other = RecordDifference(FindingType.MISSING, HERE._replace(topic="users"), None)
    found = listed("Coordinates", *many, other)
    assert len(found) == MAX_EXAMPLES
    assert [one.source.topic for one in found[:2] if one.source] == ["orders", "users"]
