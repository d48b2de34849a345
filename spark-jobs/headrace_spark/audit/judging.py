"""Verdict and report of an audit."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace

from pyspark.sql import SparkSession

from headrace.api import Verdict, audits_topic
from headrace.mirror_test import (
    MAX_AUDITED_TOPICS,
    MAX_EXCLUDED,
    MAX_RANGES,
    MAX_SHARES,
    AuditedPast,
    AuditedTopic,
    AuditOutcome,
    Counts,
    Exclusion,
    FindingShare,
    FindingType,
    MirroredTopic,
    MirrorTestRun,
    Result,
    SchemaCheck,
    TopicAudit,
    allowed_counts,
    audited_topics,
)
from headrace_spark.audit import ranges
from headrace_spark.audit.comparing import Found, Totals, compare
from headrace_spark.audit.differences import RecordDifference
from headrace_spark.audit.examples import examples
from headrace_spark.audit.frontier import read as read_frontier
from headrace_spark.patient_admin import PatientAdmin
from headrace_spark.session import Phases, event, now_ms, session, spark_versions, versions
from headrace_spark.verdict import Objection, checks, few

_WORDS = {  # the most severe first
    FindingType.MISSING: "missing on the target",
    FindingType.REORDERED: "out of order on the target",
    FindingType.CORRUPTED: "changed on the target",
    FindingType.DUPLICATED: "repeated on the target",
    FindingType.ALIEN: "on the target and not on the source",
}
_POLL_S = 0.5
_UNKNOWN = {Exclusion.DELETED_ON_TARGET, Exclusion.UNREAD}
"""Reasons of exclusion that leave unknown whether the records arrived."""


def judged(run: MirrorTestRun, spark: SparkSession | None = None) -> Result:
    """Compare the topics, and return the result of the audit.

    With ``startFrom.mode: LastAudit``, store the new frontier if the verdict is Passed.

    Args:
        run: The run to judge.
        spark: Session to use. If it is None, a session is started and stopped.

    Raises:
        InvalidSpec: No topic matches, or source and target are one cluster.
        GaveUp: The permission to read a topic is missing, the frontier cannot be read, or records
            were deleted before they were compared. Errors of Spark are also raised.
    """
    phases, started_ms = Phases(), now_ms()
    source, target = (PatientAdmin(side) for side in (run.source, run.target))
    source_id = source.cluster_id()
    run.check_clusters(source_id, target.cluster_id())
    with phases.timed("waiting for the copies of new topics"):
        topics = _topics(run, source, target)
    source.check_comparable([topic.source for topic in topics])
    excusing = run.changes.topics_of_refused(run.source.alias)
    target.check_comparable([topic.target for topic in topics], excusing)
    audit = run.test.spec.audit
    assert audit is not None
    frontier = read_frontier(run, source_id, topics) if audit.is_incremental else None
    known = frontier.known if frontier else None
    with phases.timed("waiting until the target has caught up with the source"):
        fixed = ranges.fix(run, topics, lambda: event("waiting"), known or {})
    began_s = time.monotonic()
    started = nullcontext(spark) if spark else session("audit", run.name, fixed.records)
    with started as used_spark:
        phases.add("starting Spark", time.monotonic() - began_s)
        event("reading")
        found = compare(used_spark, run, topics, fixed, phases, known=known)
        used = spark_versions(used_spark)
    counts = counts_of(found)
    verdict, reasons, warnings = judge(run, topics, found, counts)
    if verdict is Verdict.PASSED and frontier is not None and found.past is not None:
        past = found.past.model_copy(update={"is_stored": frontier.store(found.audited)})
        found = replace(found, past=past)
        verdict, reasons, warnings = judge(run, topics, found, counts)
    return Result(
        verdict=verdict,
        reasons=reasons,
        warnings=warnings,
        checks=checks(objections(run, topics, found, counts)),
        run=run.name,
        flow=run.flow,
        test=run.test,
        topics=tuple(
            MirroredTopic(
                source=topic.source,
                target=topic.target,
                partitions=topic.source_partitions,
                acknowledged=found.source.get(topic.source, Totals()).records,
            )
            for topic in topics
        ),
        counts=counts,
        audit=_outcome(run, topics, found),
        differences=examples(run, topics, found.differences),
        shares=_shares(topics, found.differences),
        started_ms=started_ms,
        read_until_ms=started_ms,
        judged_ms=now_ms(),
        phases=phases.ended,
        versions=versions() | used,
    )


def _topics(
    run: MirrorTestRun, source: PatientAdmin, target: PatientAdmin
) -> tuple[AuditedTopic, ...]:
    """Return the topics to compare. Wait up to ``settleSeconds`` until the target has them all.

    A mirror discovers new topics of the source only at intervals.
    """
    deadline = time.monotonic() + run.test.spec.settle_seconds
    while True:
        topics = audited_topics(run, source.topics(), target.topics())
        if all(topic.target_partitions for topic in topics) or time.monotonic() >= deadline:
            return topics
        event("waiting")
        time.sleep(_POLL_S)


def counts_of(found: Found) -> Counts:
    """Return the number of records by type of difference.

    ``acknowledged`` is the number of source records that the target must have.
    """
    by_kind: Counter[FindingType] = Counter()
    for one in found.differences:
        by_kind[one.kind] += one.records
    read = sum(totals.records for totals in found.source.values())
    return Counts(
        acknowledged=read - found.after_frontier - found.refused,
        **{kind.field: count for kind, count in by_kind.items()},
    )


def judge(
    run: MirrorTestRun, topics: Iterable[AuditedTopic], found: Found, counts: Counts
) -> tuple[Verdict, tuple[str, ...], tuple[str, ...]]:
    """Return the verdict, its reasons and the warnings. The most severe reasons come first."""
    by_check = objections(run, topics, found, counts)

    def sentences(verdict: Verdict) -> tuple[str, ...]:
        return tuple(o.sentence for some in by_check.values() for o in some if o.verdict is verdict)

    failed, unclear = sentences(Verdict.FAILED), sentences(Verdict.INCONCLUSIVE)
    if failed or unclear:
        verdict = Verdict.FAILED if failed else Verdict.INCONCLUSIVE
        return verdict, (*failed, *unclear), sentences(Verdict.PASSED)
    count = len(found.source)
    names = "1 topic" if count == 1 else f"{count:,} topics"
    new = " new" if _continued(found) else ""
    passed = (
        f"all {counts.acknowledged:,}{new} records of {names} are on the target, within every "
        "budget"
        if counts.acknowledged
        else "the source has no new records since the last audit"
    )
    return Verdict.PASSED, (passed,), sentences(Verdict.PASSED)


def objections(
    run: MirrorTestRun, topics: Iterable[AuditedTopic], found: Found, counts: Counts
) -> dict[str, tuple[Objection, ...]]:
    """Return the objections of each check of an audit, by the name of the check."""
    return {
        "topics": tuple(_absent(run, topics, found)),
        **{kind.value: tuple(_against_budget(run, found, counts, kind)) for kind in _WORDS},
        "evidence": tuple(_without_evidence(run, found, counts)),
        **({"schemas": tuple(_about_schemas(run, found.schemas))} if found.schemas else {}),
        **({"past": tuple(_about_past(run, found.past))} if found.past else {}),
    }


def _absent(
    run: MirrorTestRun, topics: Iterable[AuditedTopic], found: Found
) -> Iterator[Objection]:
    """Yield an objection for each topic that does not exist on one side."""
    for topic in topics:
        if not topic.target_partitions:
            count = found.source.get(topic.source, Totals()).records
            yield Objection(
                Verdict.FAILED if count else Verdict.INCONCLUSIVE,
                f"topic {topic.target} does not exist on {run.target.alias}: "
                f"{_are(count)} missing there",
            )
        elif not topic.source_partitions:
            count = found.target.get(topic.source, Totals()).records
            yield Objection(
                Verdict.PASSED,
                f"topic {topic.source} does not exist on {run.source.alias}, and its copy "
                f"{topic.target} has {count:,} records",
            )


def _against_budget(
    run: MirrorTestRun, found: Found, counts: Counts, kind: FindingType
) -> Iterator[Objection]:
    most, words = allowed_counts(run.test.spec.budgets)[kind], _WORDS[kind]
    count = getattr(counts, kind.field)
    if count and (most is None or count <= most):
        yield Objection(Verdict.PASSED, f"{_are(count)} {words} (allowed)")
    elif count:
        first = next(one for one in found.differences if one.kind is kind)
        yield Objection(
            Verdict.FAILED, f"{_are(count)} {words} (allowed: {most:,}){_for_example(first)}"
        )


def _without_evidence(run: MirrorTestRun, found: Found, counts: Counts) -> Iterator[Objection]:
    by_reason: dict[Exclusion, list[str]] = defaultdict(list)
    sums: Counter[Exclusion] = Counter()
    for one in found.excluded:
        offsets = "" if one.first is None else f" offsets {one.first} to {one.last}"
        partition = "" if one.partition is None else f"-{one.partition}"
        by_reason[one.reason].append(f"{one.topic}{partition}{offsets} of {one.cluster}")
        sums[one.reason] += one.count
    for reason, places in by_reason.items():
        yield Objection(
            Verdict.INCONCLUSIVE if reason in _UNKNOWN else Verdict.PASSED,
            f"{sums[reason]:,} records were not compared ({reason}): {few(tuple(places))}",
        )
    if not counts.acknowledged and not _continued(found):
        yield Objection(
            Verdict.INCONCLUSIVE,
            f"the topics have no records on {run.source.alias}: nothing was compared",
        )
    if found.stamped:
        yield Objection(
            Verdict.PASSED,
            "the target stamps records itself (LogAppendTime), so timestamps were not compared: "
            f"{few(tuple(sorted(found.stamped)))}",
        )
    yield from _about_flow(run)
    if found.lag:
        yield Objection(
            Verdict.PASSED,
            f"the source received {found.lag:,} offsets during the audit: their records may be "
            "missing on the target",
        )


def _about_flow(run: MirrorTestRun) -> Iterator[Objection]:
    """Yield warnings about differences that a flow makes on purpose."""
    changes = run.changes
    fields = [
        field
        for field, value in (
            ("spec.recordFilter", changes.record_filter),
            ("spec.headers", changes.headers),
        )
        if value is not None
    ]
    if fields:
        yield Objection(
            Verdict.PASSED,
            f"the source was compared as flow {run.flow} copies it, with {' and '.join(fields)}",
        )


def _continued(found: Found) -> bool:
    """Return True if the audit continued after an earlier one."""
    return found.past is not None and found.past.since_ms is not None


def _about_schemas(run: MirrorTestRun, checked: SchemaCheck) -> Iterator[Objection]:
    """Yield the objections about records that nobody can decode."""
    audit, most = run.test.spec.audit, run.test.spec.budgets.undecodable
    assert audit is not None
    assert audit.schemas is not None
    if checked.problem is not None:
        yield Objection(
            Verdict.INCONCLUSIVE,
            f"it is unknown whether the records can be decoded: {checked.problem}",
        )
    elif not checked.records:
        yield Objection(
            Verdict.PASSED, "no record on the target has a schema id in Confluent's wire format"
        )
    if count := checked.undecodable:
        first = checked.unknown[0]
        yield Objection(
            Verdict.FAILED if count > most else Verdict.PASSED,
            f"keys and values that nobody can decode: {count:,} on the target have a schema id "
            f"that the registry {audit.schemas.url} does not know (allowed: {most:,}), for example "
            f"id {first.schema_id} in the {first.part.lower()} of {first.topic}-{first.partition} "
            f"offset {first.offset}",
        )


def _about_past(run: MirrorTestRun, past: AuditedPast) -> Iterator[Objection]:
    """Yield the objections about the ranges of earlier audits, and about the new frontier."""
    if past.changed:
        yield Objection(
            Verdict.FAILED,
            "records have changed since an earlier audit compared them: "
            f"{few(tuple(map(str, past.changed)))}",
        )
    if past.is_stored is False:
        yield Objection(
            Verdict.INCONCLUSIVE,
            f"another audit has changed the frontier in topic {audits_topic(run.source.alias)} of "
            f"{run.target.alias} since this audit began: audit again",
        )
    if past.begun_again:
        yield Objection(
            Verdict.PASSED,
            "topics were created again since the last audit, and compared from their first "
            f"record: {few(past.begun_again)}",
        )
    if past.unchecked:
        yield Objection(
            Verdict.PASSED,
            f"{past.unchecked:,} of {past.blocks:,} blocks of earlier audits could not be checked "
            "again: retention, compaction or a new topic may have changed them",
        )


def _are(count: int) -> str:
    return f"{count:,} record is" if count == 1 else f"{count:,} records are"


def _for_example(first: RecordDifference) -> str:
    record = first.record
    side = "target" if first.target else "source"
    what = f" ({first.differs})" if first.differs else ""
    return (
        f", for example {record.topic}-{record.partition} offset {record.offset} of the "
        f"{side}{what}"
    )


def _outcome(run: MirrorTestRun, topics: Iterable[AuditedTopic], found: Found) -> AuditOutcome:
    by_topic: dict[str, Counter[FindingType]] = defaultdict(Counter)
    for one in found.differences:
        by_topic[one.record.topic][one.kind] += one.records
    names = {topic.target: topic.source for topic in topics}
    excluded: Counter[str] = Counter()
    on_source: Counter[str] = Counter()
    for part in found.excluded:
        is_target = part.cluster == run.target.alias
        excluded[names.get(part.topic, part.topic) if is_target else part.topic] += part.count
        # Records that the source deleted during the audit are not among the records that were read.
        if not is_target and part.reason is not Exclusion.DELETED_ON_SOURCE:
            on_source[part.topic] += part.count
    source, nothing = found.source, Totals()
    table = [
        TopicAudit(
            **topic.model_dump(),
            source_records=(read := source.get(topic.source, nothing)).records,
            target_records=found.target.get(topic.source, nothing).records,
            size_bytes=read.size_bytes,
            compared=max(0, read.records - on_source[topic.source]),
            excluded=excluded[topic.source],
            **{kind.field: by_topic[topic.source][kind] for kind in _WORDS},
        )
        for topic in topics
    ]
    table.sort(key=lambda t: (-sum(by_topic[t.source].values()), t.source))
    table, unlisted = _with_ranges(table, found)
    return AuditOutcome(
        topics=tuple(table),
        unlisted_ranges=unlisted,
        excluded=found.excluded[:MAX_EXCLUDED],
        lag=found.lag,
        past=found.past,
        schemas=found.schemas,
    )


def _with_ranges(table: list[TopicAudit], found: Found) -> tuple[list[TopicAudit], int]:
    """Return the listed topics with their ranges, and the number of ranges that are omitted."""
    listed: list[TopicAudit] = []
    left, unlisted = MAX_RANGES, 0
    for topic in table:
        here = found.source_ranges.get(topic.source, ())
        there = found.target_ranges.get(topic.source, ())
        count = len(here) + len(there)
        if len(listed) >= MAX_AUDITED_TOPICS or count > left:
            here, there, unlisted = (), (), unlisted + count
        left -= len(here) + len(there)
        listed.append(topic.model_copy(update={"source_ranges": here, "target_ranges": there}))
    return listed[:MAX_AUDITED_TOPICS], unlisted


def _shares(
    topics: Iterable[AuditedTopic], differences: Iterable[RecordDifference]
) -> tuple[FindingShare, ...]:
    copies = {topic.source: topic.target for topic in topics}
    sums: Counter[tuple[FindingType, str, int, str]] = Counter()
    for one in differences:
        record = one.record
        topic = copies.get(record.topic, record.topic) if one.target else record.topic
        sums[one.kind, topic, record.partition, one.differs] += one.records
    found = [
        FindingShare(kind=kind, topic=topic, partition=partition, differs=differs, count=count)
        for (kind, topic, partition, differs), count in sums.items()
    ]
    found.sort(key=lambda s: (-s.count, s.kind, s.topic, s.partition or 0))
    return tuple(found[:MAX_SHARES])
