"""A lane's transactions at their coordinator: requests that are repeated, awaited or abandoned."""

from collections.abc import Callable, Iterator
from threading import Lock
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kio.schema.add_partitions_to_txn.v3 import response as additions
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import response as offsets
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64
from support.appending import Appending
from support.fake_broker import (
    ACCEPTED,
    END_TXN,
    FIND_COORDINATOR,
    NOT_THROTTLED,
    FakeBroker,
    Raw,
    Serve,
    coordinated_by,
    metadata_of,
)
from support.patience import WITHIN_S
from support.wire_kafka import WireCluster

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.datapath import CopiedCounts, transactions
from headrace.datapath.commit import LaneTransactions
from headrace.datapath.delivery import LaneParts
from headrace.datapath.lane_state import LaneState
from headrace.datapath.transactional import InTransactions
from headrace.datapath.transactions import TransactionStage
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import ClusterClient, EventLoop, start
from headrace.replication import OwnerProducer

LIST_OFFSETS, METADATA, ADD_PARTITIONS = 2, 3, 24
AT = TopicPartition("orders", 0)
WRITER = OwnerProducer("tx", 12, 3)
Code = ErrorCode


class Coordinator:
    """Single broker with scripted answers.

    ``ends`` are its answers to EndTxn, and ``stable`` its last stable offsets of the partition. The
    last answer of each list is repeated.
    """

    def __init__(self, serve: Serve) -> None:
        self.ends: list[Any] = [Code.none]
        self.stable = [0]
        self.broker: FakeBroker = serve(
            {
                METADATA: lambda _: metadata_of({1: self.broker.port}, {0: (1, 5)}),
                FIND_COORDINATOR: lambda _: coordinated_by({"tx": 1}),
                ADD_PARTITIONS: lambda _: _added(),
                LIST_OFFSETS: lambda _: _listed(_next(self.stable)),
                END_TXN: lambda _: self._ended(),
            }
        )

    def _ended(self) -> Any:
        answer = _next(self.ends)
        if isinstance(answer, Raw):
            return answer
        return type(ACCEPTED)(throttle_time=NOT_THROTTLED, error_code=answer)


def _next(answers: list[Any]) -> Any:
    return answers.pop(0) if len(answers) > 1 else answers[0]


def _added() -> Any:
    partition = additions.AddPartitionsToTxnPartitionResult(
        partition_index=i32(0), partition_error_code=Code.none
    )
    topic = additions.AddPartitionsToTxnTopicResult(
        name=TopicName("orders"), results_by_partition=(partition,)
    )
    return additions.AddPartitionsToTxnResponse(
        throttle_time=NOT_THROTTLED, results_by_topic_v3_and_below=(topic,)
    )


def _listed(offset: int) -> Any:
    partition = offsets.ListOffsetsPartitionResponse(
        partition_index=i32(0),
        error_code=Code.none,
        timestamp=i64(-1),
        offset=i64(offset),
        leader_epoch=i32(5),
    )
    topic = offsets.ListOffsetsTopicResponse(name=TopicName("orders"), partitions=(partition,))
    return offsets.ListOffsetsResponse(throttle_time=NOT_THROTTLED, topics=(topic,))


class Scene:
    def __init__(self, loop: EventLoop, coordinator: Coordinator) -> None:
        self.admitted: list[set[TopicPartition]] = []
        self.broken: list[HeadraceError] = []
        spec = ClusterSpec(alias="west", bootstrap_servers=f"127.0.0.1:{coordinator.broker.port}")
        self.loop, self.cluster = loop, ClusterClient(loop, ClusterAccess(spec))
        self.transactions = LaneTransactions(
            self.cluster, WRITER, lambda ats: self.admitted.append(set(ats)), self.broken.append
        )

    def until(self, condition: Callable[[], object]) -> None:
        deadline_s = self.loop.now_s() + WITHIN_S
        while not condition():
            assert self.loop.now_s() < deadline_s, (self.admitted, self.broken)
            self.loop.run_once(0.05)

    def begin(self) -> None:
        count = len(self.admitted)
        self.transactions.want(AT)
        self.until(lambda: len(self.admitted) > count)

    def commit(self) -> None:
        self.loop.wait(start(self.transactions.commit()), WITHIN_S)


@pytest.fixture
def coordinator(serve: Serve) -> Coordinator:
    return Coordinator(serve)


@pytest.fixture
def scene(loop: EventLoop, coordinator: Coordinator) -> Iterator[Scene]:
    scene = Scene(loop, coordinator)
    yield scene
    scene.transactions.close()
    scene.cluster.close()


def test_a_commit_without_an_answer_is_sent_again_and_not_guessed(
    scene: Scene, coordinator: Coordinator
) -> None:
    coordinator.ends = [Raw(b"", close=True), Code.concurrent_transactions, Code.none]
    scene.begin()
    scene.commit()
    asked = coordinator.broker.requests(END_TXN)
    assert [one.committed for one in asked] == [True] * 3
    assert {(one.producer_id, one.producer_epoch) for one in asked} == {(12, 3)}
    assert not scene.transactions.added


@pytest.mark.parametrize(
    "code", [Code.invalid_producer_epoch, Code.producer_fenced, Code.invalid_txn_state]
)
def test_a_transaction_that_was_ended_by_another_is_for_another_lane(
    scene: Scene, coordinator: Coordinator, code: ErrorCode
) -> None:
    coordinator.ends = [code]
    scene.begin()
    with pytest.raises(Retriable, match="ended by another owner, or took too long"):
        scene.commit()
    assert len(coordinator.broker.requests(END_TXN)) == 1


def test_nothing_is_committed_that_has_nothing(scene: Scene, coordinator: Coordinator) -> None:
    scene.commit()
    assert coordinator.broker.requests(END_TXN) == []


def test_a_commit_is_visible_when_its_markers_have_come(
    scene: Scene, coordinator: Coordinator
) -> None:
    coordinator.stable = [0, 4, 10]
    scene.loop.wait(start(scene.transactions.visible({AT: 10})), WITHIN_S)
    asked = coordinator.broker.requests(LIST_OFFSETS)
    assert [one.isolation_level for one in asked] == [1] * 3


def test_a_marker_that_was_lost_is_for_a_take_over_to_make_good(
    scene: Scene, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "VISIBLE_TIMEOUT_S", 0.2)
    coordinator.stable = [4]
    with pytest.raises(Retriable, match="below offset 10, up to which all is committed: its mark"):
        scene.loop.wait(start(scene.transactions.visible({AT: 10})), WITHIN_S)


def test_what_is_not_in_the_transaction_is_not_sent(loop: EventLoop, target: WireCluster) -> None:
    wanted: list[TopicPartition] = []
    appending = Appending(loop, target, request_admission=wanted.append)
    for _ in range(2):
        appending.add(b"a")
        appending.add(b"x", partition=1)
        sent = len(target.sent)
        appending.appender.flush()
        loop.run_once(0.05)
        assert (len(target.sent), appending.appender.pending) == (sent, 2)
        assert set(wanted) == {AT, TopicPartition("orders", 1)}
        wanted.clear()
        appending.appender.admit([AT])
        appending.until(lambda: appending.appender.pending == 1)
        appending.appender.admit([TopicPartition("orders", 1)])
        appending.until_done()
        appending.appender.hold()
    assert target.logs[0].values == [b"a"] * 2
    assert target.logs[1].values == [b"x"] * 2
    appending.close()


def test_a_transaction_that_was_lost_since_its_cut_is_not_continued() -> None:
    state = LaneState(CopiedCounts())
    state.broken, state.stage = Retriable("fenced"), TransactionStage.LOST
    mode = InTransactions(cast(LaneParts, SimpleNamespace(state=state)))
    with pytest.raises(Retriable, match="fenced"):
        mode.commit({}, lambda _: None)
    with pytest.raises(Retriable, match="fenced"):
        mode.go_on()


def test_nothing_is_cut_before_the_loop_has_opened_a_partition() -> None:
    state = SimpleNamespace(lock=Lock(), broken=None, stage=TransactionStage.COPYING)
    mode = InTransactions(cast(LaneParts, SimpleNamespace(state=state)))
    assert mode.cut() is None
    assert state.stage is TransactionStage.COPYING
