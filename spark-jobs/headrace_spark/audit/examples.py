"""Examples of differences in the report: positions, hashes, and the content of records."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from operator import attrgetter

from headrace.api import AuditExamples, ClusterAccess, TopicPartition
from headrace.kafka import Consumer, KafkaError, assign, make_consumer, translate, unassign
from headrace.mirror_test import (
    MAX_EXAMPLES,
    AuditDifference,
    AuditedTopic,
    FieldDifference,
    FindingType,
    MirrorTestRun,
    Place,
    ShownBytes,
    ShownRecord,
)
from headrace_spark.audit.differences import HashedRecord, RecordDifference

_FIELDS = {"key": "key", "value": "value", "headers": "headers", "timestamp": "timestamp_ms"}
_ANSWER_S = 30.0
"""Time for a record to arrive, in seconds. Otherwise its content is not shown."""
_POLL_S = 0.5
_FETCH_MS = 10
"""Time that a broker waits for new records, in ms. The next request is sent only afterwards."""
_NO_RECORD = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)
"""Errors of a consumer at an offset that has no record."""

Contents = Callable[[ClusterAccess, Sequence[Place]], Mapping[Place, ShownRecord]]


def read_records(cluster: ClusterAccess, places: Iterable[Place]) -> dict[Place, ShownRecord]:
    """Return the content of records. Records that were deleted are left out."""
    offsets: dict[TopicPartition, list[int]] = defaultdict(list)
    for place in sorted(set(places), key=attrgetter("offset"), reverse=True):
        offsets[TopicPartition(place.topic, place.partition)].append(place.offset)
    found: dict[Place, ShownRecord] = {}
    if not offsets:
        return found
    with closing(make_consumer(cluster, {"fetch.wait.max.ms": _FETCH_MS})) as consumer:
        while offsets:
            # All partitions at once: a consumer waits up to a second for a topic that is new to it.
            found |= _one_of_each(consumer, {at: left.pop() for at, left in offsets.items()})
            offsets = {at: left for at, left in offsets.items() if left}
    return found


def _one_of_each(
    consumer: Consumer, offsets: dict[TopicPartition, int]
) -> Iterator[tuple[Place, ShownRecord]]:
    """Yield the records at these offsets that still exist."""
    assign(consumer, offsets.items())
    deadline = time.monotonic() + _ANSWER_S
    while offsets and time.monotonic() < deadline:
        message = consumer.poll(_POLL_S)
        if message is None:
            continue
        error = message.error()
        if error and error.code() not in _NO_RECORD:
            raise translate(error, "read the examples of an audit")
        at = TopicPartition(str(message.topic()), message.partition() or 0)
        if at not in offsets:
            continue
        unassign(consumer, [at])
        # If the record was deleted, a later one arrives.
        if error is None and message.offset() == offsets[at]:
            shown = ShownRecord(
                key=ShownBytes.of(message.key()), value=ShownBytes.of(message.value())
            )
            yield Place(topic=at.topic, partition=at.partition, offset=offsets[at]), shown
        del offsets[at]


def examples(
    run: MirrorTestRun,
    topics: Iterable[AuditedTopic],
    differences: Iterable[RecordDifference],
    contents: Contents = read_records,
) -> tuple[AuditDifference, ...]:
    """Return the differences that the report lists, with the content that the test asks for."""
    audit = run.test.spec.audit
    assert audit is not None
    listed = tuple(_listed(topics, differences, hashes=audit.examples.has_hashes))
    if audit.examples is not AuditExamples.RECORDS:
        return listed
    source = contents(run.source, [one.source for one in listed if one.source])
    target = contents(run.target, [one.target for one in listed if one.target])
    return tuple(
        one.model_copy(
            update={
                "source_record": source.get(one.source) if one.source else None,
                "target_record": target.get(one.target) if one.target else None,
            }
        )
        for one in listed
    )


def _listed(
    topics: Iterable[AuditedTopic], differences: Iterable[RecordDifference], *, hashes: bool
) -> Iterator[AuditDifference]:
    copies = {topic.source: topic.target for topic in topics}
    shown: Counter[tuple[FindingType, str]] = Counter()
    by_kind: Counter[FindingType] = Counter()
    waiting = []
    for one in sorted(differences, key=lambda d: (d.kind, d.record.origin)):
        # Each topic gets its examples before any topic gets a second one.
        shown[one.kind, one.record.topic] += 1
        waiting.append((one.kind, shown[one.kind, one.record.topic], one))
    for kind, _, one in sorted(waiting, key=lambda item: item[:2]):
        by_kind[kind] += 1
        if by_kind[kind] <= MAX_EXAMPLES:
            yield AuditDifference(
                kind=kind,
                source=_place(one.source, {}),
                target=_place(one.target, copies),
                differs=one.differs,
                count=one.records,
                changes=tuple(_changes(one)) if hashes else (),
            )


def _place(record: HashedRecord | None, names: Mapping[str, str]) -> Place | None:
    if record is None:
        return None
    topic = names.get(record.topic, record.topic)
    return Place(topic=topic, partition=record.partition, offset=record.offset)


def _changes(difference: RecordDifference) -> Iterator[FieldDifference]:
    source, target = difference.source, difference.target
    if source is None or target is None:
        return
    for what in filter(None, difference.differs.split(", ")):
        if name := _FIELDS.get(what):
            expected, found = (_shown(what, getattr(r, name)) for r in (source, target))
            yield FieldDifference(what=what, expected=expected, found=found)


def _shown(what: str, value: int) -> str:
    return f"{value} ms" if what == "timestamp" else f"hash {value & (1 << 64) - 1:016x}"
