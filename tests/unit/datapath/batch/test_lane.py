"""A lane between two clusters, called as a task calls it."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4 import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16, i32Timedelta
from support.batches import record_batch
from support.fake_broker import Answer, Request, Serve
from support.fake_kafka import MARKER
from support.join_helper import BrokenHelper, compiled, use_helper
from support.patience import WITHIN_S
from support.stored import batches_of, content, log_batch, sealed
from support.wire_kafka import (
    EPOCH_ENDS,
    INIT_PRODUCER_ID,
    Fault,
    Refusal,
    WireCluster,
    wire_cluster,
)

from headrace.api import TopicPartition
from headrace.api.flow import BatchVerification
from headrace.assign import TaskId
from headrace.datapath import (
    BatchMover,
    CopiedCounts,
    CopyFrom,
    OffsetGone,
    RecordRefused,
    TargetLoss,
    verify,
)
from headrace.datapath.lane_state import LEASE_S
from headrace.datapath.mover import BatchLane
from headrace.datapath.resources import LaneSettings, shared_loop
from headrace.datapath.spans import BatchCorrupt
from headrace.errors import Fatal, Retriable
from headrace.kafka.wire import Batch, ClusterClient, ClusterMetadata, StoredRecord, split_batches
from headrace.replication import OwnerProducer, TargetSeen

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
START = CopyFrom(0, -1)
IDS_EXPIRE_AFTER_S = 7 * 86_400
"""The default of brokers' ``transactional.id.expiration.ms``."""


class Lanes:
    """Creates lanes of one mover, and waits for their results."""

    def __init__(self, source: WireCluster, target: WireCluster) -> None:
        self.verification = BatchVerification.DISABLED
        self._source, self._target = source.access, target.access
        self.use(LaneSettings())
        self.made: list[BatchLane] = []
        self.said: list[str] = []
        self.copied = CopiedCounts()
        self.moved = 0

    def use(self, settings: LaneSettings) -> None:
        """Create the next lanes with these settings, by another mover."""
        self.mover = BatchMover(
            self._source,
            self._target,
            lambda topic: topic,
            verification=lambda: self.verification,
            settings=settings,
        )

    def make(self) -> BatchLane:
        lane = self.mover.lane(TaskId("orders", "SourceTask", 0), self.said.append, self.copied)
        self.made.append(lane)
        return lane

    def until(self, condition: Callable[[], Any]) -> None:
        deadline_s = time.monotonic() + WITHIN_S
        while not condition():
            for lane in self.made:
                self.moved += lane.run_once()
            seen = [(lane.state(), lane.problems()) for lane in self.made]
            assert time.monotonic() < deadline_s, (seen, self.said)
            time.sleep(0.005)


@pytest.fixture
def source(serve: Serve) -> WireCluster:
    return wire_cluster(serve, "east", 2)


@pytest.fixture
def target(serve: Serve) -> WireCluster:
    return wire_cluster(serve, "west", 2)


@pytest.fixture
def lanes(source: WireCluster, target: WireCluster) -> Iterator[Lanes]:
    lanes = Lanes(source, target)
    yield lanes
    for lane in lanes.made:
        lane.close()


def test_what_is_read_is_appended_and_counted(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lane = lanes.make()
    lane.open({ZERO: START, ONE: START})
    source.append(b"a", b"b")
    source.append(b"x", partition=1)
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 2 and lane.state()[ONE].acknowledged)

    assert target.logs[0].values == [b"a", b"b"]
    reached = lane.state()[ZERO]
    assert (reached.target_offset, reached.in_flight, reached.end) == (2, 0, 2)
    assert (reached.lag_records, reached.unexpected_offsets) == (0, 0)
    assert lanes.moved + lane.run_once() == 3
    assert lanes.copied.records == 3
    copied = lanes.copied
    fetched = [one for log in source.logs.values() for one in log.batches.values()]
    assert (copied.batches_copied, copied.batches_rebuilt) == (2, 0)
    assert (copied.bytes_copied, copied.bytes_rebuilt) == (sum(map(len, fetched)), 0)


def test_a_lane_that_others_can_fence_is_renewed_long_before_its_id_expires(
    lanes: Lanes,
) -> None:
    def outdated() -> tuple[bool, bool]:
        fenced, other = lanes.make(), lanes.make()
        fenced.open({ZERO: START._replace(writer=OwnerProducer("headrace-x", 7, 0))})
        other.open({ONE: START})
        return fenced.outdated, other.outdated

    assert LaneSettings().max_age_s < IDS_EXPIRE_AFTER_S / 2
    assert outdated() == (False, False)
    lanes.use(LaneSettings(max_age_s=-1.0))
    assert outdated() == (True, False)


def test_an_epoch_serves_one_lane(lanes: Lanes) -> None:
    """Another lane would also begin with sequence 0, which brokers would consider a duplicate."""
    lanes.make().open({ZERO: START._replace(writer=OwnerProducer("headrace-x", 7, 0))})
    with pytest.raises(Fatal, match="would be written with"):
        lanes.make().open({ZERO: START._replace(writer=OwnerProducer("headrace-x", 7, 0))})
    lanes.make().open({ZERO: START._replace(writer=OwnerProducer("headrace-x", 7, 1))})


def test_markers_and_aborted_records_are_passed_over(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lane = lanes.make()
    source.logs[0].aborted = [(5, 0)]
    source.append(b"aborted", producer_id=5, attributes=0x10)
    source.append(b"kept")
    source.append(b"aborted", producer_id=5, attributes=0x10)
    source.append(b"committed", producer_id=6, attributes=0x10)
    lane.open({ZERO: START})

    lanes.until(lambda: lane.state()[ZERO].acknowledged == 4)

    assert target.logs[0].values == [b"kept", b"committed"]


def test_a_start_inside_a_batch_takes_its_rest(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lane = lanes.make()
    source.append(b"a", b"b", b"c")
    lane.open({ZERO: CopyFrom(1, -1)})

    lanes.until(lambda: lane.state()[ZERO].acknowledged == 3)

    assert target.logs[0].values == [b"b", b"c"]
    copied, size = lanes.copied, len(source.logs[0].batches[0])
    assert (copied.batches_rebuilt, copied.bytes_rebuilt) == (1, size)
    assert copied.rebuilt == {"StartsInside": 1}
    assert copied.rebuilt_bytes == {"StartsInside": copied.bytes_rebuilt}


@pytest.fixture
def without_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    use_helper(monkeypatch, None)


@pytest.fixture
def with_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    use_helper(monkeypatch, compiled())


@pytest.fixture(params=["without_helper", "with_helper"])
def either_way(request: pytest.FixtureRequest) -> None:
    """Run with the C helper, and as on a machine without it."""
    request.getfixturevalue(request.param)


@pytest.mark.usefixtures("either_way")
def test_small_batches_that_wait_become_one(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    for number in range(30):
        source.append(b"%d" % number)
    lane = lanes.make()
    lane.open({ZERO: START})

    lanes.until(lambda: lane.state()[ZERO].acknowledged == 30)

    assert target.logs[0].values == [b"%d" % number for number in range(30)]
    assert lane.state()[ZERO].target_offset == 30
    assert lanes.copied.rebuilt == {"Small": 30}
    assert lanes.copied.records == 30


def append_batches(source: WireCluster, count: int, records: int) -> list[bytes]:
    """Append batches to the source, and return their values."""
    values = []
    for number in range(count):
        some = [b"%d-%d" % (number, record) for record in range(records)]
        source.append(*some)
        values += some
    return values


@pytest.mark.usefixtures("without_helper")
def test_batches_of_many_records_are_copied_as_they_are(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    values = append_batches(source, 20, 50)
    lane = lanes.make()
    lane.open({ZERO: START})

    lanes.until(lambda: lane.state()[ZERO].acknowledged == 1000)

    assert target.logs[0].values == values
    assert (lanes.copied.batches_copied, lanes.copied.batches_rebuilt) == (20, 0)


@pytest.mark.usefixtures("with_helper")
def test_with_the_helper_they_become_one(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    held = shared_loop().memory.held_bytes  # of other tests
    values = append_batches(source, 20, 50)
    lane = lanes.make()
    lane.open({ZERO: START})

    lanes.until(lambda: lane.state()[ZERO].acknowledged == 1000)

    assert target.logs[0].values == values
    assert len(target.logs[0].batches) < 20
    assert lanes.copied.rebuilt == {"Small": 20}
    [run] = lane.take_runs()[ZERO]
    assert (run.source, run.target, run.records) == (0, 0, 1000)
    lanes.until(lambda: shared_loop().memory.held_bytes <= held)


@pytest.mark.usefixtures("with_helper")
def test_a_target_that_takes_less_is_not_sent_more_again(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    """Otherwise it would be halved each time, record by record in Python."""
    held = shared_loop().memory.held_bytes  # of other tests
    largest = 4_000
    refused = list[int]()

    def fault(partition: int, batch: Batch) -> Fault:
        if len(batch.data) <= largest:
            return None
        refused.append(len(batch.data))
        return Refusal(ErrorCode.message_too_large)

    target.fault = fault
    values = append_batches(source, 20, 50)
    lane = lanes.make()
    lane.open({ZERO: START})
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 1000)
    first = len(refused)

    values += append_batches(source, 20, 50)
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 2000)

    assert target.logs[0].values == values
    assert first
    assert len(refused) == first
    lanes.until(lambda: shared_loop().memory.held_bytes <= held)


@pytest.mark.usefixtures("either_way")
def test_small_batches_before_a_damaged_one_are_copied(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    for number in range(3):
        source.append(b"%d" % number)
    batch = bytearray(source.logs[0].batches[2])
    batch[-1] ^= 1
    source.logs[0].batches[2] = bytes(batch)
    lane = lanes.make()
    lane.open({ZERO: START})

    lanes.until(lane.problems)

    assert lane.state()[ZERO].acknowledged == 2
    assert target.logs[0].values == [b"0", b"1"]


def test_what_is_left_is_not_read_until_it_is_kept(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lane = lanes.make()
    lane.open({ZERO: START, ONE: START})
    source.append(b"a")
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 1)
    lane.leave({ZERO})
    source.append(b"b")
    source.append(b"x", partition=1)
    lanes.until(lambda: lane.state()[ONE].acknowledged == 1)
    assert target.logs[0].values == [b"a"]

    lane.keep({ZERO})
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 2)
    assert target.logs[0].values == [b"a", b"b"]


def test_what_is_forgotten_can_be_opened_again(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lane = lanes.make()
    lane.open({ZERO: START})
    source.append(b"a")
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 1)
    lane.leave({ZERO})
    lane.forget({ZERO})
    assert not lane.partitions
    source.append(b"b")

    lane.open({ZERO: CopyFrom(1, -1)})
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 2)
    assert target.logs[0].values == [b"a", b"b"]


def test_what_is_paused_is_not_read(lanes: Lanes, source: WireCluster, target: WireCluster) -> None:
    lane = lanes.make()
    lane.pause({ZERO})
    lane.open({ZERO: START, ONE: START})
    source.append(b"a")
    source.append(b"x", partition=1)
    lanes.until(lambda: lane.state()[ONE].acknowledged == 1)
    assert target.logs[0].values == []

    lane.pause(set())
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 1)


@pytest.mark.parametrize("told", [True, False])
def test_nothing_is_copied_while_the_task_does_not_call(
    told: bool, lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    """A pause takes effect at once, a release or a freeze of the task after a moment."""
    resting, other = lanes.make(), lanes.make()
    resting.open({ZERO: START})
    other.open({ONE: START})
    source.append(b"a")
    lanes.until(lambda: resting.state()[ZERO].acknowledged == 1)
    lanes.made.remove(resting)
    if told:
        resting.rest()
    else:
        rests_s = time.monotonic() + LEASE_S
        lanes.until(lambda: time.monotonic() > rests_s)

    source.append(b"b")
    source.append(b"x", partition=1)
    lanes.until(lambda: other.state()[ONE].acknowledged == 1)
    answered = len(source.fetches)
    source.append(b"y", partition=1)
    lanes.until(lambda: other.state()[ONE].acknowledged == 2 and len(source.fetches) > answered)
    assert target.logs[0].values == [b"a"]
    assert resting.in_flight == 0

    lanes.made.append(resting)
    lanes.until(lambda: resting.state()[ZERO].acknowledged == 2)
    assert target.logs[0].values == [b"a", b"b"]


def test_a_target_that_gives_an_offset_again_has_lost_records(
    lanes: Lanes, source: WireCluster
) -> None:
    lane = lanes.make()
    source.append(b"a")
    lane.open({ZERO: CopyFrom(0, -1, target_offset=5)})

    lanes.until(lane.problems)

    [(at, error)] = lane.problems()
    assert at == ZERO
    assert isinstance(error, TargetLoss)
    assert (error.offset, error.expected) == (0, 5)
    assert lane.state()[ZERO].acknowledged == 0
    assert lane.run_once() == 0


def test_the_leader_epoch_of_the_target_is_learnt_behind_each_acknowledgement(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lanes.use(LaneSettings(epoch_interval_s=0.01))
    lane = lanes.make()
    lane.open({ZERO: START})
    source.append(b"a", b"b")
    lanes.until(lambda: lane.state()[ZERO].target_seen == TargetSeen(2, leader_epoch=4))

    target.led[0] = (2, 5)
    source.append(b"c")
    lanes.until(lambda: lane.state()[ZERO].target_seen == TargetSeen(3, leader_epoch=5))


def test_a_target_that_ends_below_what_it_has_acknowledged_has_lost_records(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lanes.use(LaneSettings(epoch_interval_s=0.01))
    target.answers[0].epoch_end = (4, 1)
    lane = lanes.make()
    lane.open({ZERO: START})
    source.append(b"a", b"b")
    lanes.until(lane.problems)

    [(at, error)] = lane.problems()
    assert at == ZERO
    assert isinstance(error, TargetLoss)
    assert (error.offset, error.expected) == (1, 2)
    assert lane.state()[ZERO].target_seen is None


def test_records_in_flight_count_though_the_target_has_lost_earlier_ones(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lanes.use(LaneSettings(epoch_interval_s=0.01))
    sent, asked = threading.Event(), threading.Event()
    answers = dict(target.brokers[1].script)

    def late(request: Request) -> Answer:
        assert sent.wait(WITHIN_S)
        return answers[EPOCH_ENDS](request)

    def hold(_: int, batch: Batch) -> None:
        if b"c" in bytes(batch.data):
            sent.set()
            assert asked.wait(WITHIN_S)

    target.brokers[1].script[EPOCH_ENDS] = late
    target.answers[0].epoch_end = (4, 1)
    target.fault = hold
    lane = lanes.make()
    lane.open({ZERO: START})
    source.append(b"a", b"b")
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 2)
    source.append(b"c")
    lanes.until(lane.problems)
    asked.set()
    lanes.until(lambda: not lane.in_flight)

    reached = lane.state()[ZERO]
    assert (reached.acknowledged, reached.target_offset) == (3, 3)


@pytest.fixture
def append_fails_at_once(target: WireCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail each append, as without the certificate when a connection is opened again."""
    refresh = ClusterClient.refresh

    async def without_certificate(
        cluster: ClusterClient, topics: Iterable[str] | None = ()
    ) -> ClusterMetadata:
        if cluster.name.startswith("west") and topics:
            raise Fatal("no certificate")
        return await refresh(cluster, topics)

    monkeypatch.setattr(ClusterClient, "refresh", without_certificate)
    target.led[0] = (-1, 4)


@pytest.mark.parametrize("attributes", [0, 0x30], ids=["data", "marker"])
@pytest.mark.usefixtures("either_way", "append_fails_at_once")
def test_what_follows_a_batch_that_fails_at_once_does_not_count(
    lanes: Lanes, source: WireCluster, attributes: int
) -> None:
    source.append(b"a")
    source.append(b"b", attributes=attributes)
    lane = lanes.make()
    lane.open({ZERO: START})

    lanes.until(lane.problems)

    assert (lane.state()[ZERO].acknowledged, lane.in_flight) == (0, 0)


@pytest.mark.usefixtures("append_fails_at_once")
def test_the_leader_epoch_is_that_of_the_record_before_the_acknowledged_offset(
    lanes: Lanes, source: WireCluster
) -> None:
    source.led[0] = (1, 9)
    source.store([bytes(log_batch([StoredRecord(0, 1, content(None, b"a"))], leader_epoch=9))])
    lane = lanes.make()
    lane.open({ZERO: CopyFrom(0, 3)})
    lanes.until(lane.problems)

    assert lane.state()[ZERO].leader_epoch == 3


def test_a_partition_that_failed_needs_another_lane(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    """Its queue drops what is appended."""
    target.fault = lambda *_: Refusal(ErrorCode.topic_authorization_failed)
    source.append(b"a")
    lane = lanes.make()
    lane.open({ZERO: START})
    lanes.until(lane.problems)
    lane.leave({ZERO})
    lane.forget({ZERO})
    assert not lane.problems()
    lane.open({ZERO: START})

    [(_, error)] = lane.problems()
    assert isinstance(error, Retriable)
    assert "it needs another lane" in str(error)


@pytest.mark.parametrize("start", [0, 2], ids=["joined", "starts inside a batch"])
@pytest.mark.usefixtures("without_helper", "append_fails_at_once")
def test_rebuilt_batches_that_fail_at_once_do_not_count(
    lanes: Lanes, source: WireCluster, start: int
) -> None:
    for _ in range(6):
        source.append(*[b"x" * 3_900] * 4)  # joined, they are more than one batch
    lane = lanes.make()
    lane.open({ZERO: CopyFrom(start, -1)})

    lanes.until(lane.problems)

    assert (lane.state()[ZERO].acknowledged, lane.in_flight) == (start, 0)


def test_records_of_another_writer_are_counted(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lane = lanes.make()
    source.append(b"a")
    lane.open({ZERO: START})
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 1)
    target.cluster.append("orders", b"alien")
    source.append(b"b")

    lanes.until(lambda: lane.state()[ZERO].acknowledged == 2)

    assert lane.state()[ZERO].unexpected_offsets == 1


def refusing(target: WireCluster) -> None:
    """Reject batches that contain a record ``bad``."""
    target.fault = lambda _, batch: (
        Refusal(ErrorCode.invalid_timestamp) if b"bad" in bytes(batch.data) else None
    )


def test_a_refused_batch_is_found_record_by_record(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    refusing(target)
    source.append(b"a")
    source.append(b"b", b"bad", b"c")
    first = lanes.make()
    first.open({ZERO: START, ONE: START})
    lanes.until(first.problems)
    [(_, error)] = first.problems()
    assert isinstance(error, RecordRefused)
    assert (error.offsets, error.record) == (range(0, 4), None)  # both were joined
    first.settle(5)
    assert first.state()[ZERO].acknowledged == 0

    second = lanes.make()
    second.open({ZERO: CopyFrom(0, -1, suspects=error.offsets)})
    lanes.until(second.problems)

    [(_, error)] = second.problems()
    assert isinstance(error, RecordRefused)
    assert error.offsets == range(2, 3)
    assert error.record is not None
    assert (error.record.offset, error.record.value) == (2, b"bad")
    second.settle(5)
    assert second.state()[ZERO].acknowledged == 2
    assert target.logs[0].values == [b"a", b"b"]


def test_suspects_that_are_all_right_pass_one_by_one(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    source.append(b"a", b"b", b"c")
    source.append(b"d", b"e")
    lane = lanes.make()
    lane.open({ZERO: CopyFrom(0, -1, suspects=range(1, 2))})

    lanes.until(lambda: lane.state()[ZERO].acknowledged == 5)

    assert lanes.copied.rebuilt == {"Refused": 1}
    assert target.logs[0].values == [b"a", b"b", b"c", b"d", b"e"]
    batches = batches_of(*target.logs[0].batches.values())
    assert [batch.record_count for batch in batches] == [1, 1, 1, 2]


def held_answers(target: WireCluster) -> threading.Event:
    """Let the target answer to batches only after the returned event."""
    answers = threading.Event()

    def wait(*_: Any) -> None:
        assert answers.wait(WITHIN_S)

    target.fault = wait
    return answers


def test_no_suspect_is_sent_while_the_lane_rests(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    answers = held_answers(target)
    source.append(b"a", b"b", b"c")
    source.append(b"x", partition=1)
    resting = lanes.make()
    resting.open({ZERO: CopyFrom(0, -1, suspects=range(3))})
    lanes.until(lambda: target.sent)
    lanes.made.remove(resting)
    resting.rest()
    answers.set()
    lanes.until(lambda: resting.state()[ZERO].acknowledged)
    other = lanes.make()
    other.open({ONE: START})
    lanes.until(lambda: other.state()[ONE].acknowledged == 1)
    assert target.logs[0].values == [b"a"]
    assert resting.in_flight == 0

    lanes.made.append(resting)
    lanes.until(lambda: resting.state()[ZERO].acknowledged == 3)
    assert target.logs[0].values == [b"a", b"b", b"c"]


@pytest.mark.parametrize("paused", [False, True])
def test_suspects_of_a_partition_that_comes_back_are_sent_once(
    lanes: Lanes, source: WireCluster, target: WireCluster, paused: bool
) -> None:
    answers = held_answers(target)
    source.append(b"a", b"b", b"c")
    source.append(b"d")
    lane = lanes.make()
    lane.open({ZERO: CopyFrom(0, -1, suspects=range(3))})
    lanes.until(lambda: target.sent)
    (lane.pause if paused else lane.leave)({ZERO})
    answers.set()
    lanes.until(lambda: not lane.in_flight)
    assert target.logs[0].values == [b"a"]
    if paused:
        lane.pause(set())
    else:
        lane.keep({ZERO})
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 4)
    assert target.logs[0].values == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(("batches", "records"), [(1, 65), (100, 1)])
def test_many_suspects_pass_in_groups(
    lanes: Lanes, source: WireCluster, target: WireCluster, batches: int, records: int
) -> None:
    """A group of one record is not a suspect that is sent alone."""
    values = append_batches(source, batches, records)
    lane = lanes.make()
    lane.open({ZERO: CopyFrom(0, -1, suspects=range(len(values)))})

    lanes.until(lambda: lane.state()[ZERO].acknowledged == len(values))

    assert target.logs[0].values == values


def test_the_fetch_after_suspects_names_the_leader_epoch_of_the_last_one(
    lanes: Lanes, source: WireCluster
) -> None:
    for first, epoch in ((0, 3), (1, 9)):
        stored = StoredRecord(first, 1, content(None, b"a"))
        source.store([bytes(log_batch([stored], leader_epoch=epoch))])
    lane = lanes.make()
    lane.open({ZERO: CopyFrom(0, -1, suspects=range(1, 2))})
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 2)
    source.append(b"b")
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 3)

    asked = [one for _, message in source.fetches for one in message.topics]
    epochs = {
        one.fetch_offset: one.last_fetched_epoch for topic in asked for one in topic.partitions
    }
    assert epochs[2] == 9


def test_a_refused_group_of_one_record_is_a_suspect_that_is_sent_alone_later(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    refusing(target)
    for number in range(100):
        source.append(b"bad" if number == 10 else b"good")
    lane = lanes.make()
    lane.open({ZERO: CopyFrom(0, -1, suspects=range(100))})
    lanes.until(lane.problems)

    [(_, error)] = lane.problems()
    assert isinstance(error, RecordRefused)
    assert (error.offsets, error.record) == (range(10, 11), None)
    assert lane.state()[ZERO].acknowledged == 10


def damaged(batch: bytes) -> bytes:
    """Return the batch with one bit of its last byte changed."""
    return batch[:-1] + bytes((batch[-1] ^ 1,))


def with_codec(batch: bytes, codec: int) -> bytes:
    """Return the batch with another codec in its header, and the checksum of that."""
    return bytes(sealed(bytearray(batch[:22] + bytes((batch[22] | codec,)) + batch[23:])))


def with_unknown_codec(batch: bytes) -> bytes:
    """Return the batch with a codec that does not exist."""
    return with_codec(batch, 5)


@pytest.mark.parametrize(
    ("damage", "why"),
    [(damaged, "does not fit its checksum"), (with_unknown_codec, "has codec 5")],
)
def test_a_damaged_batch_is_fetched_again_and_then_stops_its_partition(
    lanes: Lanes,
    source: WireCluster,
    target: WireCluster,
    damage: Callable[[bytes], bytes],
    why: str,
) -> None:
    source.append(b"before")
    source.append(b"a" * 100)
    source.logs[0].batches[1] = damage(source.logs[0].batches[1])
    lane = lanes.make()
    lane.open({ZERO: START})
    lanes.until(lane.problems)

    [problem] = lane.problems()
    assert type(problem.error) is Fatal
    assert "could not read orders-0 offset 1 of east" in str(problem.error)
    assert why in str(problem.error)
    assert len(source.fetches) >= 3
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 1)
    assert target.logs[0].values == [b"before"]
    assert all(split_batches(memoryview(sent[0])).batches[0].intact for sent in target.sent)


def test_a_batch_that_can_be_neither_sent_nor_split_stops_its_partition(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    """Its checksum is right, so only decompression finds the damage."""
    target.fault = lambda *_: Refusal(ErrorCode.message_too_large)
    source.append(b"a", b"b")
    source.logs[0].batches[0] = with_codec(source.logs[0].batches[0], 1)
    for kind in (BatchCorrupt, Fatal):  # it is read again once
        lane = lanes.make()
        lane.open({ZERO: START})
        lanes.until(lane.problems)
        [problem] = lane.problems()
        assert type(problem.error) is kind
        assert "cannot be decompressed: gzip" in str(problem.error)
        lanes.made.remove(lane)
        lane.close()


def test_a_batch_that_was_damaged_on_its_way_here_is_copied_once_it_is_intact(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    source.append(b"a" * 100)
    source.answers[0].garbage.append(damaged(source.logs[0].batches[0]))
    lane = lanes.make()
    lane.open({ZERO: START})
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 1)

    assert target.logs[0].values == [b"a" * 100]
    assert not lane.problems()


def test_an_offset_that_is_gone_stops_its_partition_alone(
    lanes: Lanes, source: WireCluster
) -> None:
    source.logs[0].start = 9
    source.append(b"x", partition=1)
    lane = lanes.make()
    lane.open({ZERO: CopyFrom(3, -1), ONE: START})

    lanes.until(lambda: lane.problems() and lane.state()[ONE].acknowledged == 1)

    assert isinstance(lane.problems()[0].error, OffsetGone)


def test_nothing_is_sent_after_settling_and_positions_are_what_is_acknowledged(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lane = lanes.make()
    lane.open({ZERO: START})
    source.append(b"a")
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 1)

    lane.settle(5)
    source.append(b"b")

    assert (lane.in_flight, lane.state()[ZERO].acknowledged) == (0, 1)
    lane.close()
    assert lane.closed.is_set()
    assert target.logs[0].values == [b"a"]


def test_a_lane_that_ends_leaves_its_connections_to_the_others(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    ends, stays = lanes.make(), lanes.make()
    ends.open({ZERO: START})
    stays.open({ONE: START})
    source.append(b"a")
    source.append(b"x", partition=1)
    lanes.until(lambda: ends.state()[ZERO].acknowledged and stays.state()[ONE].acknowledged)
    made = [broker.connections for broker in target.brokers.values()]
    lanes.made.remove(ends)
    for _ in range(2):
        ends.close()
    source.append(b"y", partition=1)
    lanes.until(lambda: stays.state()[ONE].acknowledged == 2)

    assert target.logs[1].values == [b"x", b"y"]
    assert [broker.connections for broker in target.brokers.values()] == made


def test_a_closed_lane_has_no_connections_though_it_is_referred_to(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    def connected(cluster: WireCluster) -> int:
        return sum(broker.connected for broker in cluster.brokers.values())

    first, last = lanes.make(), lanes.make()
    first.open({ZERO: START})
    last.open({ONE: START})
    source.append(b"a")
    source.append(b"x", partition=1)
    lanes.until(lambda: first.state()[ZERO].acknowledged and last.state()[ONE].acknowledged)
    of_both = connected(source)
    lanes.made.clear()
    first.close()
    lanes.until(lambda: connected(source) < of_both)
    assert connected(target)
    last.close()
    lanes.until(lambda: not connected(source) and not connected(target))


def test_a_lane_after_the_last_one_has_new_connections(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lane = lanes.make()
    lane.open({ZERO: START})
    source.append(b"a")
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 1)
    lanes.made.remove(lane)
    lane.close()
    later = lanes.make()
    later.open({ONE: START})
    source.append(b"x", partition=1)
    lanes.until(lambda: later.state()[ONE].acknowledged == 1)

    assert target.logs[1].values == [b"x"]


def test_a_target_that_does_not_answer_is_not_settled(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lane = lanes.make()
    lane.open({ZERO: START})
    target.unanswered = {0}
    source.append(b"a")
    lanes.until(lambda: target.sent)

    with pytest.raises(Retriable, match="west did not acknowledge 1 records"):
        lane.settle(0.05)

    assert lane.state()[ZERO].acknowledged == 0


def test_a_target_that_is_away_is_reported_and_waited_for(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    target.epochs[77].add(3)
    code = [ErrorCode.coordinator_load_in_progress] * 3
    for broker in target.brokers.values():
        broker.script[INIT_PRODUCER_ID] = lambda request: InitProducerIdResponse(
            throttle_time=i32Timedelta.parse(timedelta()),
            error_code=code.pop() if code else ErrorCode.none,
            producer_id=ProducerId(77),
            producer_epoch=i16(3),
        )
    source.append(b"a")
    lane = lanes.make()
    lane.open({ZERO: START})

    lanes.until(lambda: lane.state()[ZERO].acknowledged == 1)

    assert target.logs[0].values == [b"a"]


# Verified batches.


def changed_byte(stored: bytes) -> bytes:
    """Change a byte and keep the checksum, as a disk does."""
    return stored[:-2] + bytes([stored[-2] ^ 1]) + stored[-1:]


def changed_record(stored: bytes) -> bytes:
    """Return an intact batch of other records, as a broker's fault or another writer causes."""
    return bytes(record_batch([b"c", b"d"], base_offset=int.from_bytes(stored[:8])))


def emptied(stored: bytes) -> bytes:
    """Return the batch without its two records, as after compaction."""
    return b""


def not_there(stored: bytes) -> ErrorCode:
    return ErrorCode.offset_out_of_range


def unreadable(stored: bytes) -> ErrorCode:
    """Return the error of a broker whose log is damaged."""
    return ErrorCode.corrupt_message


def forbidden(stored: bytes) -> ErrorCode:
    return ErrorCode.topic_authorization_failed


@pytest.mark.parametrize(
    ("read_back", "found"),
    [
        (lambda stored: stored, "Same"),
        (emptied, "NotRead"),
        (not_there, "NotRead"),
    ],
)
def test_batches_are_read_back_and_counted(
    lanes: Lanes, source: WireCluster, target: WireCluster, read_back: Any, found: str
) -> None:
    lanes.verification = BatchVerification.FULL
    target.read_back = read_back
    lane = lanes.make()
    lane.open({ZERO: START, ONE: START})
    source.append(b"a", b"b")
    lanes.until(lambda: lanes.copied.verified == {found: 1})
    source.append(b"x", partition=1)
    lanes.until(lambda: lanes.copied.verified == {found: 2})
    assert lane.problems() == []
    assert (lane.state()[ZERO].acknowledged, lane.state()[ONE].acknowledged) == (2, 1)


def test_a_right_that_is_missing_is_said_once(
    lanes: Lanes, source: WireCluster, target: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "log", log := Mock())
    lanes.verification = BatchVerification.FULL
    target.read_back = forbidden
    lane = lanes.make()
    lane.open({ZERO: START})
    source.append(b"a")
    source.append(b"b")
    lanes.until(lambda: lanes.copied.verified == {"NotRead": 2})
    assert lane.problems() == []
    [said] = log.warning.call_args_list
    assert "orders-0" in said.kwargs["why"]


@pytest.mark.parametrize("read_back", [changed_byte, changed_record, unreadable])
def test_a_batch_that_the_target_does_not_hold_as_it_was_stops_its_partition(
    lanes: Lanes, source: WireCluster, target: WireCluster, read_back: Any
) -> None:
    lanes.verification = BatchVerification.SAMPLED
    target.read_back = read_back
    lane = lanes.make()
    lane.open({ZERO: START})
    source.append(b"a", b"b")
    lanes.until(lane.problems)
    [problem] = lane.problems()
    assert isinstance(problem.error, Fatal)
    assert "orders-0 on west" in str(problem.error)
    assert "offsets 0 to 1 (spec.batchVerification)" in str(problem.error)
    assert lanes.copied.verified == {"Different": 1}


def test_what_was_damaged_on_its_way_back_is_read_again(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lanes.verification = BatchVerification.FULL
    target.read_back = lambda stored: changed_byte(stored) if len(target.fetches) == 1 else stored
    lane = lanes.make()
    lane.open({ZERO: START})
    source.append(b"a", b"b")
    lanes.until(lambda: lanes.copied.verified)
    assert lanes.copied.verified == {"Same": 1}
    assert lane.problems() == []


def test_what_a_leader_that_moved_does_not_answer_is_asked_of_the_next_one(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lanes.verification = BatchVerification.FULL
    moved = ErrorCode.not_leader_or_follower
    target.read_back = lambda stored: moved if len(target.fetches) == 1 else stored
    lane = lanes.make()
    lane.open({ZERO: START})
    source.append(b"a", b"b")
    lanes.until(lambda: lanes.copied.verified)
    assert (lanes.copied.verified, len(target.fetches)) == ({"Same": 1}, 2)


@pytest.mark.parametrize(
    ("verification", "compared"),
    [
        (BatchVerification.DISABLED, 0),
        (BatchVerification.SAMPLED, 1),
        (BatchVerification.FULL, 40),
    ],
)
def test_how_many_are_read_back(
    lanes: Lanes,
    source: WireCluster,
    target: WireCluster,
    verification: BatchVerification,
    compared: int,
) -> None:
    lanes.verification = verification
    lane = lanes.make()
    for number in range(40):
        source.append(b"%d" % number)
    lane.open({ZERO: START})
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 40)
    lanes.until(lambda: sum(lanes.copied.verified.values()) >= compared)
    if verification is BatchVerification.SAMPLED:  # one a second: a slow machine may be at the next
        assert lanes.copied.verified["Same"] < 5
    else:
        assert sum(lanes.copied.verified.values()) == len(target.fetches) == compared


def test_rebuilt_batches_are_not_read_back(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lanes.verification = BatchVerification.FULL
    lane = lanes.make()
    source.append(b"a", b"b", b"c")
    source.append(b"d")
    lane.open({ZERO: CopyFrom(1, -1)})
    lanes.until(lambda: lanes.copied.verified)
    assert lane.state()[ZERO].acknowledged == 4
    assert (lanes.copied.verified, len(target.fetches)) == ({"Same": 1}, 1)


@pytest.mark.usefixtures("with_helper")
@pytest.mark.parametrize("found", ["Same", "Different"])
def test_joined_batches_are_read_back(
    lanes: Lanes, source: WireCluster, target: WireCluster, found: str
) -> None:
    lanes.verification = BatchVerification.SAMPLED
    target.read_back = changed_byte if found == "Different" else (lambda stored: stored)
    append_batches(source, 20, 50)
    lane = lanes.make()
    lane.open({ZERO: START})
    lanes.until(lambda: lanes.copied.verified.get(found))
    lanes.until(lambda: lane.problems() if found == "Different" else lanes.copied.records == 1000)
    assert lanes.copied.rebuilt["Small"]
    assert not lanes.copied.batches_copied
    assert ["offsets 0 to 999" in str(one.error) for one in lane.problems()] == (
        [True] if found == "Different" else []
    )


def test_a_helper_that_joins_wrongly_is_not_used_any_more(
    lanes: Lanes, source: WireCluster, target: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = BrokenHelper()
    use_helper(monkeypatch, broken)
    monkeypatch.setattr(verify, "log", log := Mock())
    lanes.verification = BatchVerification.SAMPLED
    values = append_batches(source, 20, 50)
    lane = lanes.make()
    lane.open({ZERO: START, ONE: START})
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 1000)
    others = [b"%d" % number for number in range(40)]
    for number in range(0, 40, 10):
        source.append(*others[number : number + 10], partition=1)
    lanes.until(lambda: lane.state()[ONE].acknowledged == 40)

    assert (target.logs[0].values, target.logs[1].values) == (values, others)
    assert lane.problems() == []
    assert (broken.calls, lanes.copied.verified["Misjoined"]) == (1, 1)
    assert lanes.copied.batches_copied == 24
    [said] = log.error.call_args_list
    assert said.kwargs == {"partition": "orders-0", "offsets": "0 to 999"}


def test_with_full_nothing_is_copied_beyond_what_may_wait_to_be_compared(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lanes.use(LaneSettings(unverified_bytes=1))
    lanes.verification = BatchVerification.FULL
    answer = threading.Event()
    target.read_back = lambda stored: stored if answer.wait(WITHIN_S) else b""
    lane = lanes.make()
    lane.open({ZERO: START, ONE: START})
    source.append(b"a")
    lanes.until(lambda: len(target.fetches) or lane.problems())
    source.append(b"x", partition=1)
    assert lane.state()[ONE].acknowledged == 0
    answer.set()
    lanes.until(lambda: lanes.copied.verified == {"Same": 2})


def test_a_lane_that_is_closed_reads_nothing_back_any_more(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    lanes.verification = BatchVerification.FULL
    answer = threading.Event()
    target.read_back = lambda stored: stored if answer.wait(WITHIN_S) else b""
    lane = lanes.make()
    lane.open({ZERO: START})
    source.append(b"a")
    source.append(b"b")
    lanes.until(lambda: len(target.fetches) and lane.state()[ZERO].acknowledged == 2)
    lane.close()
    answer.set()
    lanes.until(lambda: sum(lanes.copied.verified.values()) == 2)
    assert len(target.fetches) == 1


def test_a_lane_that_is_closed_leaves_nothing_in_memory(lanes: Lanes, source: WireCluster) -> None:
    """A pending timer kept it for a minute, with its buffers and all referenced objects."""
    source.append(b"a")
    lanes.make().open({ZERO: START})
    lanes.until(lambda: lanes.made[0].state()[ZERO].acknowledged == 1)
    # The lane's objects refer to its counts.
    gone, lanes.copied = weakref.ref(lanes.copied), CopiedCounts()
    lanes.made.pop().close()

    def collected() -> bool:
        gc.collect()
        return gone() is None

    lanes.until(collected)


def test_batch_that_an_answer_moved_is_fetched_again_and_said(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    source.append(b"a", b"b")
    moved = bytearray(source.logs[0].batches[0])
    moved[7] ^= 0x20
    source.answers[0].garbage = [bytes(moved)]
    lane = lanes.make()
    lane.open({ZERO: START})
    lanes.until(lambda: lane.state()[ZERO].acknowledged == 2 and lanes.said)

    assert target.logs[0].values == [b"a", b"b"]
    assert lanes.copied.damaged == 1
    assert "east: the broker's answer was damaged: orders-0: offsets 32 to 33" in lanes.said[0]


def test_log_whose_offsets_have_holes_is_copied_without_damage(
    lanes: Lanes, source: WireCluster, target: WireCluster
) -> None:
    for value in (b"a", b"b", b"c"):
        source.append(value)
        source.logs[0].entries += [MARKER] * 3
    lane = lanes.make()
    lane.open({ZERO: START})
    lanes.until(lambda: lane.state()[ZERO].acknowledged >= 9)

    assert target.logs[0].values == [b"a", b"b", b"c"]
    assert lanes.copied.damaged == 0
