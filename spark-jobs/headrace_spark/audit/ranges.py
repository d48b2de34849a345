"""Offsets that an audit reads on both sides, and topic settings that explain differences."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from headrace.api import AuditStart, ClusterAccess, TopicPartition
from headrace.errors import GaveUp
from headrace.kafka import Position, replaced
from headrace.mirror_test import AuditedTopic, FlowChanges, MirrorTestRun
from headrace_spark.audit.frontier import AuditedPartition, SourcePartition
from headrace_spark.patient_admin import PatientAdmin
from headrace_spark.records import OffsetRange

_POLL_S = 0.5
_COMPACT = "compact"
_STAMPS = "LogAppendTime"
Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AuditedSide:
    """One cluster, and the offsets to read from it."""

    cluster: ClusterAccess
    names: Mapping[str, str]
    """Topic names on the source, by the names on this cluster."""
    ids: Mapping[str, str]
    oldest: Offsets
    """First existing offset of each partition."""
    start: Offsets
    end: Offsets
    changes: FlowChanges = field(default_factory=FlowChanges)
    """Changes of a flow, which are applied to the records of the source before the comparison."""

    def range(self, spans: Mapping[TopicPartition, tuple[int, int]] | None = None) -> OffsetRange:
        """Return the offsets to read with Spark. With ``spans``, return only these offsets."""
        start: dict[str, list[int]] = {}
        end: dict[str, list[int]] = {}
        for at in sorted(self.start):
            first, last = self.start[at], max(self.start[at], self.end[at])
            if spans is not None:
                first, last = spans.get(at, (last, last))
            start.setdefault(at.topic, []).append(first)
            end.setdefault(at.topic, []).append(last)
        return OffsetRange(
            {here: self.names[here] for here in start},
            {name: tuple(offsets) for name, offsets in start.items()},
            {name: tuple(offsets) for name, offsets in end.items()},
        )

    def is_cut(self, at: TopicPartition) -> bool:
        """Return True if the range begins at the start of a log that has lost records."""
        return self.start[at] == self.oldest[at] > 0


@dataclass(frozen=True)
class Ranges:
    """Offsets to compare, and the settings of the topics."""

    source: AuditedSide
    target: AuditedSide
    frontier: Offsets
    """End offsets of the source when the audit began.

    Every earlier record must be on the target.
    """
    compacted: Mapping[str, int]
    """Topics that are compacted on either side, with the retention of tombstones in ms."""
    stamped: frozenset[str]
    """Topics whose target has ``LogAppendTime``."""
    resumed: Mapping[SourcePartition, AuditedPartition] = field(default_factory=dict)
    """Partitions that are compared from their stored frontier."""
    begun_again: frozenset[str] = frozenset()
    """Topics with a frontier that are compared from the first record, because a topic was created
    again."""
    settles_s: float | None = None
    """Time of the monotonic clock at which ``settleSeconds`` elapse, in seconds.

    It is None if the end of the target was read afterwards.
    """
    since_ms: int | None = None
    """Smallest timestamp of records to compare, in ms since 1970, or None if all are compared.

    A range begins at the first offset with this timestamp, and older records may follow: a
    transaction marker, which has the time of its commit, may have this offset.
    """

    @property
    def records(self) -> int:
        """Largest number of records to read from a cluster.

        If the audit continues an earlier one, all earlier records are included, because they may be
        checked again.
        """
        return max(
            sum(
                max(0, end - (side.oldest if self.resumed else side.start)[at])
                for at, end in side.end.items()
            )
            for side in (self.source, self.target)
        )


def fix(
    run: MirrorTestRun,
    topics: Iterable[AuditedTopic],
    on_wait: Callable[[], None],
    known: Mapping[SourcePartition, AuditedPartition] = MappingProxyType({}),
) -> Ranges:
    """Wait until the target has caught up with the source, and return the offsets to compare.

    The frontier is read first: the source's end offsets, below which the target must have all
    records. When each target topic has as many offsets as its source topic has below the frontier,
    or after ``settleSeconds``, the end of the target range is read. The end of the source range is
    read last, so the source range contains the originals of all target records. Raise ``GaveUp`` if
    a topic was replaced or truncated.

    The number of offsets does not prove that all records have arrived: the target may have
    transaction markers, duplicates, and records that the source has deleted.

    A partition in ``known`` begins at the frontier of an earlier audit, unless its topic or copy
    was created again since. Compacted topics are always compared from the first record.
    """
    audit = run.test.spec.audit
    assert audit is not None
    topics = tuple(topics)
    sides = (
        (
            PatientAdmin(run.source),
            run.source,
            {t.source: t.source for t in topics if t.source_partitions},
        ),
        (
            PatientAdmin(run.target),
            run.target,
            {t.target: t.source for t in topics if t.target_partitions},
        ),
    )
    partitions = [
        [TopicPartition(name, p) for name in names for p in range(counts[name])]
        for (_, _, names), counts in zip(
            sides,
            (
                {t.source: t.source_partitions for t in topics},
                {t.target: t.target_partitions for t in topics},
            ),
            strict=True,
        )
    ]
    ids = [
        {name: one.topic_id for name, one in admin.describe(names).items()}
        for admin, _, names in sides
    ]
    compacted, stamped = _settings(sides[0][0], sides[1][0], topics)
    begun_again = _begun_again(topics, ids[0], ids[1], known)
    resumed = {
        at: one for at, one in known.items() if at[0] not in compacted and at[0] not in begun_again
    }
    frontiers = (
        {at: one.source_offset for at, one in resumed.items()},
        {at: one.target_offset for at, one in resumed.items()},
    )
    begun = []
    for (admin, cluster, names), ats, of_side, frontier in zip(
        sides, partitions, ids, frontiers, strict=True
    ):
        oldest = admin.offsets(ats, Position.EARLIEST)
        ends = admin.offsets(ats, Position.LAST_STABLE)
        start = {**_start(admin, audit.start_from, oldest, ends)}
        for at in ats:
            if (stored := frontier.get((names[at.topic], at.partition))) is not None:
                start[at] = min(max(stored, oldest[at]), ends[at])
        begun.append(AuditedSide(cluster, names, of_side, oldest, start, ends))
    source, target = replace(begun[0], changes=run.changes), begun[1]
    end_of_source = source.end
    deadline = time.monotonic() + run.test.spec.settle_seconds
    while not _has_as_much(source, target) and time.monotonic() < deadline:
        on_wait()
        time.sleep(_POLL_S)
        target = replace(target, end=sides[1][0].offsets(partitions[1], Position.LAST_STABLE))
    settles_s = deadline if time.monotonic() < deadline else None
    source = replace(source, end=sides[0][0].offsets(partitions[0], Position.LAST_STABLE))
    for side, earlier in ((source, begun[0]), (target, begun[1])):
        check(side, earlier.end)
    return Ranges(
        source,
        target,
        end_of_source,
        compacted,
        stamped,
        resumed,
        begun_again,
        settles_s,
        _since_ms(audit.start_from),
    )


def extended(fixed: Ranges) -> Ranges:
    """Return the ranges up to the present ends of both sides, with the same frontier."""
    # The source is read last, so that its range contains the originals of all target records.
    target, source = (
        replace(side, end=PatientAdmin(side.cluster).offsets(side.end, Position.LAST_STABLE))
        for side in (fixed.target, fixed.source)
    )
    return replace(fixed, source=source, target=target)


def _begun_again(
    topics: Iterable[AuditedTopic],
    source_ids: Mapping[str, str],
    target_ids: Mapping[str, str],
    known: Mapping[SourcePartition, AuditedPartition],
) -> frozenset[str]:
    """Return topics that were created again or deleted after their frontier was stored."""
    copies = {topic.source: topic.target for topic in topics}
    return frozenset(
        name
        for (name, _), one in known.items()
        if name not in source_ids
        or copies[name] not in target_ids
        or replaced(one.source_topic_id, source_ids[name])
        or replaced(one.target_topic_id, target_ids[copies[name]])
    )


def check(side: AuditedSide, ends: Offsets) -> None:
    """Raise ``GaveUp`` if a topic was created again, or a log is shorter than it was."""
    admin = PatientAdmin(side.cluster)
    described = admin.describe(side.ids)
    for name, topic_id in side.ids.items():
        if name not in described:
            raise GaveUp(f"topic {name} of {side.cluster.alias} was deleted during the audit")
        if replaced(topic_id, described[name].topic_id):
            raise GaveUp(
                f"topic {name} of {side.cluster.alias} was deleted and created again during the "
                "audit: its records cannot be compared; audit it again"
            )
    now = admin.offsets(ends, Position.LATEST)
    for at, end in ends.items():
        if now[at] < end:
            raise GaveUp(
                f"{at} of {side.cluster.alias} ends at offset {now[at]} and ended at {end} when "
                "the audit began: the log was truncated"
            )


def moved_start(side: AuditedSide) -> dict[TopicPartition, tuple[int, int]]:
    """Return the old and the new first offset of partitions that have lost records of the range."""
    oldest = PatientAdmin(side.cluster).offsets(side.start, Position.EARLIEST)
    return {
        at: (start, oldest[at])
        for at, start in side.start.items()
        if start < oldest[at] and start < side.end[at]
    }


def without(side: AuditedSide, moved: Mapping[TopicPartition, tuple[int, int]]) -> AuditedSide:
    """Return the range without the records that were deleted."""
    starts = {at: min(new, side.end[at]) for at, (_, new) in moved.items()}
    return replace(side, start={**side.start, **starts}, oldest={**side.oldest, **starts})


def _start(admin: PatientAdmin, start: AuditStart, oldest: Offsets, ends: Offsets) -> Offsets:
    if (since_ms := _since_ms(start)) is None:
        return oldest
    found = admin.offsets_at(oldest, since_ms)
    return {at: found[at] if found[at] >= 0 else ends[at] for at in oldest}


def _since_ms(start: AuditStart) -> int | None:
    return None if start.timestamp is None else round(start.timestamp.timestamp() * 1000)


def _has_as_much(source: AuditedSide, target: AuditedSide) -> bool:
    """Return True if each target topic has at least as many offsets as its source topic."""

    def sizes(side: AuditedSide) -> dict[str, int]:
        found: dict[str, int] = {}
        for at, start in side.start.items():
            name = side.names[at.topic]
            found[name] = found.get(name, 0) + side.end[at] - start
        return found

    there = sizes(target)
    return all(there.get(name, size) >= size for name, size in sizes(source).items())


def _settings(
    source: PatientAdmin, target: PatientAdmin, topics: Iterable[AuditedTopic]
) -> tuple[dict[str, int], frozenset[str]]:
    """Return the values of ``Ranges.compacted`` and ``Ranges.stamped``."""
    compacted: dict[str, int] = {}
    stamped = set()
    for topic in topics:
        if not topic.source_partitions or not topic.target_partitions:
            continue
        here = source.topic_config(topic.source)
        there = target.topic_config(topic.target)
        if any(_COMPACT in config["cleanup.policy"] for config in (here, there)):
            kept = (int(config["delete.retention.ms"]) for config in (here, there))
            compacted[topic.source] = min(kept)
        if there["message.timestamp.type"] == _STAMPS:
            stamped.add(topic.source)
    return compacted, frozenset(stamped)
