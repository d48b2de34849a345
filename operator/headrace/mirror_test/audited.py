"""Topics of an audit, and the records that it counted and excluded."""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field

from headrace.api import HEARTBEATS, Model, Partitioning, RecordPart, is_internal
from headrace.errors import InvalidSpec
from headrace.mirror_test.run import MirrorTestRun
from headrace.replication import policy_for

MAX_AUDITED_TOPICS = 100
MAX_EXCLUDED = 100
MAX_UNKNOWN_SCHEMAS = 20
MAX_RANGES = 1_000
"""Maximum number of partitions, of both clusters together, whose offsets a report lists."""


class AuditedTopic(Model):
    """Topic to compare.

    It may be missing on one cluster. The number of its partitions there is then 0.
    """

    source: str
    """Topic name on the source."""
    target: str
    """Topic name on the target."""
    source_partitions: int
    target_partitions: int


class Exclusion(StrEnum):
    """Reasons why records are not compared."""

    DELETED_ON_TARGET = "deleted on the target"
    """The target may have deleted the records, so it is unknown whether they arrived."""
    DELETED_ON_SOURCE = "deleted on the source"
    """The records are on the target, and older than the source's first record."""
    BEING_REWRITTEN = "rewritten during the audit"
    """The topic is compacted, and the records' key has newer records."""
    REFUSED = "refused by the target"
    """The flow skipped the records or wrote them to its dead-letter topic, and stored their offsets
    on the source."""
    UNREAD = "not compared one by one"
    """The records' blocks differ, but the limit for comparing single records was reached."""


class ExcludedRange(Model):
    """Records of one topic that were not compared."""

    reason: Exclusion
    cluster: str
    """Alias of the cluster that has the records."""
    topic: str
    partition: int | None = None
    """Partition. Absent if the records are in several partitions."""
    first: int | None = None
    last: int | None = None
    """First and last offset of the records."""
    count: int


class ChangedRange(Model):
    """Range of offsets whose records differ from the records that an earlier audit compared."""

    cluster: str
    """Alias of the cluster."""
    topic: str
    partition: int
    first: int
    last: int
    """First and last offset of the range."""
    expected: int
    """Number of records that the earlier audit compared."""
    found: int

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} offsets {self.first} to {self.last} of {self.cluster}"
        )


class TopicAudit(AuditedTopic):
    """Numbers of records of one topic."""

    source_records: int = 0
    """Committed records on the source before the frontier, and records read after it."""
    target_records: int = 0
    size_bytes: int = 0
    """Size of keys and values on the source."""
    compared: int = 0
    """Number of records on the source that were compared."""
    excluded: int = 0
    """Number of records that were not compared, on both sides."""
    missing: int = 0
    duplicated: int = 0
    reordered: int = 0
    corrupted: int = 0
    alien: int = 0
    source_ranges: tuple[tuple[int, int], ...] = ()
    """First compared offset and frontier of each source partition."""
    target_ranges: tuple[tuple[int, int], ...] = ()
    """First compared offset and end offset of each target partition."""


class AuditedPast(Model):
    """Ranges that earlier audits compared, and that this audit checked again in part."""

    since_ms: int | None = None
    """Time of the oldest verdict after which this audit continued, in ms since 1970.

    Each partition continues at the offsets where an earlier audit ended (its frontier), so several
    earlier verdicts may be involved. Absent if no topic has a frontier.
    """
    blocks: int = 0
    """Number of stored blocks of both sides."""
    rechecked: int = 0
    """Number of blocks that were read again."""
    unchecked: int = 0
    """Number of blocks that retention, compaction or a new topic may have changed."""
    changed: Annotated[tuple[ChangedRange, ...], Field(max_length=MAX_EXCLUDED)] = ()
    """Ranges whose records have changed."""
    begun_again: Annotated[tuple[str, ...], Field(max_length=MAX_AUDITED_TOPICS)] = ()
    """Source topics that were compared from their first record, because one side's topic was
    created again."""
    is_stored: bool | None = None
    """True if the next audit continues after this one. Absent if this audit did not pass."""


class UnknownSchema(Model):
    """Records of one target topic whose schema id the registry does not know."""

    topic: str
    """Topic name on the target."""
    part: RecordPart
    """Part of the records that contains the schema id."""
    schema_id: int
    records: int
    """Number of records with this schema id in the topic."""
    partition: int
    offset: int
    """Target offset of the first of these records, in ``partition``."""


class SchemaCheck(Model):
    """Records of the target in Confluent's wire format."""

    records: int = 0
    """Number of keys and values with a schema id."""
    undecodable: int = 0
    """Number of keys and values whose schema id the registry does not know."""
    unknown: Annotated[tuple[UnknownSchema, ...], Field(max_length=MAX_UNKNOWN_SCHEMAS)] = ()
    """Unknown schema ids. The ids with the most records come first."""
    problem: str | None = None
    """Reason why no request to the registry succeeded."""


class AuditOutcome(Model):
    """Topics that an audit compared, and records that it could not compare."""

    topics: Annotated[tuple[TopicAudit, ...], Field(max_length=MAX_AUDITED_TOPICS)] = ()
    """Compared topics. Topics with differences come first."""
    excluded: Annotated[tuple[ExcludedRange, ...], Field(max_length=MAX_EXCLUDED)] = ()
    lag: int = 0
    """Number of offsets that the source received during the audit."""
    past: AuditedPast | None = None
    """Ranges of earlier audits. Present only with ``startFrom.mode: LastAudit``."""
    schemas: SchemaCheck | None = None
    """Schema ids of the target's records. Present only with ``audit.schemas``."""
    unlisted_ranges: int = 0
    """Number of partitions whose ranges are not listed because of ``MAX_RANGES``."""


def audited_topics(
    run: MirrorTestRun, source: Mapping[str, int], target: Mapping[str, int]
) -> tuple[AuditedTopic, ...]:
    """Return the topics that an audit compares.

    Args:
        run: The run, whose test is resolved.
        source: Number of partitions of each topic on the source.
        target: Number of partitions of each topic on the target.

    Raises:
        InvalidSpec: A pattern matches no topic, or a topic has too few partitions on the target for
            a mirror that preserves partitions. If the patterns come from a flow, one matching
            pattern is enough, because a flow may name topics that do not exist yet.
    """
    spec, where = run.test.spec, f"{run.test.metadata.name}: spec.audit.topics"
    assert spec.audit is not None
    chosen = tuple(map(re.compile, spec.audit.topics or ()))
    excluded = tuple(map(re.compile, spec.audit.exclude))

    def is_chosen(name: str) -> bool:
        return (
            not is_internal(name)
            and name != HEARTBEATS
            and any(pattern.fullmatch(name) for pattern in chosen)
            and not any(pattern.fullmatch(name) for pattern in excluded)
        )

    alias, names = run.source.alias, _names(run)
    copies = {name: names.copy_of(name) for name in source if is_chosen(name)}
    for name in target.keys() - {*copies.values(), run.changes.on_record_error.dead_letter_topic}:
        original = names.original_of(name)
        if original is not None and is_chosen(original) and original not in source:
            copies[original] = name
    known = {*source, *copies}
    unmatched = [pattern for pattern in chosen if not any(map(pattern.fullmatch, known))]
    if not copies or (unmatched and run.flow is None):
        patterns = ", ".join(pattern.pattern for pattern in unmatched or chosen)
        raise InvalidSpec(
            f"{where}: no topic of {alias} matches {patterns}: correct the patterns, or check that "
            "the user of headrace has the permission to describe the topics"
        )
    for name, copy in sorted(copies.items()):
        here, there = source.get(name, 0), target.get(copy, 0)
        if spec.partitioning is Partitioning.PRESERVED and 0 < there < here:
            raise InvalidSpec(
                f"{where}: topic {name} has {here} partitions on {alias}, and its copy {copy} has "
                f"{there} on {run.target.alias}: partitions are not preserved; set "
                "spec.partitioning to ByKey or Any, or add partitions to the copy"
            )
    return tuple(
        AuditedTopic(
            source=name,
            target=copy,
            source_partitions=source.get(name, 0),
            target_partitions=target.get(copy, 0),
        )
        for name, copy in sorted(copies.items())
    )


class _Names(NamedTuple):
    """Names of topics on both clusters."""

    copy_of: Callable[[str], str]
    original_of: Callable[[str], str | None]
    """Return the source name of a target topic, or None if it is no copy."""


def _names(run: MirrorTestRun) -> _Names:
    template, alias = run.test.spec.target_topic, run.source.alias
    if (policy := run.changes.replication_policy) is not None:
        of_flow = policy_for(policy, alias)
        return _Names(of_flow.target_topic, of_flow.source_topic)
    origin = _origins(template, alias)

    def original_of(name: str) -> str | None:
        found = origin.fullmatch(name)
        return found and found["topic"]

    return _Names(lambda name: template.format(source=alias, topic=name), original_of)


def _origins(template: str, alias: str) -> re.Pattern[str]:
    """Return a pattern that matches target topic names. Its group ``topic`` is the source name."""
    first, *others = template.replace("{source}", alias).split("{topic}")
    rest = "(?P=topic)".join(map(re.escape, others))
    return re.compile(f"{re.escape(first)}(?P<topic>.+){rest}")
