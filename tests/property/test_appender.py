"""For any errors on the way to the target in any order, each record arrives once, in order."""

from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from support.appending import IDENTITY, Appending
from support.examples import one_in
from support.fake_broker import serving
from support.wire_kafka import LOST, REFUSED, TOPIC, UNANSWERED, Fault, Refusal, wire_cluster

from headrace.api import TopicPartition
from headrace.kafka.wire import Batch, EventLoop

DAMAGED = Refusal(ErrorCode.corrupt_message)
TOO_LARGE = Refusal(ErrorCode.message_too_large)
FAULTS: list[Fault] = [
    None,
    UNANSWERED,
    LOST,
    Refusal(ErrorCode.not_leader_or_follower),
    REFUSED,
    TOO_LARGE,
    DAMAGED,
]


@one_in(4)
@given(
    faults=st.lists(st.sampled_from(FAULTS), max_size=6).filter(
        lambda faults: faults.count(DAMAGED) <= 3  # more is not a bad wire any more
    ),
    moves=st.lists(st.booleans(), max_size=12),
    sizes=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4)), min_size=1, max_size=14),
)
def test_each_record_is_appended_once_and_in_order(
    faults: list[Fault], moves: list[bool], sizes: list[tuple[int, int]]
) -> None:
    pending, leaders = list(faults), list(moves)

    def fault(partition: int, batch: Batch) -> Fault:
        if leaders and leaders.pop(0):
            leader, epoch = target.led[partition]
            target.led[partition] = (3 - leader, epoch + 1)
        found = pending.pop(0) if pending else None
        # A single record cannot be split, and a batch that is already appended is not too large.
        known = target.producer_states.get((TopicPartition(TOPIC, partition), IDENTITY.producer_id))
        appended = [one[:2] for one in known.last_five] if known else []
        fits = batch.record_count == 1 or (batch.base_sequence, batch.record_count) in appended
        return None if found == TOO_LARGE and fits else found

    with serving() as serve, closing(EventLoop()) as loop:
        target = wire_cluster(serve, "west", 2)
        target.fault = fault
        with closing(Appending(loop, target)) as appending:
            expected: dict[int, list[bytes]] = {0: [], 1: []}
            for number, (partition, count) in enumerate(sizes):
                values = [b"%d.%d" % (number, place) for place in range(count)]
                expected[partition] += values
                appending.add(*values, partition=partition)
            appending.until_done()

            assert appending.failed == {}
            assert {place: log.values for place, log in target.logs.items()} == expected
            assert sorted(appending.released) == appending.made
            for partition, acknowledged in appending.acknowledged.items():
                assert [first - 1000 for first, _, _ in acknowledged] == [
                    base_offset for _, _, base_offset in acknowledged
                ]
                assert acknowledged[-1][1] - 1000 == len(expected[partition])
