"""A partition of a lane goes through the states of its table, and through no others."""

import pytest

from headrace.api import TopicPartition
from headrace.datapath.lane import CopiedCounts, CopyFrom
from headrace.datapath.lane_state import MAX_BYTES, MIN_BYTES, LaneState
from headrace.datapath.partition import CopyState, OpenPartition
from headrace.datapath.transactions import TransactionStage
from headrace.errors import Fatal

AT, TARGET = TopicPartition("orders", 0), TopicPartition("east.orders", 0)
OTHER = TopicPartition("orders", 1)
START = CopyFrom(0, -1)


@pytest.fixture
def state() -> LaneState:
    state = LaneState(CopiedCounts())
    state.open(AT, TARGET, START)
    return state


@pytest.fixture
def partition(state: LaneState) -> OpenPartition:
    return state.partitions[AT]


def test_a_partition_that_drains_is_paused_only_when_it_is_kept(partition: OpenPartition) -> None:
    seen = []
    for command in (
        partition.drain,
        lambda: partition.pause(paused=True),
        partition.keep,
        lambda: partition.pause(paused=False),
    ):
        command()
        seen.append(partition.state)
    draining = CopyState.DRAINING
    assert seen == [draining, draining, CopyState.PAUSED, CopyState.COPYING]


def test_a_partition_is_not_read_while_its_data_in_flight_use_up_its_share(
    state: LaneState,
) -> None:
    state.open(OTHER, OTHER, START)
    ledger = state.partitions[AT].ledger
    for size, read in ((MAX_BYTES - 1, {AT, OTHER}), (MAX_BYTES, {OTHER}), (0, {AT, OTHER})):
        ledger.bytes_in_flight = size
        assert state.readable([AT, OTHER]) == read
    state.waiting_since_s = {TopicPartition("orders", number): 0.0 for number in range(100)}
    ledger.bytes_in_flight = MIN_BYTES
    assert state.readable([AT, OTHER]) == {OTHER}, "many partitions have smaller shares"


def test_only_a_partition_that_left_or_stopped_is_closed(partition: OpenPartition) -> None:
    with pytest.raises(ValueError, match="cannot go from Copying to Closed"):
        partition.close()
    partition.drain()
    partition.close()
    assert partition.state is CopyState.CLOSED


def test_the_first_problem_is_kept_whatever_follows(state: LaneState) -> None:
    state.stop(AT, Fatal("first"))
    state.stop(AT, Fatal("second"))
    partition = state.partitions[AT]
    for command in (partition.drain, partition.keep):
        command()
        assert partition.state is CopyState.STOPPED
    partition.pause(paused=True)
    assert [str(one.problem.error) for one in state.stopped if one.problem] == ["first"]
    state.forget(AT)
    assert (state.stopped, state.partitions, state.ledgers) == ([], {}, {})


def test_a_partition_that_is_opened_later_is_paused_too(state: LaneState) -> None:
    assert state.pause({AT, OTHER}) == ({state.partitions[AT]}, False)
    state.open(OTHER, TopicPartition("east.orders", 1), START)
    assert state.partitions[OTHER].state is CopyState.PAUSED
    assert not state.readable([AT, OTHER])
    assert state.pause({AT}) == (set(), True)
    assert state.readable([AT, OTHER]) == {OTHER}


def test_a_lost_transaction_does_not_go_on(state: LaneState) -> None:
    state.enter(TransactionStage.CUTTING)
    state.enter(TransactionStage.LOST)
    with pytest.raises(ValueError, match="cannot go from Lost to Copying"):
        state.enter(TransactionStage.COPYING)
