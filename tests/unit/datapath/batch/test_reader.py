"""Reading a source whose brokers, leaders, topics and logs change."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from support.fake_broker import Serve
from support.fake_kafka import MARKER
from support.patience import WITHIN_S
from support.wire_kafka import FETCH, TOPIC, WireCluster, wire_cluster

from headrace.api import TopicPartition
from headrace.datapath import OffsetGone, TokenBucket
from headrace.datapath.chunk import MIN_BYTES, HeldResponse, Memory
from headrace.datapath.fetch import Reader
from headrace.datapath.locate import SourcePartition
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import ConnectionSettings, EventLoop, split_batches


class Reading:
    """A reader of a cluster in memory, and its batches."""

    def __init__(
        self,
        loop: EventLoop,
        source: WireCluster,
        rack: str = "",
        settings: ConnectionSettings | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.loop = loop
        self.batches: dict[int, list[tuple[int, int]]] = {}
        """First and last offset of each batch taken, by partition."""
        self.aborted: list[tuple[int, int]] = []
        self.ends: dict[int, int] = {}
        self.problems: dict[int, HeadraceError] = {}
        self.said: list[str] = []
        self.damage: list[str] = []
        """Reasons why answers were requested again."""
        self.unread: set[int] = set()
        """Partitions that are not to be read."""
        self.memory = memory or Memory()
        self.held: list[HeldResponse] | None = None
        """Responses whose memory is not released, if they are to be kept."""
        self.cluster = source.client(loop, settings)
        self.reader = Reader(self.cluster, self.memory, self, TokenBucket(), rack)

    def open(self, partition: int = 0, offset: int = 0, leader_epoch: int = -1) -> None:
        """Read from there on."""
        self.reader.open(TopicPartition(TOPIC, partition), offset, leader_epoch)

    def until(self, condition: Callable[[], object]) -> None:
        """Run the loop until the condition is true."""
        deadline_s = self.loop.now_s() + WITHIN_S
        while not condition():
            assert self.loop.now_s() < deadline_s, (self.batches, self.problems, self.said)
            self.loop.run_once(0.2)

    def close(self) -> None:
        """Close the reader and its connections."""
        self.reader.close()
        self.cluster.close()

    # Callbacks of the reader.

    def ready(self) -> bool:
        return True

    def readable(self, ats: Iterable[TopicPartition]) -> set[TopicPartition]:
        unread = self.unread | self.problems.keys()
        return {at for at in ats if at.partition not in unread}

    def held_back(self, at: TopicPartition) -> bool:
        return False

    def stuck(self) -> bool:
        return False

    def saw_end(self, at: TopicPartition, end: int) -> None:
        self.ends[at.partition] = end

    def take(
        self,
        source: SourcePartition,
        records: memoryview,
        aborted: Sequence[tuple[int, int]],
        held: HeldResponse,
    ) -> None:
        if source.at.partition in self.unread:
            return
        self.aborted += aborted
        for batch in split_batches(records).batches:
            taken = self.batches.setdefault(source.at.partition, [])
            taken.append((batch.base_offset, batch.last_offset))
            source.advance(batch.last_offset + 1, batch.leader_epoch)
        if self.held is not None:
            held.use()
            self.held.append(held)

    def taken(self) -> None:
        pass

    def problem(self, at: TopicPartition, error: HeadraceError) -> None:
        self.problems[at.partition] = error

    def damaged(self, at: TopicPartition, why: str) -> None:
        self.damage.append(why)

    def away(self, error: HeadraceError) -> None:
        self.said.append(str(error))


@pytest.fixture
def source(serve: Serve) -> WireCluster:
    return wire_cluster(serve, "east", partitions=3)


@pytest.fixture
def reading(loop: EventLoop, source: WireCluster) -> Iterator[Reading]:
    reading = Reading(loop, source, rack="here")
    yield reading
    reading.close()


@pytest.fixture
def old_source(serve: Serve) -> WireCluster:
    """Return brokers of Kafka 2.4."""
    return wire_cluster(serve, "east", partitions=3, kafka_2_4=True)


@pytest.fixture
def old_reading(loop: EventLoop, old_source: WireCluster) -> Iterator[Reading]:
    reading = Reading(loop, old_source)
    yield reading
    reading.close()


def asked(message: Any) -> dict[int, int]:
    """Return the partitions of a request, with their offsets."""
    return {one.partition: one.fetch_offset for topic in message.topics for one in topic.partitions}


def test_batches_come_in_order_and_a_session_names_what_has_changed(
    reading: Reading, source: WireCluster
) -> None:
    for partition in range(3):
        reading.open(partition)
    source.append(b"a", b"b")
    source.append(b"c", partition=2)
    reading.until(lambda: reading.batches == {0: [(0, 1)], 2: [(0, 0)]})
    source.append(b"d")
    reading.until(lambda: reading.batches[0] == [(0, 1), (2, 2)])

    first, *others = [message for _, message in source.fetches]
    assert asked(first) == {0: 0, 1: 0, 2: 0}
    assert first.isolation_level == 1
    assert all(1 not in asked(message) for message in others)
    assert source.sessions == 1
    assert reading.ends == {0: 3, 1: 0, 2: 1}


def test_aborted_transactions_are_handed_on(reading: Reading, source: WireCluster) -> None:
    source.logs[0].aborted = [(5, 0)]
    source.append(b"a", producer_id=5, attributes=0x10)
    reading.open()

    reading.until(lambda: reading.batches)

    assert reading.aborted == [(5, 0)]


def test_answer_to_a_read_of_uncommitted_records_is_requested_again(
    reading: Reading, source: WireCluster
) -> None:
    source.logs[0].aborted = [(5, 0)]
    source.answers[0].uncommitted = 1
    source.append(b"a", producer_id=5, attributes=0x10)
    reading.open()

    reading.until(lambda: reading.batches)

    assert reading.aborted == [(5, 0)]
    assert reading.damage == ["it is the answer to a read of uncommitted records"]


def test_source_that_lists_no_aborted_transactions_is_read(
    reading: Reading, source: WireCluster
) -> None:
    source.answers[0].uncommitted = 3
    source.append(b"a")
    reading.open()
    reading.until(lambda: reading.batches)
    source.append(b"b")

    reading.until(lambda: reading.batches[0] == [(0, 0), (1, 1)])

    assert len(reading.damage) == 1


def test_a_lost_session_is_opened_again(reading: Reading, source: WireCluster) -> None:
    reading.open()
    source.append(b"a")
    reading.until(lambda: reading.batches)
    source.session_error = ErrorCode.invalid_fetch_session_epoch
    reading.until(lambda: source.sessions == 2)
    source.append(b"b")

    reading.until(lambda: reading.batches[0] == [(0, 0), (1, 1)])


def test_what_is_not_to_be_read_is_left_out_and_comes_back(
    reading: Reading, source: WireCluster
) -> None:
    for partition in range(2):
        reading.open(partition)
    source.append(b"a")
    reading.until(lambda: reading.batches)
    reading.unread = {0}
    source.append(b"b")
    source.append(b"x", partition=1)
    reading.until(lambda: 1 in reading.batches)
    assert reading.batches[0] == [(0, 0)]

    reading.unread = set()
    reading.reader.wake()
    reading.until(lambda: reading.batches[0] == [(0, 0), (1, 1)])


def test_a_moved_leader_is_found(reading: Reading, source: WireCluster) -> None:
    source.append(b"a")
    reading.open()
    reading.until(lambda: reading.batches)
    source.led[0] = (2, 5)
    source.append(b"b")

    reading.until(lambda: reading.batches[0] == [(0, 0), (1, 1)])

    assert source.fetches[-1][0] == 2
    assert reading.problems == {}


def test_a_broker_that_is_away_is_reported_and_waited_for(
    reading: Reading, source: WireCluster
) -> None:
    source.append(b"a")
    reading.open()
    reading.until(lambda: reading.batches)
    source.brokers[1].drop()
    source.append(b"b")

    reading.until(lambda: reading.batches[0] == [(0, 0), (1, 1)])

    assert reading.said
    assert reading.problems == {}


def test_an_offset_that_is_gone_is_a_problem(reading: Reading, source: WireCluster) -> None:
    source.logs[0].start = 50
    reading.open(offset=7)

    reading.until(lambda: reading.problems)

    gone = reading.problems[0]
    assert isinstance(gone, OffsetGone)
    assert (gone.offset, gone.diverged_at) == (7, None)
    assert "offset 7 does not exist, the log holds no offsets" in str(gone)


def test_an_offset_that_is_there_is_read_without_its_epoch(
    reading: Reading, source: WireCluster
) -> None:
    source.answers[0].error = lambda _, asked: (
        ErrorCode.offset_out_of_range if asked.last_fetched_epoch >= 0 else ErrorCode.none
    )
    source.append(b"a")
    reading.open(leader_epoch=2)

    reading.until(lambda: reading.batches)

    assert reading.problems == {}


def test_a_log_that_was_truncated_is_a_problem(reading: Reading, source: WireCluster) -> None:
    source.answers[0].diverging = [(3, 5)] * 9
    source.logs[0].entries = [MARKER] * 9
    reading.open(offset=8, leader_epoch=4)

    reading.until(lambda: reading.problems)

    gone = reading.problems[0]
    assert isinstance(gone, OffsetGone)
    assert (gone.offset, gone.diverged_at) == (8, 5)


def test_old_brokers_are_read_by_topic_names(old_reading: Reading, old_source: WireCluster) -> None:
    for partition in range(3):
        old_reading.open(partition)
    old_source.append(b"a", b"b")
    old_source.append(b"c", partition=2)
    old_reading.until(lambda: old_reading.batches == {0: [(0, 1)], 2: [(0, 0)]})
    old_source.append(b"d")
    old_reading.until(lambda: old_reading.batches[0] == [(0, 1), (2, 2)])

    assert old_reading.problems == {}
    assert old_source.sessions == 1
    assert old_source.epoch_requests == [], "nothing was read before"


def test_a_log_of_an_old_broker_is_compared_after_each_election(
    old_reading: Reading, old_source: WireCluster
) -> None:
    old_source.append(b"a", b"b")
    old_reading.open(leader_epoch=3)
    old_reading.until(lambda: old_reading.batches == {0: [(0, 1)]})
    assert old_source.epoch_requests == [(4, 3)]

    old_source.led[0] = (2, 6)
    old_source.brokers[1].drop()
    old_source.append(b"c")
    old_reading.until(lambda: old_reading.batches == {0: [(0, 1), (2, 2)]})

    read_epoch = 0  # of the batches
    assert old_source.epoch_requests == [(4, 3), (6, read_epoch)]


@pytest.mark.parametrize("epoch_end", [(3, 5), (4, 5)])
def test_a_truncated_log_of_an_old_broker_is_a_problem(
    old_reading: Reading, old_source: WireCluster, epoch_end: tuple[int, int]
) -> None:
    old_source.logs[0].entries = [MARKER] * 9
    old_source.answers[0].epoch_end = epoch_end
    old_reading.open(offset=8, leader_epoch=4)

    old_reading.until(lambda: old_reading.problems)

    gone = old_reading.problems[0]
    assert isinstance(gone, OffsetGone)
    assert (gone.offset, gone.diverged_at) == (8, 5)
    assert f"where its leader epoch {epoch_end[0]} ends" in str(gone)
    assert old_source.fetches == []


def test_an_old_broker_that_knows_no_such_epoch_is_asked_for_its_offsets(
    old_reading: Reading, old_source: WireCluster
) -> None:
    old_source.append(b"a", b"b")
    for answers in old_source.answers.values():
        answers.epoch_end = (-1, -1)
    old_reading.open(offset=1, leader_epoch=2)
    old_reading.open(1, offset=7, leader_epoch=2)

    old_reading.until(lambda: old_reading.batches and old_reading.problems)

    assert old_reading.batches == {0: [(0, 1)]}
    assert "offset 7 does not exist" in str(old_reading.problems[1])


def test_a_topic_that_was_created_again_is_a_problem(reading: Reading, source: WireCluster) -> None:
    source.append(b"a")
    reading.open()
    reading.until(lambda: reading.batches)
    source.topic_id = UUID(int=8)
    source.answers[0].error = lambda _, asked: ErrorCode.unknown_topic_id

    source.append(b"b")
    source.brokers[1].drop()  # the request in flight names the old id
    reading.until(lambda: reading.problems)

    assert isinstance(reading.problems[0], Retriable)
    assert "created again" in str(reading.problems[0])


def test_a_missing_right_is_a_problem_of_its_partition(
    reading: Reading, source: WireCluster
) -> None:
    source.answers[0].error = lambda *_: ErrorCode.topic_authorization_failed
    source.append(b"x", partition=1)
    for partition in range(2):
        reading.open(partition)

    reading.until(lambda: reading.problems and 1 in reading.batches)

    assert isinstance(reading.problems[0], Fatal)
    assert "grant the principal permissions" in str(reading.problems[0])


def test_a_damaged_log_is_a_problem_with_partition_and_offset(
    reading: Reading, source: WireCluster
) -> None:
    source.append(b"a")
    damaged = bytearray(source.logs[0].batches[0])
    damaged[16] = 9  # a format that does not exist
    source.logs[0].batches[0] = bytes(damaged)
    source.append(b"x", partition=1)
    for partition in range(2):
        reading.open(partition)

    reading.until(lambda: reading.problems and 1 in reading.batches)

    assert isinstance(reading.problems[0], Fatal)
    assert "could not read orders-0 offset 0 of east" in str(reading.problems[0])


def test_a_broker_that_sends_garbage_once_is_asked_again(
    reading: Reading, source: WireCluster
) -> None:
    source.append(b"a")
    damaged = bytearray(source.logs[0].batches[0])
    damaged[16] = 9  # a format that does not exist
    source.answers[0].garbage = [bytes(damaged)] * 2
    reading.open()

    reading.until(lambda: reading.batches)

    assert reading.problems == {}


def test_a_batch_that_does_not_fit_is_asked_for_with_its_size(
    reading: Reading, source: WireCluster
) -> None:
    """Brokers send only the first batch of an answer whole."""
    source.append(b"first")
    source.append(b"x" * (3 << 20), partition=1)
    for partition in range(2):
        reading.open(partition)

    reading.until(lambda: len(reading.batches) == 2)

    sizes = [
        one.partition_max_bytes
        for _, message in source.fetches
        for topic in message.topics
        for one in topic.partitions
        if one.partition == 1
    ]
    assert sizes[0] == 1 << 20
    assert sizes[1] == len(source.logs[1].batches[0])


def test_a_follower_in_our_rack_is_read_until_it_fails(
    reading: Reading, source: WireCluster
) -> None:
    source.answers[0].preferred = 2
    source.append(b"a")
    reading.open()
    reading.until(lambda: reading.batches)
    assert source.fetches[-1][0] == 2
    assert source.fetches[-1][1].rack_id == "here"
    source.answers[0].error = lambda node, _: (
        ErrorCode.offset_out_of_range if node == 2 else ErrorCode.none
    )
    source.answers[0].preferred = -1
    source.append(b"b")

    reading.until(lambda: reading.batches[0] == [(0, 0), (1, 1)])

    assert source.fetches[-1][0] == 1
    assert reading.problems == {}


def test_what_was_not_readable_is_fetched_once_the_target_has_taken_something(
    reading: Reading, source: WireCluster
) -> None:
    source.append(b"a")
    reading.unread = {0}
    reading.open()
    for _ in range(20):
        reading.loop.run_once(0.01)
    assert source.fetches == []
    reading.unread = set()
    reading.reader.wake_left_out()
    reading.until(lambda: reading.batches == {0: [(0, 0)]})


def test_a_request_asks_for_much_only_while_there_is_more_than_the_last_one_brought(
    reading: Reading, source: WireCluster
) -> None:
    source.append(b"a")
    reading.open()
    reading.until(lambda: len(source.fetches) == 2)
    assert reading.batches[0] == [(0, 0)]
    assert [message.max_bytes for _, message in source.fetches] == [4 << 20, MIN_BYTES]
    assert reading.memory.asked_bytes == 0


def test_what_requests_under_way_may_bring_is_not_asked_for_again(
    loop: EventLoop, source: WireCluster
) -> None:
    patient, memory = ConnectionSettings(fetch_wait_ms=1000 * int(WITHIN_S)), Memory(5 << 20)
    reading = Reading(loop, source, settings=patient, memory=memory)
    reading.open()
    reading.until(lambda: source.fetches)
    assert memory.asked_bytes == (4 << 20) - MIN_BYTES
    other = Reading(loop, source, settings=patient, memory=memory)
    other.open()
    other.until(lambda: len(source.fetches) == 2)
    assert source.fetches[1][1].max_bytes == (1 << 20) + MIN_BYTES
    for one in (reading, other):
        one.close()
    reading.until(lambda: not memory.asked_bytes)


def test_fetches_have_the_sizes_and_waits_that_are_set(
    loop: EventLoop, source: WireCluster
) -> None:
    settings = ConnectionSettings(
        fetch_wait_ms=70, fetch_min_bytes=10, fetch_max_bytes=200_000, partition_bytes=5_000
    )
    reading = Reading(loop, source, settings=settings)
    reading.open()
    reading.until(lambda: source.fetches)

    (_, asked), *_ = source.fetches
    assert (asked.max_wait.total_seconds(), asked.min_bytes) == (0.07, 10)
    assert asked.max_bytes == 200_000
    assert asked.topics[0].partitions[0].partition_max_bytes == 5_000
    reading.close()


def test_nothing_more_is_fetched_than_memory_is_for(loop: EventLoop, source: WireCluster) -> None:
    reading = Reading(loop, source, memory=Memory(1000))
    reading.held = []
    source.append(b"x" * 2000)
    reading.open()
    reading.until(lambda: reading.batches)
    source.append(b"y")
    for _ in range(20):
        loop.run_once(0.01)
    assert len(source.brokers[1].requests(FETCH)) == 1

    held, reading.held = reading.held, None
    for one in held:
        one.release()
    reading.until(lambda: reading.batches[0] == [(0, 0), (1, 1)])
    assert reading.memory.held_bytes == 0
    reading.close()


def test_a_divergence_that_one_answer_reports_is_no_loss(
    reading: Reading, source: WireCluster
) -> None:
    source.append(b"a", b"b")
    source.answers[0].diverging = [(3, 1)]
    reading.open(offset=0, leader_epoch=4)

    reading.until(lambda: reading.batches)

    assert reading.batches == {0: [(0, 1)]}
    assert reading.problems == {}


def test_an_answer_that_names_a_partition_twice_is_not_used(
    reading: Reading, source: WireCluster
) -> None:
    """In the second part, one bit of the number of partition 1 was flipped."""
    source.append(b"a")
    source.append(b"x", partition=1)
    source.repeats_partition = True
    for partition in range(2):
        reading.open(partition)

    reading.until(lambda: len(reading.batches) == 2)

    assert reading.batches == {0: [(0, 0)], 1: [(0, 0)]}
    assert reading.damage == ["it names the partition twice"]
    assert source.sessions == 2


def test_a_request_that_was_damaged_is_sent_again_in_the_session(
    reading: Reading, source: WireCluster
) -> None:
    """Name the partition again: the broker's session may have another offset."""
    source.append(b"a")
    damaged = bytearray(source.logs[0].batches[0])
    damaged[16] = 9  # a format that does not exist
    source.answers[0].garbage = [bytes(damaged)]
    reading.open()

    reading.until(lambda: reading.batches)

    requests = [asked(message) for _, message in source.fetches]
    assert requests[:2] == [{0: 0}, {0: 0}]
    assert source.sessions == 1
    assert len(reading.damage) == 1


@pytest.fixture
def impatient(loop: EventLoop, source: WireCluster) -> Iterator[Reading]:
    """Return a reading whose fetches expire after 0.25 s."""
    settings = ConnectionSettings(request_timeout_s=0.2, fetch_wait_ms=50)
    reading = Reading(loop, source, settings=settings)
    yield reading
    reading.close()


def test_a_partition_without_answers_delays_no_other_of_its_broker(
    impatient: Reading, source: WireCluster
) -> None:
    for partition in range(3):
        impatient.open(partition)
    source.unanswered = {1}
    for partition in range(3):
        source.append(b"a", partition=partition)

    impatient.until(lambda: impatient.batches == {0: [(0, 0)], 2: [(0, 0)]})
    source.append(b"b")
    impatient.until(lambda: impatient.batches[0] == [(0, 0), (1, 1)])
    source.unanswered = set()
    impatient.until(lambda: impatient.batches.get(1) == [(0, 0)])

    assert impatient.problems == {}
    assert any("no answer to fetch in time" in said for said in impatient.said)


def test_partitions_that_are_answered_again_share_requests_again(
    impatient: Reading, source: WireCluster
) -> None:
    for partition in range(3):
        impatient.open(partition)
    source.unanswered = {0, 1, 2}
    impatient.until(lambda: impatient.said)
    source.unanswered = set()

    impatient.until(lambda: set(asked(source.fetches[-1][1])) == {0, 1, 2})


def test_a_partition_without_answers_is_known_until_it_is_answered(
    impatient: Reading, source: WireCluster
) -> None:
    def silent() -> set[int]:
        return {at.partition for at in impatient.reader.silence.since_s}

    for partition in range(3):
        impatient.open(partition)
    source.unanswered = {1}
    impatient.until(lambda: silent() == {1})
    source.unanswered = set()

    impatient.until(lambda: not silent())


def test_a_partition_that_is_not_to_be_read_is_not_silent(
    impatient: Reading, source: WireCluster
) -> None:
    source.unanswered = {0}
    impatient.open(0)
    impatient.until(lambda: impatient.reader.silence.since_s)
    impatient.unread = {0}

    impatient.until(lambda: not impatient.reader.silence.since_s)
