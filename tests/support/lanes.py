"""Lanes between two clusters of a sandbox."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from support.flows import spec
from support.patience import WITHIN_S
from support.records import unique

from headrace.api import ClusterAccess, TopicPartition
from headrace.api.flow import BatchVerification
from headrace.assign import TaskId
from headrace.datapath import BatchMover, CopiedCounts, CopyFrom, Lane, Mover
from headrace.errors import HeadraceError
from headrace.kafka import Admin, Position
from headrace.sandbox import SandboxCluster

TASK = TaskId("orders", "SourceTask", 0)


def partitions(topic: str, count: int) -> list[TopicPartition]:
    """Return all partitions of a topic."""
    return [TopicPartition(topic, number) for number in range(count)]


@contextmanager
def lane_of(mover: Mover) -> Iterator[tuple[Lane, CopiedCounts, list[str]]]:
    """Yield a lane, its counts of copied records, and its reports."""
    copied, reported = CopiedCounts(), list[str]()
    lane = mover.lane(TASK, reported.append, copied)
    try:
        yield lane, copied, reported
    finally:
        lane.close()


def batch_mover(
    east: SandboxCluster,
    west: SandboxCluster,
    prefix: str = "east",
    verification: BatchVerification = BatchVerification.FULL,
    *,
    exactly_once: bool = False,
) -> BatchMover:
    """Return a mover that copies ``orders`` to ``east.orders``, and verifies all its copies."""
    return BatchMover(
        spec(east),
        spec(west),
        lambda topic: f"{prefix}.{topic}",
        verification=lambda: verification,
        exactly_once=exactly_once,
    )


def run_until_caught_up(
    lane: Lane,
    source: ClusterAccess,
    at: list[TopicPartition],
    wait_until: Callable[..., Any],
) -> None:
    """Run a lane until all records that the source holds now are acknowledged."""
    ends = Admin(source).offsets(at, Position.LAST_STABLE)

    def behind() -> dict[TopicPartition, Any]:
        lane.run_once()
        assert lane.problems() == []
        state = lane.state()
        return {one: state[one] for one in at if state[one].acknowledged < ends[one]}

    wait_until(behind, until=lambda left: not left)


def copy_in_transactions(
    mover: Mover,
    source: ClusterAccess,
    at: list[TopicPartition],
    wait_until: Callable[..., Any],
) -> CopiedCounts:
    """Copy all records that the source holds now by one lane, without progress."""
    assert mover.fencing is not None
    name = unique("headrace-once")
    writer = mover.fencing.identify(name)
    ends = Admin(source).offsets(at, Position.LAST_STABLE)
    with lane_of(mover) as (lane, copied, _):
        lane.open({one: CopyFrom(0, -1, writer=writer) for one in at})
        assert lane.transactions is not None
        transactions = lane.transactions

        def behind() -> dict[TopicPartition, Any]:
            lane.run_once()
            assert lane.problems() == []
            state = lane.state()
            left = {one: state[one] for one in at if state[one].acknowledged < ends[one]}
            if left and transactions.uncommitted:
                wait_until(transactions.cut, until=lambda cut: cut is not None)
                outcomes: list[HeadraceError | None] = []
                transactions.commit({}, outcomes.append)
                wait_until(lambda: outcomes)
                assert outcomes == [None]
            return left

        wait_until(behind, until=lambda left: not left)
        assert lane.in_flight == 0
        lane.settle(WITHIN_S)
    # A coordinator answers before the markers are written; it names no owner before they are.
    mover.fencing.identify(name)
    return copied


def transactional(cluster: ClusterAccess, name: str) -> Producer:
    """Another client's producer with this transactional id."""
    return Producer(
        {
            "bootstrap.servers": cluster.spec.bootstrap_servers,
            "transactional.id": name,
            "transaction.timeout.ms": 900_000,
            "partitioner": "murmur2",
        }
    )
