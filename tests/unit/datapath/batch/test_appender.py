"""Batches in flight to the target arrive in order and once, for any failures of its brokers."""

import pytest
from kio.schema.errors import ErrorCode
from support.appending import IDENTITY, Appending
from support.batches import record_batch
from support.producer_state import ProducerState
from support.wire_kafka import LOST, REFUSED, UNANSWERED, Fault, Refusal, Unreadable, WireCluster

from headrace.api import TopicPartition
from headrace.datapath.spans import BatchCorrupt, BatchRefused, Indefinite
from headrace.kafka.wire import Batch, RefusedForGood

AT = TopicPartition("orders", 0)


class Once:
    """Faults, one for each batch, and then none."""

    def __init__(self, *faults: Fault, partition: int = 0) -> None:
        self.faults, self.partition = list(faults), partition

    def __call__(self, partition: int, batch: Batch) -> Fault:
        return self.faults.pop(0) if self.faults and partition == self.partition else None


def numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def test_batches_are_appended_in_order_and_acknowledged_with_their_offsets(
    appending: Appending, target: WireCluster
) -> None:
    appending.add(b"a", b"b")
    appending.add(b"c")
    appending.add(b"x", partition=2)
    appending.until_done()

    assert target.logs[0].values == [b"a", b"b", b"c"]
    assert target.logs[2].values == [b"x"]
    assert appending.acknowledged == {
        0: [(1000, 1002, 0), (1002, 1003, 2)],
        2: [(1000, 1001, 0)],
    }
    assert sorted(appending.released) == appending.made
    assert appending.appender.pending == 0


def test_a_request_has_a_batch_of_each_partition(appending: Appending, target: WireCluster) -> None:
    for value in numbered(2):
        for partition in range(3):
            appending.add(value, partition=partition)
    appending.until_done()

    assert [sorted(request) for request in target.sent] == [[0, 1, 2], [0, 1, 2]]


def test_five_requests_are_in_flight(appending: Appending, target: WireCluster) -> None:
    appending.become_known()
    target.unanswered = {0}
    for value in numbered(8):
        appending.add(value)
    appending.until(lambda: len(target.sent) == 5)
    for _ in range(3):
        appending.appender.flush()
        appending.loop.run_once(0)
    first = list(target.sent)
    target.unanswered = set()
    target.brokers[1].drop()
    appending.until_done()

    assert target.sent[: len(first)] == first
    assert target.sent[5:10] == first  # the same bytes
    assert target.logs[0].values == [b"first", *numbered(8)]
    assert sorted(appending.released) == appending.made


def test_what_was_appended_and_not_answered_is_not_doubled(
    appending: Appending, target: WireCluster
) -> None:
    target.fault = Once(None, UNANSWERED)
    for value in numbered(4):
        appending.add(value)
    appending.until_done()

    assert target.logs[0].values == numbered(4)
    assert [base for _, _, base in appending.acknowledged[0]] == [0, 1, 2, 3]


def test_what_was_not_appended_is_sent_again(appending: Appending, target: WireCluster) -> None:
    target.fault = Once(LOST, REFUSED)
    for value in numbered(4):
        appending.add(value)
    appending.until_done()

    assert target.logs[0].values == numbered(4)


def test_an_acknowledgement_waits_for_those_before_it(
    appending: Appending, target: WireCluster
) -> None:
    # The first one is appended with late replicas. The second one is acknowledged at once.
    def late(partition: int, batch: Batch) -> Fault:
        if batch.base_sequence == 0 and len(target.sent) < 4:
            target.decide(AT, batch)
            return Refusal(ErrorCode.not_enough_replicas_after_append)
        return None

    target.fault = late
    for value in numbered(3):
        appending.add(value)
    appending.until_done()

    assert target.logs[0].values == numbered(3)
    assert [first for first, _, _ in appending.acknowledged[0]] == [1000, 1001, 1002]


def test_it_follows_the_leader(appending: Appending, target: WireCluster) -> None:
    appending.add(b"a")
    appending.until_done()
    target.led[0] = (2, 5)
    appending.add(b"b")
    appending.add(b"c")
    appending.until_done()

    assert target.logs[0].values == [b"a", b"b", b"c"]
    assert target.brokers[2].requests(0)


def test_a_partition_without_a_leader_holds_up_no_other(
    appending: Appending, target: WireCluster
) -> None:
    target.led[1] = (-1, 5)
    appending.add(b"later", partition=1)
    appending.add(b"now", partition=0)
    appending.until(lambda: bool(appending.waiting))

    assert target.logs[0].values == [b"now"]
    assert "orders-1 on west" in appending.waiting[0]
    assert "has no leader" in appending.waiting[0]
    target.led[1] = (2, 6)
    appending.until_done()
    assert target.logs[1].values == [b"later"]


def test_a_broker_that_is_away_holds_up_no_other(appending: Appending, target: WireCluster) -> None:
    target.led[1] = (2, 5)
    target.brokers[2].close()
    appending.add(b"later", partition=1)
    appending.add(b"now", partition=0)
    appending.until(lambda: bool(appending.waiting))

    assert target.logs[0].values == [b"now"]
    target.led[1] = (1, 6)
    appending.until_done()
    assert target.logs[1].values == [b"later"]


def test_a_batch_that_is_too_large_is_split(appending: Appending, target: WireCluster) -> None:
    def too_large(partition: int, batch: Batch) -> Fault:
        return Refusal(ErrorCode.message_too_large) if batch.record_count > 2 else None

    target.fault = too_large
    appending.add(b"before")
    appending.add(*numbered(7))
    appending.add(b"after")
    appending.until_done()

    assert target.logs[0].values == [b"before", *numbered(7), b"after"]
    acknowledged = appending.acknowledged[0]
    assert [source - 1000 for source, _, _ in acknowledged] == [
        target for _, _, target in acknowledged
    ]
    assert [start for start, _, _ in acknowledged[1:]] == [end for _, end, _ in acknowledged[:-1]]
    assert sorted(appending.released) == appending.made


def test_a_record_that_is_too_large_is_reported(appending: Appending, target: WireCluster) -> None:
    def too_large(partition: int, batch: Batch) -> Fault:
        return Refusal(ErrorCode.message_too_large) if len(batch.data) > 200 else None

    target.fault = too_large
    appending.add(b"a", b"b" * 200, b"c", b"d")
    appending.until_done()

    error = appending.failed[0]
    assert isinstance(error, BatchRefused)
    assert (error.at, error.offsets, error.code) == (AT, range(1001, 1002), "MESSAGE_TOO_LARGE")
    assert "raise max.message.bytes" in str(error)
    assert target.logs[0].values == [b"a"]


def test_a_batch_that_cannot_be_split_is_reported(
    appending: Appending, target: WireCluster
) -> None:
    target.fault = Once(Refusal(ErrorCode.message_too_large))
    unknown_codec = record_batch([b"a", b"b"], base_offset=1000, attributes=5)
    appending.add(content=unknown_codec)
    appending.until_done()

    error = appending.failed[0]
    assert isinstance(error, BatchRefused)
    assert (error.offsets, error.code) == (range(1000, 1002), "MESSAGE_TOO_LARGE")
    assert "a codec that this client does not know" in str(error)
    assert sorted(appending.released) == appending.made


def test_a_refused_record_is_named_and_nothing_after_it_is_appended(
    appending: Appending, target: WireCluster
) -> None:
    target.fault = Once(None, Refusal(ErrorCode.invalid_record, (1, 2), "no key"))
    appending.add(b"a")
    appending.add(*numbered(4))
    appending.add(b"after")
    appending.add(b"other", partition=1)
    appending.until_done()

    error = appending.failed[0]
    assert isinstance(error, BatchRefused)
    assert (error.offsets, error.code) == (range(1002, 1004), "INVALID_RECORD")
    assert "append source offsets 1001 to 1004 to orders-0 on west" in str(error)
    assert "no key" in str(error)
    assert target.logs[0].values == [b"a"]
    assert target.logs[1].values == [b"other"]
    assert sorted(appending.released) == appending.made
    appending.add(b"too late")
    assert sorted(appending.released) == appending.made


def test_nothing_is_appended_after_a_first_batch_that_is_refused(
    appending: Appending, target: WireCluster
) -> None:
    """Brokers accept any sequence of an unknown producer."""
    target.fault = Once(Refusal(ErrorCode.invalid_record))
    appending.add(b"a")
    appending.add(b"after")
    appending.until_done()

    assert isinstance(appending.failed[0], BatchRefused)
    assert target.logs[0].values == []


def test_what_comes_first_after_a_long_rest_is_sent_by_itself(
    appending: Appending, target: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    appending.add(b"a")
    appending.until_done()
    target.producer_states.clear()  # it has forgotten the producer
    now_s = appending.loop.now_s
    monkeypatch.setattr(appending.loop, "now_s", lambda: now_s() + 1_000)
    target.fault = Once(Refusal(ErrorCode.invalid_record))
    appending.add(b"b")
    appending.add(b"after")
    appending.until_done()

    assert isinstance(appending.failed[0], BatchRefused)
    assert target.logs[0].values == [b"a"]


def test_a_sequence_that_the_target_does_not_expect_is_indefinite(
    appending: Appending, target: WireCluster
) -> None:
    appending.add(b"a")
    appending.until_done()
    # Another owner of the identity appended in between.
    target.producer_states[AT, IDENTITY.producer_id] = ProducerState(
        IDENTITY.epoch, 501, [(500, 1, 0)]
    )
    appending.add(b"b")
    appending.add(b"c")
    appending.until_done()

    error = appending.failed[0]
    assert isinstance(error, Indefinite)
    assert (error.offset, error.code) == (1001, "OUT_OF_ORDER_SEQUENCE_NUMBER")
    assert target.logs[0].values == [b"a"]


def test_a_producer_that_is_fenced_is_indefinite(appending: Appending, target: WireCluster) -> None:
    target.fault = Once(Refusal(ErrorCode.invalid_producer_epoch), partition=1)
    appending.add(b"a", partition=1)
    appending.add(b"b")
    appending.until_done()

    assert isinstance(appending.failed[1], Indefinite)
    assert target.logs[0].values == [b"b"]


def test_an_error_of_which_nothing_is_known_is_indefinite(
    appending: Appending, target: WireCluster
) -> None:
    target.fault = Once(Refusal(ErrorCode.unknown_server_error))
    appending.add(b"a")
    appending.until_done()

    error = appending.failed[0]
    assert isinstance(error, Indefinite)
    assert error.code == "UNKNOWN_SERVER_ERROR"
    assert len(target.sent) == 1


def test_answers_that_cannot_be_read_end_in_an_error_and_leave_others_alone(
    appending: Appending, target: WireCluster
) -> None:
    target.fault = lambda partition, _: Unreadable() if partition == 1 else None
    appending.add(b"a", partition=1)
    appending.until(lambda: 1 in appending.failed)
    appending.add(b"b")
    appending.until_done()

    error = appending.failed[1]
    assert isinstance(error, Indefinite)
    assert (error.offset, error.code) == (1000, "UNREADABLE_ANSWER")
    assert "a response to produce cannot be read" in str(error)
    assert "5 answers in a row, so that it is not known what of orders-1 is appended" in str(error)
    assert len(set(map(repr, target.sent[:5]))) == 1, "the same bytes, while it was tried"
    assert target.logs[1].values == [b"a"]
    assert target.logs[0].values == [b"b"]
    assert sorted(appending.released) == appending.made


def test_an_answer_that_cannot_be_read_now_and_then_is_no_error(
    appending: Appending, target: WireCluster
) -> None:
    target.fault = Once(*[Unreadable(), Unreadable(), Unreadable(), None] * 2)
    for value in numbered(2):
        appending.add(value)
        appending.until_done()

    assert target.logs[0].values == numbered(2)
    assert not appending.failed


def test_a_missing_right_is_reported(appending: Appending, target: WireCluster) -> None:
    target.fault = Once(Refusal(ErrorCode.topic_authorization_failed))
    appending.add(b"a")
    appending.until_done()

    assert isinstance(appending.failed[0], RefusedForGood)
    assert "grant the principal permissions on this topic" in str(appending.failed[0])


def test_a_damaged_batch_is_never_appended(appending: Appending, target: WireCluster) -> None:
    content = record_batch([b"a", b"b"], base_offset=1000)
    content[-3] ^= 1
    appending.add(content=content)
    appending.until_done()

    error = appending.failed[0]
    assert isinstance(error, BatchCorrupt)
    assert error.offset == 1000
    assert target.logs[0].values == []


def test_what_is_damaged_on_its_way_is_sent_again(
    appending: Appending, target: WireCluster
) -> None:
    target.fault = Once(Refusal(ErrorCode.corrupt_message))
    appending.add(b"a")
    appending.until_done()

    assert target.logs[0].values == [b"a"]


def test_what_is_damaged_each_time_is_refused(appending: Appending, target: WireCluster) -> None:
    target.fault = Once(None, *[Refusal(ErrorCode.corrupt_message)] * 4)
    appending.add(b"a")
    appending.add(b"b")
    appending.until_done()

    error = appending.failed[0]
    assert isinstance(error, BatchRefused)
    assert (error.offsets, error.code) == (range(1001, 1002), "CORRUPT_MESSAGE")
    assert target.logs[0].values == [b"a"]


def test_what_was_never_sent_is_dropped_when_a_partition_is_left(
    appending: Appending, target: WireCluster
) -> None:
    appending.become_known()
    target.unanswered = {0}
    for value in numbered(8):
        appending.add(value)
    appending.until(lambda: len(target.sent) == 5)
    appending.appender.leave([AT])

    assert sorted(appending.released) == [0, 6, 7, 8]
    target.unanswered = set()
    target.brokers[1].drop()
    appending.next_offsets[0] = 1006
    appending.add(b"kept")
    appending.until_done()
    assert target.logs[0].values == [b"first", *numbered(5), b"kept"]


def test_close_releases_what_is_not_on_the_wire_and_the_rest_when_it_comes_back(
    appending: Appending, target: WireCluster
) -> None:
    appending.become_known()
    target.unanswered = {0}
    for value in numbered(8):
        appending.add(value)
    appending.until(lambda: len(target.sent) == 5)
    appending.appender.close()

    assert sorted(appending.released) == [0, 6, 7, 8]
    appending.leaders.close()
    assert sorted(appending.released) == appending.made
    appending.add(b"too late")
    assert sorted(appending.released) == appending.made


def test_tasks_share_requests(appending: Appending, target: WireCluster) -> None:
    other = Appending(appending.loop, target, appending.leaders)
    appending.become_known(partition=0)
    other.become_known(partition=1)
    for value in numbered(2):
        appending.add(value, partition=0)
        other.add(value, partition=1)
    appending.until_done()
    other.until_done()

    assert [sorted(request) for request in target.sent] == [[0, 1], [0, 1]]
    assert appending.acknowledged.keys() == {0}
    assert other.acknowledged.keys() == {1}
    assert sorted(other.released) == other.made


def test_a_task_that_ends_leaves_the_requests_of_others_alone(
    appending: Appending, target: WireCluster
) -> None:
    other = Appending(appending.loop, target, appending.leaders)
    other.add(b"ends")
    appending.add(b"a", partition=1)
    other.appender.close()
    appending.until_done()

    assert [sorted(request) for request in target.sent] == [[1]]
    assert target.logs[1].values == [b"a"]
    assert not other.acknowledged


def test_a_request_has_one_batch_of_a_partition_whoever_sends_it(
    appending: Appending, target: WireCluster
) -> None:
    later = Appending(appending.loop, target, appending.leaders)
    appending.add(b"a")
    later.add(b"b")
    appending.appender.flush()
    appending.until_done()
    later.until(lambda: len(target.sent) == 2)

    assert [sorted(request) for request in target.sent] == [[0], [0]]


def test_without_a_cluster_it_says_so_and_tries_on(
    appending: Appending, target: WireCluster
) -> None:
    for broker in target.brokers.values():
        broker.close()
    appending.add(b"a")
    appending.until(lambda: bool(appending.waiting))

    assert "no broker of west" in appending.waiting[0]
    assert not appending.failed
