"""Offsets in responses to produce requests, which no checksum covers."""

import pytest
from support.appending import Appending
from support.wire_kafka import Fault, Misreported, WireCluster

from headrace.api import TopicPartition
from headrace.kafka.wire import Batch

AT = TopicPartition("orders", 0)
VALUES = [str(number).encode() for number in range(7)]


class Flip:
    """One damaged response: the one for the first answer to a batch of partition 0."""

    def __init__(self, sequence: int, bit: int) -> None:
        self.sequence, self.bit, self.done = sequence, bit, False

    def __call__(self, partition: int, batch: Batch) -> Fault:
        if self.done or partition or batch.base_sequence != self.sequence:
            return None
        self.done = True
        return Misreported(batch.base_sequence ^ 1 << self.bit)


@pytest.mark.parametrize("bit", [0, 1, 45, 62])
@pytest.mark.parametrize("sequence", range(len(VALUES)))
def test_damaged_offset_is_corrected_by_second_response(
    appending: Appending, target: WireCluster, sequence: int, bit: int
) -> None:
    target.fault = flip = Flip(sequence, bit)
    appending.appender.expect(AT, 0)
    for value in VALUES:
        appending.add(value)
    appending.until_done()

    assert target.logs[0].values == VALUES
    assert [base for _, _, base in appending.acknowledged[0]] == list(range(len(VALUES)))
    assert sorted(appending.released) == appending.made
    wrong = sequence ^ 1 << bit
    assert flip.done
    assert appending.damaged == [
        f"{AT}: a batch was appended at offset {wrong}, then at {sequence}"
    ]


def test_offset_that_two_responses_contain_is_believed(
    appending: Appending, target: WireCluster
) -> None:
    appending.appender.expect(AT, 0)
    appending.add(b"a")
    appending.until_done()
    target.cluster.append("orders", b"of another writer")
    appending.add(b"b")
    appending.add(b"c")
    appending.until_done()

    assert [base for _, _, base in appending.acknowledged[0]] == [0, 2, 3]
    sent = [request[0] for request in target.sent]
    assert len(sent) == 4
    assert sent.count(sent[1]) == 2, "the batch at the unexpected offset is sent twice"
    assert not appending.damaged
    assert not appending.waiting


def test_expected_offsets_need_no_second_response(
    appending: Appending, target: WireCluster
) -> None:
    appending.appender.expect(AT, 0)
    for value in VALUES:
        appending.add(value)
    appending.until_done()

    assert len(target.sent) == len(VALUES)


def test_marker_after_each_transaction_is_expected(
    appending: Appending, target: WireCluster
) -> None:
    appending.appender.expect(AT, 0)
    appending.add(b"a")
    appending.until_done()
    appending.appender.hold()
    target.cluster.append("orders", b"marker")
    appending.appender.hold()  # a transaction without this partition
    appending.appender.admit([AT])
    appending.add(b"b")
    appending.until_done()

    assert [base for _, _, base in appending.acknowledged[0]] == [0, 2]
    assert len(target.sent) == 2


def test_offsets_are_not_checked_without_an_expected_one(
    appending: Appending, target: WireCluster
) -> None:
    appending.add(b"a")
    appending.until_done()
    target.cluster.append("orders", b"of another writer")
    appending.add(b"b")
    appending.until_done()

    assert [base for _, _, base in appending.acknowledged[0]] == [0, 2]
    assert len(target.sent) == 2
