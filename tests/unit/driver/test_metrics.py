"""Metrics of a driver at a scrape, for given reports of its units."""

from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headrace.api import (
    Condition,
    ConditionStatus,
    ConditionType,
    Lag,
    LossAction,
    LossCause,
    LostOffsets,
    Reason,
    ReplicationTaskStatus,
    TaskPhase,
    TaskType,
    TopicPartitions,
)
from headrace.assign import TaskId
from headrace.connect import CommitCounts, UnitFigures
from headrace.datapath import CopiedCounts
from headrace.driver.metrics import METRICS, DriverCollector

Samples = dict[tuple[str, ...], float]
SOURCE_TASK = ("orders-source-task-3", "SourceTask")


def scrape(*units: UnitFigures) -> dict[str, Samples]:
    """Return values by the metric's name, then by its labels in the order of its description."""
    registry = CollectorRegistry()
    registry.register(DriverCollector("shop", "orders", lambda: units))
    described = {metric.name: metric for metric in METRICS}
    found: dict[str, Samples] = {name: {} for name in described}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            metric = described[sample.name]
            assert (family.type, family.documentation) == (metric.type, metric.help)
            assert sample.labels.keys() == set(metric.labels)
            assert (sample.labels["namespace"], sample.labels["flow"]) == ("shop", "orders")
            found[sample.name][tuple(sample.labels[label] for label in metric.labels[2:])] = (
                sample.value
            )
    return found


def source_task(**status: object) -> UnitFigures:
    return UnitFigures(
        TaskId("orders", TaskType.SOURCE_TASK, 3),
        ReplicationTaskStatus(phase=TaskPhase.RUNNING).model_copy(update=status),
        copied=CopiedCounts(
            records=12,
            bytes=3456,
            filtered=5,
            skipped=3,
            dead_lettered=4,
            batches_copied=6,
            bytes_copied=6_000,
            batches_rebuilt=5,
            bytes_rebuilt=500,
            rebuilt={"Holes": 4, "LogAppendTime": 1},
            rebuilt_bytes={"Holes": 450, "LogAppendTime": 50},
            damaged=6,
            filled=9,
            verified={"Same": 8, "NotRead": 1},
        ),
        commits=CommitCounts(succeeded=7, failed=1, last_at_s=1_700_000_000.5),
        bandwidth_waited_s=1.5,
        taken=3,
        restarts=2,
    )


def heartbeat(**beats: float) -> UnitFigures:
    status = ReplicationTaskStatus(phase=TaskPhase.RUNNING)
    return UnitFigures(TaskId("orders", TaskType.HEARTBEAT_TASK, 0), status, beats=beats)


def checkpoint_task() -> UnitFigures:
    return UnitFigures(
        TaskId("orders", TaskType.CHECKPOINT_TASK, 0),
        ReplicationTaskStatus(phase=TaskPhase.RUNNING),
        groups={"billing": 17, "audit": 0},
        translations={"Exact": 3, "None": 1},
    )


def test_a_checkpoint_task_has_what_its_groups_would_read_again() -> None:
    found = scrape(checkpoint_task())
    task = ("orders-checkpoint-task-0", "CheckpointTask")
    assert found["headrace_group_uncheckpointed_offsets"] == {
        (*task, "billing"): 17,
        (*task, "audit"): 0,
    }
    assert found["headrace_task_group_offsets"] == {(*task, "Exact"): 3, (*task, "None"): 1}


def test_a_task_that_copies_says_how_far_it_is() -> None:
    found = scrape(
        source_task(
            lag=Lag(records=70, seconds=5),
            partitions=(TopicPartitions(topic="a", partitions="0-3"),),
        )
    )
    figures = {
        name.removeprefix("headrace_task_"): samples[SOURCE_TASK]
        for name, samples in found.items()
        if SOURCE_TASK in samples
    }
    assert figures == {
        "lag_records": 70,
        "lag_seconds": 5,
        "copied_records_total": 12,
        "copied_bytes_total": 3456,
        "filtered_records_total": 5,
        "damaged_answers_total": 6,
        "filled_offsets_total": 9,
        "records_skipped_total": 3,
        "records_dead_lettered_total": 4,
        "commit_timestamp_seconds": 1_700_000_000.5,
        "partitions_taken_total": 3,
        "bandwidth_wait_seconds_total": 1.5,
        "partitions": 4,
        "restarts_total": 2,
    }


def test_commits_count_by_outcome() -> None:
    commits = scrape(source_task())["headrace_task_commits_total"]
    assert commits == {(*SOURCE_TASK, "Success"): 7, (*SOURCE_TASK, "Failure"): 1}


def test_batches_count_by_their_path_and_why_they_are_rebuilt() -> None:
    scraped = scrape(source_task())
    batches = scraped["headrace_task_batches_total"]
    assert batches == {(*SOURCE_TASK, "copied"): 6, (*SOURCE_TASK, "rebuilt"): 5}
    sizes = scraped["headrace_task_batch_bytes_total"]
    assert sizes == {(*SOURCE_TASK, "copied"): 6_000, (*SOURCE_TASK, "rebuilt"): 500}
    reasons = scraped["headrace_task_rebuilt_batches_total"]
    assert reasons == {(*SOURCE_TASK, "Holes"): 4, (*SOURCE_TASK, "LogAppendTime"): 1}
    sizes = scraped["headrace_task_rebuilt_batch_bytes_total"]
    assert sizes == {(*SOURCE_TASK, "Holes"): 450, (*SOURCE_TASK, "LogAppendTime"): 50}
    verified = scraped["headrace_task_verified_batches_total"]
    assert verified == {(*SOURCE_TASK, "Same"): 8, (*SOURCE_TASK, "NotRead"): 1}


def test_one_phase_is_1_and_all_others_are_0() -> None:
    phases = scrape(source_task(phase=TaskPhase.FAILED))["headrace_task_phase"]
    assert phases == {(*SOURCE_TASK, phase.value): phase is TaskPhase.FAILED for phase in TaskPhase}


def test_a_lag_that_is_not_known_yet_is_not_said_to_be_none() -> None:
    found = scrape(source_task())
    assert found["headrace_task_lag_records"] == found["headrace_task_lag_seconds"] == {}


def loss(partition: int, last: int | None) -> LostOffsets:
    return LostOffsets(
        topic="orders",
        partition=partition,
        cause=LossCause.SOURCE_TRUNCATED,
        first_offset=10,
        last_offset=last,
        action=LossAction.STOPPED,
        time=datetime.now(UTC),
    )


def test_lost_offsets_count_by_cause_and_by_what_the_flow_did() -> None:
    found = scrape(source_task(losses=(loss(0, 19), loss(1, 10), loss(2, None))))
    labels = (*SOURCE_TASK, "SourceTruncated", "Stopped")
    assert found["headrace_task_lost_offsets"] == {labels: 11}


def test_conditions_count_when_they_are_true() -> None:
    def condition(type: ConditionType, status: ConditionStatus) -> Condition:
        return Condition(type=type, status=status, reason=Reason.DATA_LOST)

    found = scrape(
        source_task(
            conditions=(
                condition(ConditionType.CAUGHT_UP, ConditionStatus.TRUE),
                condition(ConditionType.DATA_LOSS_DETECTED, ConditionStatus.TRUE),
                condition(ConditionType.FOREIGN_WRITER, ConditionStatus.FALSE),
            )
        )
    )["headrace_task_condition"]
    assert found == {
        (*SOURCE_TASK, "DataLossDetected"): 1,
        (*SOURCE_TASK, "ForeignWriter"): 0,
        (*SOURCE_TASK, "RecordsLeftOut"): 0,
        (*SOURCE_TASK, "PartitionContested"): 0,
        (*SOURCE_TASK, "TransactionHanging"): 0,
        (*SOURCE_TASK, "TombstonesAtRisk"): 0,
        (*SOURCE_TASK, "RecordsMayRepeat"): 0,
        (*SOURCE_TASK, "ProgressNotStored"): 0,
        (*SOURCE_TASK, "VerificationFailed"): 0,
        (*SOURCE_TASK, "PartitionsPaused"): 0,
        (*SOURCE_TASK, "BandwidthUsedUp"): 0,
    }


def test_heartbeats_have_the_time_of_each_side_and_nothing_that_only_copies_have() -> None:
    found = scrape(heartbeat(west=1_700_000_000.25, east=1_700_000_001.5))
    task = ("orders-heartbeat-task-0", "HeartbeatTask")
    assert found.pop("headrace_heartbeat_timestamp_seconds") == {
        (*task, "west"): 1_700_000_000.25,
        (*task, "east"): 1_700_000_001.5,
    }
    series = {name for name, samples in found.items() if samples}
    assert series == {"headrace_task_phase", "headrace_task_restarts_total"}


def test_a_driver_without_units_says_nothing_of_any() -> None:
    assert not any(scrape().values())


def test_every_metric_that_is_described_is_served() -> None:
    found = scrape(
        source_task(lag=Lag(records=0, seconds=0), losses=(loss(0, 1),)),
        heartbeat(west=1.0),
        checkpoint_task(),
    )
    assert [name for name, samples in found.items() if not samples] == []
