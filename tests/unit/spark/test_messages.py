import zlib
from collections import Counter
from typing import cast

import pytest

from headrace.api import MessageFormat, TopicPartition
from headrace.kafka import Message
from headrace_spark import messages

RUN = "261121-073012-1a2b"
AT = TopicPartition("orders", 5)
PRODUCER = messages.producer_id(RUN, 3, 0)
NAME = (PRODUCER.encode(), b"12")


class Received:
    """Record as received by a consumer."""

    def __init__(
        self, value: bytes | None, headers: messages.Headers | None = None, timestamp_ms: int = 7
    ) -> None:
        self._value, self._headers, self._timestamp_ms = value, headers, timestamp_ms

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> messages.Headers | None:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp_ms


def recognise(record: Received) -> messages.Sighting | None:
    return messages.recognise(cast("Message", record), RUN.encode())


@pytest.mark.parametrize("size", [1, 40, 64, 100, 1024, 100_000])
def test_a_message_has_the_size_asked_for_and_its_checksum(size: int) -> None:
    message = messages.MessageFactory(PRODUCER, size).message(AT, 5, 1_795_000_000_000)
    assert len(message.value) == size
    assert message.checksum == zlib.crc32(message.value)
    assert message.headers == [
        ("id", PRODUCER.encode()),
        ("seq", b"5"),
        ("topic", b"orders"),
        ("partition", b"5"),
    ]


def test_the_body_names_producer_number_and_time() -> None:
    value = messages.MessageFactory(PRODUCER, 200).message(AT, 12, 1_795_000_000_000).value
    assert value.split(b";", 3)[:3] == [PRODUCER.encode(), b"12", b"1795000000000"]


def test_the_same_producer_writes_the_same_again_and_another_one_does_not() -> None:
    values = {
        messages.MessageFactory(who, 200).message(AT, 12, 0).value.split(b";", 3)[3]
        for who in (PRODUCER, PRODUCER, messages.producer_id(RUN, 4, 0))
    }
    assert len(values) == 2


def test_no_two_values_of_a_producer_are_equal() -> None:
    writer = messages.MessageFactory(PRODUCER, 64)
    assert len({writer.message(AT, seq, 0).value for seq in range(20_000)}) == 20_000


def test_a_message_is_recognised_by_its_body_whatever_the_target_stamped() -> None:
    message = messages.MessageFactory(PRODUCER, 100).message(AT, 12, 1_795_000_000_000)
    sighting = messages.Sighting(1_795_000_000_000, None, name=NAME, size_bytes=100)
    assert recognise(Received(message.value, None)) == sighting
    assert recognise(Received(message.value, message.headers)) == sighting


def test_a_message_too_short_for_a_body_is_recognised_by_its_headers() -> None:
    message = messages.MessageFactory(PRODUCER, 10).message(AT, 12, 1_795_000_000_000)
    assert recognise(Received(message.value, message.headers)) == messages.Sighting(
        7, None, name=NAME, size_bytes=10
    )
    assert recognise(Received(message.value, None)) is None


def test_a_sentinel_says_which_partition_it_ends() -> None:
    sentinel = messages.sentinel(RUN, AT, 1_795_000_000_000)
    assert recognise(Received(sentinel.value)) == messages.Sighting(1_795_000_000_000, 5)
    assert recognise(Received(b"", sentinel.headers)) == messages.Sighting(7, 5, "orders")


@pytest.mark.parametrize("number", [b"1-", b"-12", b"1-x", b"sentinel-", b"sentinel-5x"])
def test_a_damaged_number_is_no_sentinel(number: bytes) -> None:
    value = b"%b;%b;1795000000000;rest" % (PRODUCER.encode(), number)
    assert recognise(Received(value)) == messages.Sighting(
        1_795_000_000_000, None, name=(PRODUCER.encode(), number), size_bytes=len(value)
    )
    headers: messages.Headers = [("id", RUN.encode()), ("sentinel", number)]
    assert recognise(Received(b"", headers)) == messages.Sighting(7, None, name=(RUN.encode(), b""))


def test_messages_of_two_topics_are_never_equal() -> None:
    """Otherwise a mirror that exchanges the topics would not be detected."""
    writer = messages.MessageFactory(PRODUCER, 100)
    one, two = (writer.message(TopicPartition(topic, 0), 3, 7) for topic in ("t-0", "t-1"))
    assert one != two
    one, two = (messages.sentinel(RUN, TopicPartition(topic, 0), 7) for topic in ("t-0", "t-1"))
    assert one != two


def test_the_body_names_topic_and_partition_where_there_are_no_headers() -> None:
    writer = messages.MessageFactory(PRODUCER, 200, MessageFormat.BODY)
    message = writer.message(AT, 12, 1_795_000_000_000)
    assert (len(message.value), message.headers) == (200, [])
    assert message.value.split(b";")[1:4] == [b"12", b"1795000000000", b"to=orders/5"]
    assert recognise(Received(message.value, [])) == messages.Sighting(
        1_795_000_000_000, None, name=NAME, size_bytes=200
    )
    sentinel = messages.sentinel(RUN, AT, 7, MessageFormat.BODY)
    assert sentinel.headers == []
    assert recognise(Received(sentinel.value)) == messages.Sighting(7, 5, "orders")


@pytest.mark.parametrize(("size", "room"), [(64, False), (80, False), (81, True), (1024, True)])
def test_a_message_without_room_for_them_leaves_them_out(size: int, room: bool) -> None:
    assert messages.has_room("orders", size) is room
    value = messages.MessageFactory(PRODUCER, size, MessageFormat.BODY).message(AT, 12, 0).value
    assert (len(value), b";to=orders/5;" in value) == (size, room)


@pytest.mark.parametrize(
    "record",
    [
        Received(None),
        Received(b"", []),
        Received(b"a stranger's;1;2;3", [("id", b"another-0-0")]),
        Received(b"x", [("id", None)]),
        # from runs whose names begin or end with ours
        Received(f"{RUN}0-0-0;1;2;3".encode()),
        Received(b"", [("id", f"{RUN}0-0-0".encode()), ("seq", b"1")]),
        Received(f"{RUN}-1;sentinel-0;2;".encode()),
    ],
)
def test_a_strangers_record_is_not_recognised(record: Received) -> None:
    assert recognise(record) is None


@pytest.mark.parametrize(("keys", "partitions"), [(8, 8), (12, 8), (3, 1)])
def test_every_partition_is_reached_and_a_key_stays_in_one(keys: int, partitions: int) -> None:
    places: dict[int, set[int]] = {}
    reached: Counter[int] = Counter()
    for seq in range(240):
        partition = messages.partition_of(seq, keys, partitions)
        places.setdefault(messages.key_of(seq, keys), set()).add(partition)
        reached[partition] += 1
    assert set(reached) == set(range(partitions))
    assert all(len(where) == 1 for where in places.values())
