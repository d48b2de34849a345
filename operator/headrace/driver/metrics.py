"""Metrics of a driver's units."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.api import (
    ConditionStatus,
    ConditionType,
    ReplicationTaskStatus,
    Reporter,
    TaskPhase,
    TaskType,
    reported_by,
)
from headrace.connect import UnitFigures
from headrace.telemetry import Described, Sample

TASK = ("namespace", "flow", "task", "type")
"""Labels of each metric of a unit."""
_LAG = "as last fetched; of source tasks. Absent while the lag is unknown."

LAG_RECORDS = Described(
    "headrace_task_lag_records",
    "gauge",
    f"Records on the source that the target has not acknowledged, {_LAG}",
    TASK,
)
LAG_S = Described(
    "headrace_task_lag_seconds",
    "gauge",
    f"Age of the oldest record that the target has not acknowledged, {_LAG}",
    TASK,
)
COPIED_RECORDS = Described(
    "headrace_task_copied_records_total",
    "counter",
    "Records that the target has acknowledged, since the task began on this driver.",
    TASK,
)
COPIED_BYTES = Described(
    "headrace_task_copied_bytes_total",
    "counter",
    "Bytes that the target has acknowledged, compressed as they are sent, since the task began on "
    "this driver.",
    TASK,
)
FILTERED = Described(
    "headrace_task_filtered_records_total",
    "counter",
    "Records that were read and not copied, as spec.recordFilter has it, since the task began on "
    "this driver; counted again when they are read again.",
    TASK,
)
BANDWIDTH_WAIT_S = Described(
    "headrace_task_bandwidth_wait_seconds_total",
    "counter",
    "Seconds for which the driver read nothing for the flow, because its part of `spec.bandwidth` "
    "was used up, since it began; the same for each source task of the flow on one driver. A rate "
    "near 1 says that the limit is why lag grows. Only with `spec.bandwidth`.",
    TASK,
)
SKIPPED = Described(
    "headrace_task_records_skipped_total",
    "counter",
    "Records that the target refused and that were skipped (`spec.onRecordError.action: Skip`), "
    "since the task began on this driver.",
    TASK,
)
DEAD_LETTERED = Described(
    "headrace_task_records_dead_lettered_total",
    "counter",
    "Records that the target refused and that were written to "
    "`spec.onRecordError.deadLetterTopic`, since the task began on this driver.",
    TASK,
)
BATCHES = Described(
    "headrace_task_batches_total",
    "counter",
    "Batches that were sent as they are (path copied), or taken apart and sent as new ones (path "
    "rebuilt), since the task began on this driver.",
    (*TASK, "path"),
)
BATCH_BYTES = Described(
    "headrace_task_batch_bytes_total",
    "counter",
    "Bytes of those batches, as fetched, by path.",
    (*TASK, "path"),
)
REBUILT = Described(
    "headrace_task_rebuilt_batches_total",
    "counter",
    "Batches of path rebuilt, by why they were not sent as they are: Holes (of compaction), "
    "LogAppendTime (times of the source's brokers), StartsInside (a start between two of its "
    "records), OldFormat (of Kafka before 0.11), Refused (the target refused a record nearby), "
    "Small (several of few records, which became one).",
    (*TASK, "why"),
)
REBUILT_BYTES = Described(
    "headrace_task_rebuilt_batch_bytes_total",
    "counter",
    "Bytes of those batches, as fetched, by the same.",
    (*TASK, "why"),
)
DAMAGED = Described(
    "headrace_task_damaged_answers_total",
    "counter",
    "Answers of brokers that contradicted themselves or another answer, so that the request was "
    "repeated, since the task began on this driver. The network, a broker's memory or its disk "
    "flips bits.",
    TASK,
)
FILLED = Described(
    "headrace_task_filled_offsets_total",
    "counter",
    "Offsets at which the source has no record for consumers of committed ones, and that were "
    "filled on the target (`spec.offsets.mode: Preserved`), since the task began on this driver.",
    TASK,
)
VERIFIED = Described(
    "headrace_task_verified_batches_total",
    "counter",
    "Batches of path copied, or of several small ones joined by the helper in C, that "
    "`spec.batchVerification` had read back from the target, by what was found: Same, Different "
    "(the partition stops), NotRead (deleted or compacted meanwhile, a missing right, no answer); "
    "and Misjoined, before it was sent (the helper is not used any more).",
    (*TASK, "found"),
)
COMMITS = Described(
    "headrace_task_commits_total",
    "counter",
    "How often the task stored its progress, by outcome: Success, or Failure (refused, or without "
    "an answer in time; it is stored again), since it began on this driver.",
    (*TASK, "outcome"),
)
COMMIT_S = Described(
    "headrace_task_commit_timestamp_seconds",
    "gauge",
    "When the target last acknowledged progress of a source task (Unix time), once it did.",
    TASK,
)
COPYING_METRICS: Sequence[Described] = (
    LAG_RECORDS,
    LAG_S,
    COPIED_RECORDS,
    COPIED_BYTES,
    FILTERED,
    BANDWIDTH_WAIT_S,
    SKIPPED,
    DEAD_LETTERED,
    BATCHES,
    BATCH_BYTES,
    REBUILT,
    REBUILT_BYTES,
    DAMAGED,
    FILLED,
    VERIFIED,
    COMMITS,
    COMMIT_S,
)


def copying_samples(unit: UnitFigures) -> Iterator[Sample]:
    """Yield the samples of a source task.

    The labels are those that ``COPYING_METRICS`` define in addition to ``TASK``.
    """
    if (lag := unit.status.lag) is not None:  # no sample while the lag is unknown
        yield LAG_RECORDS, (), lag.records
        yield LAG_S, (), lag.seconds
    if unit.bandwidth_waited_s is not None:
        yield BANDWIDTH_WAIT_S, (), unit.bandwidth_waited_s
    if unit.copied is not None:
        yield COPIED_RECORDS, (), unit.copied.records
        yield COPIED_BYTES, (), unit.copied.bytes
        yield FILTERED, (), unit.copied.filtered
        yield SKIPPED, (), unit.copied.skipped
        yield DEAD_LETTERED, (), unit.copied.dead_lettered
        yield DAMAGED, (), unit.copied.damaged
        yield FILLED, (), unit.copied.filled
        yield BATCHES, ("copied",), unit.copied.batches_copied
        yield BATCHES, ("rebuilt",), unit.copied.batches_rebuilt
        yield BATCH_BYTES, ("copied",), unit.copied.bytes_copied
        yield BATCH_BYTES, ("rebuilt",), unit.copied.bytes_rebuilt
        for why, batches in unit.copied.rebuilt.copy().items():  # another thread changes the dict
            yield REBUILT, (why,), batches
        for why, size in unit.copied.rebuilt_bytes.copy().items():
            yield REBUILT_BYTES, (why,), size
        for found, batches in unit.copied.verified.copy().items():
            yield VERIFIED, (found,), batches
    if unit.commits is not None:
        yield COMMITS, ("Success",), unit.commits.succeeded
        yield COMMITS, ("Failure",), unit.commits.failed
        if unit.commits.last_at_s is not None:
            yield COMMIT_S, (), unit.commits.last_at_s


TAKEN = Described(
    "headrace_task_partitions_taken_total",
    "counter",
    "How often another flow, or another run of this one, took a partition that this source task "
    "held, since the task came to this driver.",
    TASK,
)
PARTITIONS = Described(
    "headrace_task_partitions", "gauge", "Partitions that a source task holds.", TASK
)
RESTARTS = Described(
    "headrace_task_restarts_total",
    "counter",
    "Restarts after errors on this driver, since its process began.",
    TASK,
)
PHASE = Described(
    "headrace_task_phase",
    "gauge",
    "1 for the phase that the unit is in, 0 for all others.",
    (*TASK, "phase"),
)
CONDITION = Described(
    "headrace_task_condition",
    "gauge",
    "1 while the condition is True, else 0. Conditions of a source task: "
    f"{', '.join(reported_by(Reporter.TASK))}. Conditions of a source connector: "
    f"{', '.join(reported_by(Reporter.CONNECTOR))}. Condition of a source watch: "
    f"{', '.join(reported_by(Reporter.WATCH))}.",
    (*TASK, "condition"),
)
LOST_OFFSETS = Described(
    "headrace_task_lost_offsets",
    "gauge",
    "Offsets in the ranges that the unit's status.losses lists.",
    (*TASK, "cause", "action"),
)
GROUP_UNREAD = Described(
    "headrace_group_uncheckpointed_offsets",
    "gauge",
    "Source offsets that a consumer group had committed behind its checkpoints when it was read "
    "last, over its partitions: so much it reads again after a fail-over without the source. Of "
    "the 50 groups with most, of each checkpoint task. No group skips a record.",
    (*TASK, "group"),
)
TRANSLATIONS = Described(
    "headrace_task_group_offsets",
    "gauge",
    "Committed offsets of the groups of a checkpoint task, by how they were translated last: Exact "
    "(the very next record), Ahead (not copied yet: the end of the copy), Conservative (some "
    "records are read again), None (no checkpoint: no offset sync up to them is known).",
    (*TASK, "translation"),
)
BEAT_S = Described(
    "headrace_heartbeat_timestamp_seconds",
    "gauge",
    "When a cluster, named by its alias, acknowledged the last heartbeat (Unix time); before the "
    "first, when the task began.",
    (*TASK, "cluster"),
)
METRICS: Sequence[Described] = (
    *COPYING_METRICS,
    TAKEN,
    PARTITIONS,
    RESTARTS,
    PHASE,
    CONDITION,
    LOST_OFFSETS,
    GROUP_UNREAD,
    TRANSLATIONS,
    BEAT_S,
)


class DriverCollector(Collector):
    """Collects the metrics of one flow's units on one driver."""

    def __init__(
        self, namespace: str, flow: str, figures: Callable[[], Iterable[UnitFigures]]
    ) -> None:
        self._labels = (namespace, flow)
        self._figures = figures

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        families = {metric: metric.family() for metric in METRICS}
        for metric, labels, value in unit_samples(*self._labels, self._figures()):
            families[metric].add_metric(labels, value)
        yield from families.values()


def unit_samples(namespace: str, flow: str, figures: Iterable[UnitFigures]) -> Iterator[Sample]:
    """Yield the samples of units, with the labels that ``METRICS`` define."""
    for unit in figures:
        labels = (namespace, flow, unit.id.name, unit.id.type)
        for metric, more, value in _samples(unit):
            yield metric, (*labels, *more), value


def _samples(unit: UnitFigures) -> Iterator[Sample]:
    status = unit.status
    yield RESTARTS, (), unit.restarts
    for phase in TaskPhase:
        yield PHASE, (phase.value,), status.phase is phase
    for group, offsets in unit.groups.items():
        yield GROUP_UNREAD, (group,), offsets
    for translation, count in unit.translations.items():
        yield TRANSLATIONS, (translation,), count
    for cluster, at_s in unit.beats.items():
        yield BEAT_S, (cluster,), at_s
    if unit.id.type == TaskType.SOURCE_TASK:
        yield from copying_samples(unit)
        yield TAKEN, (), unit.taken
        yield PARTITIONS, (), sum(len(topic.numbers) for topic in status.partitions)
        yield from _of_losses(status, reported_by(Reporter.TASK))
    elif unit.id.type == TaskType.SOURCE_CONNECTOR:
        yield from _of_losses(status, reported_by(Reporter.CONNECTOR))
    elif unit.id.type == TaskType.SOURCE_WATCH:
        yield from _of_losses(status, reported_by(Reporter.WATCH))


def _of_losses(
    status: ReplicationTaskStatus, conditions: Iterable[ConditionType]
) -> Iterator[Sample]:
    true = {one.type for one in status.conditions if one.status is ConditionStatus.TRUE}
    lost = Counter[tuple[str, str]]()
    for loss in status.losses:
        last = loss.first_offset - 1 if loss.last_offset is None else loss.last_offset
        lost[loss.cause, loss.action] += last + 1 - loss.first_offset
    for labels, offsets in lost.items():
        yield LOST_OFFSETS, labels, offsets
    for condition in conditions:
        yield CONDITION, (condition.value,), condition in true
