"""A driver's metrics of its units: what its Worker would report, nothing else."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.api import (
    ConditionStatus,
    ConditionType,
    ReplicationTaskStatus,
    TaskPhase,
    TaskType,
)
from headrace.connect import UnitFigures
from headrace.driver.copying_metrics import COPYING_METRICS, TASK, copying_samples
from headrace.telemetry import Described, Sample

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
    "1 while the condition (DataLossDetected, ForeignWriter, RecordsLeftOut, PartitionContested, "
    "TransactionHanging, TombstonesAtRisk, RecordsMayRepeat, ProgressNotStored, "
    "VerificationFailed) of a source task is True, else 0; of the source "
    "connector DataLossDetected, of topics that were deleted, RequirementsMissing, "
    "TopicDeletion, and TopicConfigsRefused.",
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
    "records are read again), None (no checkpoint: no pair of offsets is as old).",
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
_CONDITIONS = (
    ConditionType.DATA_LOSS_DETECTED,
    ConditionType.FOREIGN_WRITER,
    ConditionType.RECORDS_LEFT_OUT,
    ConditionType.PARTITION_CONTESTED,
    ConditionType.TRANSACTION_HANGING,
    ConditionType.TOMBSTONES_AT_RISK,
    ConditionType.RECORDS_MAY_REPEAT,
    ConditionType.PROGRESS_NOT_STORED,
    ConditionType.VERIFICATION_FAILED,
)
_OF_CONNECTORS = (
    ConditionType.DATA_LOSS_DETECTED,
    ConditionType.REQUIREMENTS_MISSING,
    ConditionType.TOPIC_DELETION,
    ConditionType.TOPIC_CONFIGS_REFUSED,
)


class DriverCollector(Collector):
    """The units of one flow on one driver."""

    def __init__(
        self, namespace: str, flow: str, figures: Callable[[], Iterable[UnitFigures]]
    ) -> None:
        self._labels = (namespace, flow)
        self._figures = figures

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """See ``Collector``."""
        families = {metric: metric.family() for metric in METRICS}
        for metric, labels, value in unit_samples(*self._labels, self._figures()):
            families[metric].add_metric(labels, value)
        yield from families.values()


def unit_samples(namespace: str, flow: str, figures: Iterable[UnitFigures]) -> Iterator[Sample]:
    """What is measured of units; the labels are those that ``METRICS`` name."""
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
        yield from _of_losses(status, _CONDITIONS)
    elif unit.id.type == TaskType.SOURCE_CONNECTOR:
        yield from _of_losses(status, _OF_CONNECTORS)


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
