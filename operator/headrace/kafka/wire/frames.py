"""Responses cut out of the stream of a connection, into buffers that are used again.

Fresh memory costs more than the copy into it: the kernel clears each page at the first touch.
"""

import struct
from collections import deque

from headrace.kafka.wire.errors import Garbled

MAX_RESPONSE_BYTES = 128 << 20
"""Above what a broker sends: its requests end at 104,857,600 bytes (``socket.request.max.bytes``),
a Fetch response at the ``max_bytes`` that we asked for, plus one batch."""

_SIZE = struct.Struct(">i")
_SMALL_BYTES = 1 << 14  # not worth keeping


class Buffers:
    """Buffers of responses, kept for the next ones. Not thread-safe."""

    def __init__(self, keep_bytes: int = 64 << 20) -> None:
        """Create an empty pool that keeps at most ``keep_bytes``, including used buffers."""
        self._keep_bytes = keep_bytes
        self._kept: dict[int, bytearray] = {}
        """Kept buffers by ``id``, in the order of their return; there may be hundreds."""
        self._sizes: dict[int, deque[int]] = {}
        """Ids of kept buffers by size, of which there are few."""
        self._unused: set[int] = set()
        """Buffers kept at the last ``trim`` and not used since."""
        self._out_bytes = 0
        self.kept_bytes = 0
        """Size of the memory that is kept for the next responses."""

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least that size, at most twice as large, with undefined content."""
        if size > _SMALL_BYTES:
            fitting = [kept for kept in self._sizes if size <= kept <= 2 * size]
            if fitting:
                newest = self._sizes[min(fitting)][-1]
                self._out_bytes += min(fitting)
                return self._forget(newest)
            # Responses of similar sizes thus share buffers. A full response is a little larger than
            # a power of 2.
            step = 1 << (size.bit_length() - 3)
            size = -(-size // step) * step
        self._out_bytes += size
        return bytearray(size)

    def give(self, buffer: bytearray) -> None:
        """Take it back; what was not used for the longest time goes where too much is kept."""
        size = len(buffer)
        self._out_bytes -= size
        room = self._keep_bytes - self._out_bytes - size
        if size <= _SMALL_BYTES or room < 0:
            return
        while self.kept_bytes > room:
            self._forget(next(iter(self._kept)))
        self._kept[id(buffer)] = buffer
        self._sizes.setdefault(size, deque()).append(id(buffer))
        self.kept_bytes += size

    def trim(self) -> None:
        """Free what was not used since the last time."""
        for unused in tuple(self._unused):
            self._forget(unused)
        self._unused = set(self._kept)

    def _forget(self, key: int) -> bytearray:
        buffer = self._kept.pop(key)
        size = len(buffer)
        alike = self._sizes[size]
        if alike[-1] == key:
            alike.pop()
        else:
            alike.remove(key)  # near the front: it was kept for long
        if not alike:
            del self._sizes[size]
        self._unused.discard(key)
        self.kept_bytes -= size
        return buffer


class Frame:
    """One response. Its ``view`` must not be used after ``release``."""

    __slots__ = ("_buffer", "_buffers", "view")

    def __init__(self, buffers: Buffers | None, buffer: bytearray, size: int) -> None:
        """Release ``buffer`` to ``buffers``, if it came from there."""
        self._buffers = buffers
        self._buffer: bytearray | None = buffer
        self.view = memoryview(buffer)[:size]

    def release(self) -> None:
        """Give the buffer back; a second time does nothing."""
        if self._buffer is not None:
            buffer, self._buffer = self._buffer, None
            self.view = memoryview(b"")
            if self._buffers is not None:
                self._buffers.give(buffer)


class FrameReader:
    """``target`` is where the next bytes of the stream belong; ``received`` says how many came."""

    def __init__(self, buffers: Buffers, limit_bytes: int = MAX_RESPONSE_BYTES) -> None:
        self._buffers = buffers
        self._limit_bytes = limit_bytes
        self._prefix = bytearray(_SIZE.size)
        self._frame: Frame | None = None
        self.target = memoryview(self._prefix)
        """Where the next bytes belong. It is never empty."""

    @property
    def inside(self) -> bool:
        """Whether a response has begun and not ended."""
        return self._frame is not None or len(self.target) < _SIZE.size

    def received(self, count: int) -> Frame | None:
        """``count`` bytes were written to ``target``; the response that they complete, if any.

        Raises ``Garbled`` for a size that no response has: not a byte of memory is taken for it.
        """
        self.target = self.target[count:]
        if self.target:
            return None
        if self._frame is None:
            (size,) = _SIZE.unpack(self._prefix)
            if not 4 <= size <= self._limit_bytes:
                raise Garbled(
                    f"a response claims {size} bytes, of at most {self._limit_bytes}: is this a "
                    "listener of Kafka, with the same encryption as ours?"
                )
            if size <= _SMALL_BYTES:  # the pool keeps none of these
                self._frame = Frame(None, bytearray(size), size)
            else:
                self._frame = Frame(self._buffers, self._buffers.take(size), size)
            self.target = self._frame.view
            return None
        frame, self._frame = self._frame, None
        self.target = memoryview(self._prefix)
        return frame

    def discard(self) -> None:
        """Release what was begun, after the connection has ended."""
        if self._frame is not None:
            self._frame.release()
            self._frame = None
        self.target = memoryview(self._prefix)
