"""Frames written by hand agree with kio, and no bytes of any sender do harm."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import response as fetch_response
from kio.schema.list_offsets.v7 import ListOffsetsRequest, ListOffsetsResponse
from kio.schema.produce.v9 import response as produce_response
from kio.schema.types import BrokerId, ProducerId, TopicName, TransactionalId
from kio.serial import entity_reader
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64
from support.batches import encoded, record_batch

from headrace.kafka.wire.batches import split_batches
from headrace.kafka.wire.errors import CorruptBatch, Garbled
from headrace.kafka.wire.fetch import FetchPosition, FetchResponse, Forgotten, Session, fetch_call
from headrace.kafka.wire.frames import Buffers, Frame
from headrace.kafka.wire.produce import Produced, all_appended, produce_call, produced
from headrace.kafka.wire.protocol import FETCH, PRODUCE, SPOKEN, call, converted
from headrace.kafka.wire.schemas import read_message, read_uvarint, uvarint

i16s, i32s, i64s = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))
records = st.binary(max_size=300)
topics = st.text(min_size=1, max_size=200)


def frame(content: bytes) -> Frame:
    buffer = bytearray(content)
    return Frame(Buffers(), buffer, len(buffer))


def milliseconds(number: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=number))


aborted = st.builds(
    lambda producer_id, first: fetch_response.AbortedTransaction(
        producer_id=ProducerId(producer_id), first_offset=i64(first)
    ),
    i64s,
    i64s,
)
partitions = st.builds(
    lambda index, code, offsets, aborted, replica, content, end, leader: (
        fetch_response.PartitionData(
            partition_index=i32(index),
            error_code=code,
            high_watermark=i64(offsets[0]),
            last_stable_offset=i64(offsets[1]),
            log_start_offset=i64(offsets[2]),
            diverging_epoch=fetch_response.EpochEndOffset(
                epoch=i32(end[0]), end_offset=i64(end[1])
            ),
            current_leader=fetch_response.LeaderIdAndEpoch(
                leader_id=BrokerId(leader[0]), leader_epoch=i32(leader[1])
            ),
            aborted_transactions=aborted,
            preferred_read_replica=BrokerId(replica),
            records=None if content is None else Records(content),
        )
    ),
    i32s,
    st.sampled_from(ErrorCode),
    st.tuples(i64s, i64s, i64s),
    st.none() | st.lists(aborted, max_size=3).map(tuple),
    i32s,
    st.none() | records,
    st.just((-1, -1)) | st.tuples(i32s, i64s),
    st.just((-1, -1)) | st.tuples(i32s, i32s),
)
responses = st.builds(
    lambda throttle, code, session, topics: fetch_response.FetchResponse(
        throttle_time=milliseconds(throttle),
        error_code=code,
        session_id=i32(session),
        responses=tuple(
            fetch_response.FetchableTopicResponse(topic_id=topic, partitions=tuple(partitions))
            for topic, partitions in topics
        ),
    ),
    st.integers(0, 2**31 - 1),
    st.sampled_from(ErrorCode),
    i32s,
    st.lists(st.tuples(st.uuids(), st.lists(partitions, max_size=4)), max_size=3),
)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_varints_come_back(number: int, after: bytes) -> None:
    assert read_uvarint(memoryview(uvarint(number) + after), 0) == (number, len(uvarint(number)))


def read_fetch(given: Frame, place: int = 0, version: int = 13) -> FetchResponse:
    return fetch_call([]).encode(version).read(given, place)


def read_produce(given: Frame, version: int = 9) -> Produced:
    return produce_call({}).encode(version).read(given, 0)


def older(message: Any, key: int, version: int, *, topics: list[str]) -> Any:
    """Return the message in a version that identifies topics by name, which are ``topics``."""
    load = load_request_schema if "Request" in type(message).__name__ else load_response_schema
    schema: Any = load(i16(key), i16(version))
    left = ("topic_id", "last_fetched_epoch", "diverging_epoch", "current_leader")
    changed = converted(message, schema, without=left)
    field = next(one for one in ("topics", "responses") if hasattr(changed, one))
    named = [replace(one, topic=TopicName(name)) for one, name in zip(
        getattr(changed, field), topics, strict=True)]  # fmt: skip
    return replace(changed, **{field: tuple(named)})


@given(responses, st.sampled_from([11, 12, 13]), st.lists(topics, min_size=9, max_size=9))
def test_a_fetch_response_is_read_as_kio_reads_it(
    response: fetch_response.FetchResponse, version: int, names: list[str]
) -> None:
    names = names[: len(response.responses)]
    sent = response if version == 13 else older(response, FETCH, version, topics=names)
    read = read_fetch(frame(b"head" + encoded(sent)), 4, version)

    assert (read.error, read.session_id) == (response.error_code, response.session_id)
    assert timedelta(milliseconds=read.throttle_ms) == response.throttle_time
    assert [one.topic for one in read.partitions] == [
        "" if version == 13 else name
        for name, topic in zip(names, response.responses, strict=True)
        for _ in topic.partitions
    ]
    expected = [(topic.topic_id, one) for topic in response.responses for one in topic.partitions]
    assert len(read.partitions) == len(expected)
    for fetched, (topic_id, one) in zip(read.partitions, expected, strict=True):
        nil = uuid.UUID(int=0)
        assert fetched.topic_id == (topic_id or nil if version == 13 else None)
        assert fetched.partition == one.partition_index
        assert fetched.error == one.error_code
        assert fetched.high_watermark == one.high_watermark
        assert fetched.last_stable_offset == one.last_stable_offset
        assert fetched.log_start_offset == one.log_start_offset
        listed = one.aborted_transactions
        assert fetched.aborted == (
            None if listed is None else [(each.producer_id, each.first_offset) for each in listed]
        )
        assert fetched.preferred_replica == one.preferred_read_replica
        assert bytes(fetched.records) == (one.records or b"")
        if version == 11:
            assert (fetched.diverging, fetched.leader) == (None, None)
            continue
        end, leader = one.diverging_epoch, one.current_leader
        assert (fetched.diverging or (-1, -1)) == (end.epoch, end.end_offset)
        assert (fetched.leader or (-1, -1)) == (leader.leader_id, leader.leader_epoch)


wanted = st.builds(FetchPosition, st.uuids(), i32s, i64s, i32s, i32s, i32s, topics)
forgotten = st.builds(Forgotten, st.uuids(), topics, st.lists(i32s, max_size=3))


@pytest.mark.parametrize("version", [11, 12, 13])
@given(
    st.lists(wanted, max_size=5),
    st.builds(Session, i32s, i32s, st.lists(forgotten, max_size=2)),
    st.integers(0, 1),
    st.text(max_size=5),
)
def test_a_fetch_request_is_read_by_kio(
    version: int, wanted: list[FetchPosition], session: Session, isolation: int, rack: str
) -> None:
    fetch_request: Any = import_module(f"kio.schema.fetch.v{version}.request")
    call = fetch_call(
        wanted, max_wait_ms=7, min_bytes=8, max_bytes=9, isolation=isolation, session=session,
        rack=rack,
    )  # fmt: skip
    grouped: dict[Any, list[FetchPosition]] = {}
    for one in wanted:
        grouped.setdefault(one.topic_id if version == 13 else one.topic, []).append(one)
    topic_field = "topic_id" if version == 13 else "topic"

    request = fetch_request.FetchRequest(
        max_wait=milliseconds(7),
        min_bytes=i32(8),
        max_bytes=i32(9),
        isolation_level=i8(isolation),
        session_id=i32(session.id),
        session_epoch=i32(session.epoch),
        topics=tuple(
            fetch_request.FetchTopic(
                **{topic_field: topic},
                partitions=tuple(
                    fetch_request.FetchPartition(
                        partition=i32(one.partition),
                        current_leader_epoch=i32(one.leader_epoch),
                        fetch_offset=i64(one.offset),
                        partition_max_bytes=i32(one.max_bytes),
                        **(
                            {"last_fetched_epoch": i32(one.last_fetched_epoch)}
                            if version >= 12
                            else {}
                        ),
                    )
                    for one in group
                ),
            )
            for topic, group in grouped.items()
        ),
        forgotten_topics_data=tuple(
            fetch_request.ForgottenTopic(
                **{topic_field: one.topic_id if version == 13 else one.topic},
                partitions=tuple(map(i32, one.partitions)),
            )
            for one in session.forgotten
        ),
        rack_id=rack,
    )

    assert call.newest == 13
    assert b"".join(call.encode(version).body) == encoded(request)


def test_topics_without_ids_are_named() -> None:
    by_id = FetchPosition(uuid.UUID(int=7), 0, 0, 1, topic="orders")

    assert fetch_call([by_id]).newest == 13
    assert fetch_call([by_id, by_id._replace(topic_id=None)]).newest == 12
    assert fetch_call([], session=Session(5, 1, named=True)).newest == 12


@pytest.mark.parametrize("version", [8, 9, 12, 13])
@given(
    st.dictionaries(topics, st.dictionaries(i32s, records, max_size=3), max_size=3),
    st.none() | topics,
    st.integers(0, 2**31 - 1),
)
def test_a_produce_request_is_read_by_kio(
    version: int,
    batches: dict[str, dict[int, bytes]],
    transactional_id: str | None,
    timeout_ms: int,
) -> None:
    produce_request: Any = import_module(f"kio.schema.produce.v{version}.request")
    ids = {topic: uuid.UUID(int=number) for number, topic in enumerate(batches, 1)}
    call = produce_call(
        batches, timeout_ms=timeout_ms, transactional_id=transactional_id, topic_ids=ids
    )

    request = produce_request.ProduceRequest(
        transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
        acks=i16(-1),
        timeout=milliseconds(timeout_ms),
        topic_data=tuple(
            produce_request.TopicProduceData(
                **({"topic_id": ids[topic]} if version == 13 else {"name": TopicName(topic)}),
                partition_data=tuple(
                    produce_request.PartitionProduceData(index=i32(index), records=Records(batch))
                    for index, batch in partitions.items()
                ),
            )
            for topic, partitions in batches.items()
        ),
    )

    assert call.newest == (13 if transactional_id is None else 11)
    assert b"".join(call.encode(version).body) == encoded(request)


def test_topics_are_named_where_one_has_no_id() -> None:
    batches = {"orders": {0: b"x"}, "users": {0: b"x"}}
    some = {"orders": uuid.UUID(int=7), "users": None}

    assert produce_call(batches, topic_ids=some).newest == 12


def test_a_topic_that_nobody_sent_is_garbled() -> None:
    produce: Any = import_module("kio.schema.produce.v13.response")
    ids = {"orders": uuid.UUID(int=7)}
    encode = produce_call({"orders": {0: b"x"}}, topic_ids=ids).encode

    def answer(topic_id: int, code: ErrorCode) -> Frame:
        one = produce.PartitionProduceResponse(
            index=i32(0), error_code=code, base_offset=i64(5), record_errors=()
        )
        topic = produce.TopicProduceResponse(
            topic_id=uuid.UUID(int=topic_id), partition_responses=(one,)
        )
        message = produce.ProduceResponse(responses=(topic,), throttle_time=milliseconds(0))
        return frame(encoded(message))

    for code in (ErrorCode.none, ErrorCode.unknown_topic_id):
        ((at, found),) = encode(13).read(answer(7, code), 0).answers.items()
        assert (at.topic, at.partition, found.code) == ("orders", 0, code)
        with pytest.raises(Garbled, match="which was not sent"):
            encode(13).read(answer(8, code), 0)


produced_partitions = st.builds(
    lambda index, code, offset, refused, message: produce_response.PartitionProduceResponse(
        index=i32(index),
        error_code=code,
        base_offset=i64(offset),
        record_errors=tuple(
            produce_response.BatchIndexAndErrorMessage(batch_index=i32(one)) for one in refused
        ),
        error_message=message,
    ),
    st.integers(0, 9),
    st.just(ErrorCode.none) | st.sampled_from(ErrorCode),
    i64s,
    st.just([]) | st.lists(i32s, max_size=2),
    st.none() | st.text(max_size=5),
)
produced_topics = st.dictionaries(
    topics, st.lists(produced_partitions, max_size=3, unique_by=lambda one: one.index), max_size=3
)


@given(produced_topics, st.integers(0, 9), st.booleans())
def test_what_was_appended_is_read_as_kio_reads_it(
    told: dict[str, list[produce_response.PartitionProduceResponse]], throttle: int, all_well: bool
) -> None:
    if all_well:
        told = {
            topic: [
                replace(one, error_code=ErrorCode.none, record_errors=(), error_message=None)
                for one in those
            ]
            for topic, those in told.items()
        }
    response = produce_response.ProduceResponse(
        responses=tuple(
            produce_response.TopicProduceResponse(
                name=TopicName(topic), partition_responses=tuple(those)
            )
            for topic, those in told.items()
        ),
        throttle_time=milliseconds(throttle),
    )
    content = encoded(response)

    assert read_produce(frame(content)) == produced(response)
    assert read_produce(frame(encoded(nonflexible(response))), 8) == produced(response)
    if all_well:
        assert all_appended(memoryview(content), 0) == produced(response)


def nonflexible(response: produce_response.ProduceResponse) -> Any:
    return converted(response, load_response_schema(i16(PRODUCE), i16(8)))


LOG = bytes(
    record_batch([b"a", b"b"])
    + record_batch([b"c"], base_offset=2, attributes=0x30)
    + record_batch([b"d" * 100], base_offset=3)
)
A_PARTITION = fetch_response.PartitionData(
    partition_index=i32(0),
    error_code=ErrorCode.none,
    high_watermark=i64(4),
    current_leader=fetch_response.LeaderIdAndEpoch(leader_id=BrokerId(1), leader_epoch=i32(5)),
    aborted_transactions=(
        fetch_response.AbortedTransaction(producer_id=ProducerId(1), first_offset=i64(0)),
    ),
    records=Records(LOG),
)
A_RESPONSE = encoded(
    fetch_response.FetchResponse(
        throttle_time=milliseconds(0),
        error_code=ErrorCode.none,
        responses=(
            fetch_response.FetchableTopicResponse(
                topic_id=uuid.UUID(int=7), partitions=(A_PARTITION,)
            ),
        ),
    )
)
A_LIST = call(
    ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=()),
    ListOffsetsResponse,
)


def harmed(content: bytes) -> st.SearchStrategy[bytes]:
    """Return bytes that are cut off, changed or invented."""

    def change(changes: list[tuple[int, int]]) -> bytes:
        changed = bytearray(content)
        for place, value in changes:
            changed[place] = value
        return bytes(changed)

    places = st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255))
    return (
        st.integers(0, len(content)).map(lambda end: content[:end])
        | st.lists(places, min_size=1, max_size=8).map(change)
        | st.binary(max_size=400)
    )


@given(harmed(A_RESPONSE))
def test_a_harmed_fetch_response_is_read_or_garbled(content: bytes) -> None:
    try:
        response = read_fetch(frame(content))
    except Garbled:
        return
    assert sum(len(one.records) for one in response.partitions) <= len(content)


def test_each_cut_of_a_fetch_response_is_garbled() -> None:
    for end in range(len(A_RESPONSE)):
        with pytest.raises(Garbled):
            read_fetch(frame(A_RESPONSE[:end]))


@given(harmed(LOG))
def test_harmed_batches_are_split_or_refused(content: bytes) -> None:
    try:
        batches, truncated = split_batches(memoryview(content))
    except CorruptBatch:
        return
    assert b"".join(batch.data for batch in batches) == content[: len(content) - truncated]
    offsets = [offset for one in batches for offset in (one.base_offset, one.last_offset)]
    assert offsets == sorted(offsets)
    changed = [one for one in batches if one.magic == 2 and one.data.tobytes() not in LOG]
    for batch in changed:  # the checksum detects changes of the bytes it covers
        outside = batch.data[:17].tobytes() + LOG[17:]
        assert not batch.intact or batch.data[17:].tobytes() in LOG or outside == LOG


readers: list[Callable[[Frame], Any]] = [
    lambda given: A_LIST.encode(7).read(given, 0),
    read_produce,
    lambda given: read_produce(given, 8),
    read_fetch,
    lambda given: read_fetch(given, version=11),
    lambda given: read_fetch(given, version=12),
]


@given(st.sampled_from(readers), st.binary(max_size=200))
def test_made_up_responses_are_read_or_garbled(
    read: Callable[[Frame], Any], content: bytes
) -> None:
    try:
        read(frame(content))
    except Garbled:
        return


def test_a_message_of_kio_is_read_from_a_buffer() -> None:
    response = ListOffsetsResponse(throttle_time=milliseconds(7), topics=())

    assert A_LIST.encode(7).read(frame(encoded(response)), 0) == response


VERSIONS = [
    (key, version)
    for key, (oldest, newest) in SPOKEN.items()
    for version in range(oldest, newest + 1)
]
HEADERS = [
    load_response_schema(i16(key), i16(version)).__header_schema__ for key, version in VERSIONS
]
SCHEMAS: list[Any] = [
    *(load_response_schema(i16(key), i16(version)) for key, version in VERSIONS if key != FETCH),
    *dict.fromkeys(HEADERS),
]
messages = st.sampled_from(SCHEMAS).flatmap(st.from_type)


@given(messages)
def test_messages_are_read_as_kio_reads_them(message: Any) -> None:
    content = encoded(message)

    assert read_message(type(message), memoryview(content), 0) == (message, len(content))
    assert entity_reader(type(message))(content, 0) == (message, len(content))


@given(messages.flatmap(lambda one: st.tuples(st.just(type(one)), harmed(encoded(one)))))
def test_harmed_messages_are_read_or_refused(harm: tuple[type, bytes]) -> None:
    schema, content = harm
    try:
        _, end = read_message(schema, memoryview(content), 0)
    except ValueError:
        return
    assert end <= len(content)


def test_a_hostile_length_is_refused() -> None:
    for content in (b"\0\0\0\0\xff\xff\xff\xff\x0f", b"\0\0\0\0\xff\xff\xff\xff\xff\x0f"):
        with pytest.raises(Garbled):
            A_LIST.encode(7).read(frame(content), 0)
