"""What ``mover: Auto`` is."""

from typing import Any

import pytest

from headrace.api import ClusterAccess, Mover, Reason, ReplicationFlow
from headrace.errors import Retriable, Unreachable
from headrace.kafka.wire import UnsupportedBroker
from headrace.movers import Choice, choose
from headrace.movers.batch.requirements import NoTransactions
from headrace.movers.choosing import FOR_RECORDS, CheckClusters


def choice(check: CheckClusters | Exception | None = None, **spec: Any) -> Choice:
    source = {"alias": "east", "bootstrapServers": "a:1", "config": spec.pop("source", {})}
    target = {"alias": "west", "bootstrapServers": "b:1", "config": spec.pop("target", {})}
    smallest = {"source": source, "target": target, "topics": {"include": ["orders"]}}
    flow = ReplicationFlow.model_validate({"metadata": {"name": "f"}, "spec": smallest | spec})

    def answer(*_: ClusterAccess) -> None:
        if isinstance(check, Exception):
            raise check

    return choose(
        flow.spec,
        ClusterAccess(flow.spec.source, "spec.source"),
        ClusterAccess(flow.spec.target, "spec.target"),
        answer,
    )


def test_auto_is_batch() -> None:
    harmless = {"client.id": "x", "linger.ms": "50", "batch.size": "1000"}
    assert choice(source=harmless, target=harmless) == Choice(Mover.BATCH)


@pytest.mark.parametrize("setting", FOR_RECORDS)
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_setting_that_changes_what_is_copied_is_for_records(setting: str, side: str) -> None:
    found = choice(AssertionError("no broker has to be asked"), **{side: {setting: "x"}})
    assert found[:2] == ("Record", "SettingForRecords")
    assert found.why.startswith(f"spec.{side}.config sets {setting}, ")


def test_a_setting_that_both_movers_have_changes_nothing() -> None:
    config = {"broker.address.family": "v4", "client.id": "me"}
    assert choice(None, source=config, target=config) == Choice(Mover.BATCH)


def test_broker_that_is_too_old_is_named() -> None:
    error = UnsupportedBroker("a:1 is too old")
    assert choice(error) == Choice(Mover.RECORD, Reason.BROKER_TOO_OLD, str(error))
    with pytest.raises(UnsupportedBroker):
        choice(error, mover="Batch")


@pytest.mark.parametrize("mover", [Mover.AUTO, Mover.BATCH])
def test_target_without_coordinator_has_batches_without_fences(mover: Mover) -> None:
    error = NoTransactions("west has no transaction coordinator")
    assert choice(error, mover=mover) == Choice(Mover.BATCH, fences_impossible=str(error))


def test_clusters_that_do_not_answer_decide_nothing() -> None:
    with pytest.raises(Retriable):
        choice(Unreachable("no broker of west answers"))


@pytest.mark.parametrize("mover", [Mover.RECORD, Mover.BATCH])
def test_what_is_asked_for_is_used(mover: Mover) -> None:
    config = {"compression.type": "zstd"}
    assert choice(mover=mover, target=config) == Choice(mover)


def test_a_record_filter_does_not_need_the_record_mover() -> None:
    wanted = {"headers": {"exclude": [{"name": "test"}]}}
    assert choice(recordFilter=wanted) == Choice(Mover.BATCH)
    assert choice(mover="Batch", recordFilter=wanted) == Choice(Mover.BATCH)
