"""The proxies of a soak with damaged connections, the names of fields, and the accepted reasons."""

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from math import inf

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import response as fetch
from kio.schema.list_offsets.v7.request import ListOffsetsRequest
from kio.schema.types import BrokerId
from kio.static.primitive import Records, i8, i32, i64
from soak.wire.damage import Damage
from soak.wire.differences import Difference, explained, of_record
from soak.wire.fields import COVERED, field_at, spans
from soak.wire.proxy import Direction, Frame, FramingProxy, Link, Strike
from support.batches import encoded, record_batch
from support.fake_broker import NOT_THROTTLED, TOPIC_ID
from support.patience import WITHIN_S

from headrace.sandbox.processes import HOST

FETCH, LIST_OFFSETS = 1, 2
REQUEST_HEADER = bytes.fromhex("0002 0007 00000005 0002 6D65 00")
"""API key, version, correlation id 5, client id and tags of a ListOffsets request."""
REQUEST = REQUEST_HEADER + encoded(
    ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=())
)


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4) + content


def fetched(batch: bytes) -> Frame:
    """Return the frame of a Fetch response with one batch."""
    partition = fetch.PartitionData(
        partition_index=i32(0),
        error_code=ErrorCode.none,
        high_watermark=i64(9),
        last_stable_offset=i64(9),
        log_start_offset=i64(0),
        aborted_transactions=None,
        preferred_read_replica=BrokerId(-1),
        records=Records(batch),
    )
    topic = fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=(partition,))
    answer = fetch.FetchResponse(
        throttle_time=NOT_THROTTLED,
        error_code=ErrorCode.none,
        session_id=i32(7),
        responses=(topic,),
    )
    content = framed((5).to_bytes(4) + b"\0" + encoded(answer))
    return Frame(content, Direction.RESPONSE, FETCH, 13)


def test_each_byte_of_a_frame_has_a_field() -> None:
    for frame in (
        fetched(bytes(record_batch([b"a", b"b"]) + record_batch([b"c"]))),
        Frame(framed(REQUEST), Direction.REQUEST, LIST_OFFSETS, 7),
    ):
        found = [byte for one in spans(frame) for byte in range(one.start, one.end)]
        assert found == list(range(len(frame.content)))


def test_fields_of_a_batch_outside_of_its_checksum_have_names() -> None:
    batch = bytes(record_batch([b"a"], base_offset=0x1234))
    frame = fetched(batch)
    start = frame.content.index(batch)
    assert field_at(frame, start + 7).endswith("base_offset")
    assert field_at(frame, start + 16).endswith("magic")
    assert field_at(frame, start + 21).endswith(COVERED)
    assert field_at(frame, len(frame.content) - 1) == "tags"


def test_message_without_a_schema_has_a_length() -> None:
    assert [one.name for one in spans(Frame(framed(b"....."), Direction.REQUEST, 999, 0))] == [
        "length"
    ]


def flip(api: str, direction: Direction, field: str) -> Damage:
    return Damage(100.0, "east", api, direction, field, "flipped")


@pytest.mark.parametrize(
    ("damage", "accepted"),
    [
        (flip("fetch", Direction.RESPONSE, "batch.base_offset"), True),
        (flip("fetch", Direction.RESPONSE, "batch.magic"), False),
        (flip("produce", Direction.RESPONSE, "responses.name"), False),
        (flip("offset_commit", Direction.REQUEST, "topics.name"), False),
        (replace(flip("fetch", Direction.RESPONSE, "batch.base_offset"), at_s=500.0), False),
    ],
)
def test_difference_is_accepted_only_after_a_flip_that_cannot_be_found(
    damage: Damage, accepted: bool
) -> None:
    (judged,) = explained([of_record("missing", 90.0)], [damage])
    assert bool(judged.explained_by) == accepted


def test_wrong_offset_of_a_group_is_accepted_only_after_a_flip_in_offsets_of_groups() -> None:
    wrong = Difference("would skip", 0.0, inf, of_group=True)
    fetched_base = flip("fetch", Direction.RESPONSE, "batch.base_offset")
    committed = flip("offset_commit", Direction.REQUEST, "topics.partitions.partition_index")

    (judged,) = explained([wrong], [fetched_base, committed])
    assert "field that cannot be checked" in judged.explained_by
    assert explained([wrong], [fetched_base]) == [wrong]


@pytest.fixture
def sockets() -> Iterator[tuple[FramingProxy, socket.socket, socket.socket]]:
    """Yield a proxy, and the client's and the broker's socket of a connection through it."""
    proxy = FramingProxy("broker 1")
    with socket.create_server((HOST, 0)) as listener:
        proxy.serve(listener.getsockname()[1])
        client = socket.create_connection((HOST, proxy.port), WITHIN_S)
        broker, _ = listener.accept()
        broker.settimeout(WITHIN_S)
        with closing(client), closing(broker):
            yield proxy, client, broker


def received(line: socket.socket, size: int) -> bytes:
    with line.makefile("rb") as stream:
        return stream.read(size)


def test_strike_waits_for_a_response_to_its_request(
    sockets: tuple[FramingProxy, socket.socket, socket.socket],
) -> None:
    proxy, client, broker = sockets

    def double(link: Link, frame: Frame) -> None:
        link.send(frame, 2 * frame.content)

    strike = Strike(Direction.RESPONSE, frozenset({LIST_OFFSETS}), double)
    proxy.strike = strike
    client.sendall(framed(REQUEST))
    assert received(broker, len(framed(REQUEST))) == framed(REQUEST)
    answer = framed((5).to_bytes(4) + b"answer")
    broker.sendall(answer)
    assert received(client, 2 * len(answer)) == 2 * answer
    assert strike.struck.wait(WITHIN_S)


def test_held_frame_follows_the_next_one(
    sockets: tuple[FramingProxy, socket.socket, socket.socket],
) -> None:
    proxy, client, broker = sockets
    proxy.strike = Strike(Direction.REQUEST, frozenset(), Link.hold)
    first, second = framed(REQUEST + b"1"), framed(REQUEST + b"2")
    client.sendall(first + second)
    assert received(broker, len(first + second)) == second + first
