"""Compresses and decompresses record batches, with a limit on the decompressed size.

The limit is needed because a few bytes can decompress to gigabytes. Gzip comes from the standard
library. All other codecs come from cramjam, which writes into a buffer of the caller.
"""

import struct
import zlib
from collections.abc import Callable

import cramjam

from headrace.kafka.wire.errors import CorruptBatch, UnreadableBatch

Content = bytes | bytearray | memoryview
_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 1 << 15
# Version 1, independent blocks of at most 64 KiB, no checksums: Kafka's reader accepts only this.
# cramjam's own frames have dependent blocks, which Kafka's reader rejects.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES = 1 << 16
_LZ4_STORED = 1 << 31
_LZ4_FRAME_BYTES, _LZ4_CONTENT_SIZE = 7, 0x08
_BIG, _LITTLE = struct.Struct(">i"), struct.Struct("<I")


def decompress(codec: str, content: Content, limit_bytes: int) -> Content:
    """Return the decompressed records of a batch. Codec ``none`` returns them unchanged.

    Raises:
        CorruptBatch: The records cannot be decompressed.
        UnreadableBatch: The result is larger than ``limit_bytes``, or the codec is unknown.
    """
    if codec == "none":
        return content
    if (read := _READERS.get(codec)) is None:
        raise UnreadableBatch("a record batch has a codec that this client does not know")
    return read(content, limit_bytes)


def compress(codec: str, content: Content, level: int | None = None) -> Content:
    """Compress records in the format of Kafka's own producer.

    ``level`` is the level of gzip (1 to 9), lz4 (1 to 12) or zstd (1 to 22). None means the codec's
    default.
    """
    return _WRITERS[codec](content, level) if codec != "none" else content


def _too_large(limit_bytes: int) -> UnreadableBatch:
    return UnreadableBatch(
        f"a record batch has more than {limit_bytes} bytes of records when it is decompressed"
    )


def _damaged(name: str, why: object) -> CorruptBatch:
    return CorruptBatch(f"a record batch cannot be decompressed: {name}: {why}")


def _gunzip(content: Content, limit_bytes: int) -> Content:
    reader = zlib.decompressobj(wbits=31)
    try:
        result = reader.decompress(content, limit_bytes + 1)
    except zlib.error as error:
        raise _damaged("gzip", error) from None
    if len(result) > limit_bytes:
        raise _too_large(limit_bytes)
    if not reader.eof:
        raise _damaged("gzip", "it ends too early")
    return result


def _growing(
    name: str, into: Callable[[Content, bytearray], int]
) -> Callable[[Content, int], Content]:
    """Return a decompressor for formats that do not state the decompressed size.

    It tries a buffer that is four times larger each time. Only the last attempt decompresses
    everything, so it takes most of the time.
    """

    def read(content: Content, limit_bytes: int) -> Content:
        room = min(max(4 * len(content), 1 << 16), limit_bytes)
        while True:
            result = bytearray(room)
            try:
                size = into(content, result)
            except cramjam.DecompressionError as error:
                if "whole buffer" not in str(error):
                    raise _damaged(name, error) from None
            else:
                return memoryview(result)[:size]
            if room == limit_bytes:
                raise _too_large(limit_bytes)
            room = min(4 * room, limit_bytes)

    return read


def _unsnappy(content: Content, limit_bytes: int) -> Content:
    """Decompress snappy: Xerial's block format, which Java producers write, or a single block."""
    if bytes(content[: len(_XERIAL)]) != _XERIAL:
        return _unsnappy_block(content, limit_bytes)
    result = bytearray()
    place = len(_XERIAL_HEADER)
    while place < len(content):
        if len(content) - place < _BIG.size:
            raise _damaged("snappy", "it ends too early")
        (size,) = _BIG.unpack_from(content, place)
        place += _BIG.size
        if not 0 < size <= len(content) - place:
            raise _damaged("snappy", f"it has a block of {size} bytes")
        block = content[place : place + size]
        if len(result) + _unsnappy_size(block) > limit_bytes:
            raise _too_large(limit_bytes)
        result += _unsnappy_block(block, limit_bytes)
        place += size
    return result


def _unsnappy_block(content: Content, limit_bytes: int) -> Content:
    if (size := _unsnappy_size(content)) > limit_bytes:
        raise _too_large(limit_bytes)
    result = bytearray(size)
    try:
        cramjam.snappy.decompress_raw_into(content, result)
    except cramjam.DecompressionError as error:
        raise _damaged("snappy", error) from None
    return result


def _unsnappy_size(content: Content) -> int:
    """Return the size that the block claims. Callers check it before they allocate memory."""
    try:
        return cramjam.snappy.decompress_raw_len(content)
    except cramjam.DecompressionError as error:
        raise _damaged("snappy", error) from None


def _gzip(content: Content, level: int | None) -> Content:
    writer = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=31)
    return writer.compress(content) + writer.flush()


def _snappy(content: Content, _: int | None) -> Content:
    result = bytearray(_XERIAL_HEADER)
    for start in range(0, len(content), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(content[start : start + _XERIAL_BLOCK_BYTES]))
        result += _BIG.pack(len(block)) + block
    return result


def _lz4(content: Content, level: int | None) -> Content:
    result = bytearray(_LZ4_HEADER)
    for start in range(0, len(content), _LZ4_BLOCK_BYTES):
        plain = content[start : start + _LZ4_BLOCK_BYTES]
        block = _lz4_block(plain, level)
        if len(block) >= len(plain):
            result += _LITTLE.pack(len(plain) | _LZ4_STORED)
            result += plain
        else:
            result += _LITTLE.pack(len(block)) + block
    return result + _LITTLE.pack(0)


def _lz4_block(plain: Content, level: int | None) -> Content:
    if level is None:
        return bytes(cramjam.lz4.compress_block(plain, store_size=False))
    # cramjam 2.14 ignores the level for blocks, and applies it to frames. A frame with a single
    # block has no dependent blocks.
    frame = bytes(cramjam.lz4.compress(plain, level=level))
    place = _LZ4_FRAME_BYTES + 8 * bool(frame[4] & _LZ4_CONTENT_SIZE)
    (size,) = _LITTLE.unpack_from(frame, place)
    start = place + _LITTLE.size
    return plain if size & _LZ4_STORED else frame[start : start + size]


def _zstd(content: Content, level: int | None) -> Content:
    return bytes(cramjam.zstd.compress(content, level=level))


_READERS: dict[str, Callable[[Content, int], Content]] = {
    "gzip": _gunzip,
    "snappy": _unsnappy,
    "lz4": _growing("lz4", cramjam.lz4.decompress_into),
    "zstd": _growing("zstd", cramjam.zstd.decompress_into),
}
_WRITERS: dict[str, Callable[[Content, int | None], Content]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
