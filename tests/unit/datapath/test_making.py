"""Selection of a flow's mover."""

from typing import Any

import pytest

from headrace.api import ClusterAccess, ReplicationFlow
from headrace.datapath import BatchMover, PreservedMover, TokenBucket
from headrace.datapath.clients import make_mover
from headrace.datapath.fence import NoTransactions
from headrace.errors import Fatal, Retriable, Unreachable
from headrace.kafka.wire import UnsupportedBroker


def made(error: Exception | None = None, **spec: Any) -> BatchMover:
    smallest = {
        "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
        "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
        "topics": {"include": ["orders"]},
    }
    flow = ReplicationFlow.model_validate({"metadata": {"name": "f"}, "spec": smallest | spec})

    def check(*_: ClusterAccess) -> None:
        if error is not None:
            raise error

    return make_mover(
        lambda: flow.spec,
        ClusterAccess(flow.spec.source, "spec.source"),
        ClusterAccess(flow.spec.target, "spec.target"),
        lambda topic: topic,
        TokenBucket(),
        check=check,
    )


def test_only_preserved_offsets_have_a_mover_of_their_own() -> None:
    assert type(made()) is BatchMover
    assert type(made(recordFilter={"headers": {"exclude": [{"name": "test"}]}})) is BatchMover
    assert type(made(offsets={"mode": "Preserved"})) is PreservedMover


@pytest.mark.parametrize("offsets", ["Translated", "Preserved"])
def test_target_without_coordinator_gives_no_identity(offsets: str) -> None:
    assert made(offsets={"mode": offsets}).fencing.impossible == ""
    fencing = made(NoTransactions("west has none"), offsets={"mode": offsets}).fencing
    assert fencing.impossible == "west has none"
    with pytest.raises(Fatal, match="west has none"):
        fencing.identify("headrace-f-source-task-0-me-1")
    fencing.end_transactions({"headrace-f-source-task-0-me-1"})


def test_broker_that_is_too_old_is_refused() -> None:
    with pytest.raises(UnsupportedBroker, match="a:1 is too old"):
        made(UnsupportedBroker("a:1 is too old"))


def test_clusters_that_do_not_answer_are_asked_again() -> None:
    with pytest.raises(Retriable):
        made(Unreachable("no broker of west answers"))
