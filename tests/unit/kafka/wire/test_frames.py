"""Responses are split from a stream of bytes that arrives in pieces of any size."""

import struct

import pytest

from headrace.kafka.wire.errors import Garbled
from headrace.kafka.wire.frames import Buffers, Frame, FrameReader


def feed(reader: FrameReader, stream: bytes, piece: int) -> list[Frame]:
    """Return the frames of a stream that arrives in pieces of at most ``piece`` bytes."""
    found = []
    while stream:
        count = min(piece, len(reader.target), len(stream))
        reader.target[:count] = stream[:count]
        stream = stream[count:]
        if frame := reader.received(count):
            found.append(frame)
    return found


def framed(*contents: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(content)) + content for content in contents)


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_frames_come_out_whole(piece: int) -> None:
    reader = FrameReader(Buffers())

    found = feed(reader, framed(b"first", b"second one"), piece)

    assert [bytes(frame.view) for frame in found] == [b"first", b"second one"]
    assert not reader.inside


@pytest.mark.parametrize("size", [-1, 0, 3, 1001, 2**31 - 1, int.from_bytes(b"HTTP", "big")])
def test_a_size_that_no_response_has_is_refused(size: int) -> None:
    reader = FrameReader(Buffers(), limit_bytes=1000)

    with pytest.raises(Garbled, match=f"claims {size} bytes"):
        feed(reader, struct.pack(">i", size), 4)


def test_a_frame_that_has_begun_is_known() -> None:
    reader = FrameReader(Buffers())

    assert not reader.inside
    feed(reader, b"\0\0", 2)
    assert reader.inside
    feed(reader, b"\0\4", 2)
    assert reader.inside
    feed(reader, b"abcd", 4)
    assert not reader.inside


def test_buffers_are_used_again_and_bounded() -> None:
    buffers = Buffers(keep_bytes=1 << 18)
    reader = FrameReader(buffers)
    content = framed(b"x" * 100_000)

    (first,) = feed(reader, content, 1 << 20)
    first.release()
    first.release()
    kept = buffers.kept_bytes
    (second,) = feed(reader, content, 1 << 20)

    assert (kept, buffers.kept_bytes) == (7 << 14, 0)
    frames = [second, *feed(reader, content * 5, 1 << 20)]
    for frame in frames:
        frame.release()
    assert buffers.kept_bytes == 2 * (7 << 14)


def test_what_is_in_use_counts_among_what_is_kept() -> None:
    buffers = Buffers(keep_bytes=1 << 18)
    first, second = buffers.take(100_000), buffers.take(100_000)
    used = buffers.take(100_000)

    buffers.give(first)
    assert buffers.kept_bytes == 0
    buffers.give(second)
    assert buffers.kept_bytes == len(second)
    buffers.give(used)
    assert buffers.kept_bytes == 2 * len(used)


def test_what_was_not_used_for_a_while_is_freed() -> None:
    buffers = Buffers()
    rare, often = buffers.take(1 << 20), buffers.take(1 << 18)
    buffers.give(rare)
    buffers.give(often)
    buffers.trim()
    assert buffers.kept_bytes == len(rare) + len(often)

    buffers.give(buffers.take(1 << 18))
    buffers.trim()
    assert buffers.kept_bytes == len(often)
    buffers.trim()
    assert buffers.kept_bytes == 0


def test_a_frame_that_never_ends_gives_its_buffer_back() -> None:
    buffers = Buffers()
    reader = FrameReader(buffers)
    feed(reader, framed(b"x" * 100_000)[:-1], 1 << 20)

    reader.discard()

    assert buffers.kept_bytes == 7 << 14
    assert not reader.inside


def test_a_small_response_does_not_take_a_large_buffer() -> None:
    buffers = Buffers()
    buffers.give(large := buffers.take(1 << 20))
    assert len(buffers.take(1 << 18)) < len(large)
    assert buffers.take(len(large) // 2) is large


def test_what_was_used_last_is_kept() -> None:
    buffers = Buffers(keep_bytes=1 << 18)
    first, second = buffers.take(100_000), buffers.take(100_000)
    last = buffers.take(240_000)
    for one in (first, second, last):
        buffers.give(one)
    assert buffers.kept_bytes == len(last)
    assert buffers.take(240_000) is last
