"""Splits the byte stream of a connection into responses, in reusable buffers.

Fresh memory costs more than copying into it, because the kernel clears each page at the first
access.
"""

import struct
from collections import deque

from headrace.kafka.wire.errors import Garbled

MAX_RESPONSE_BYTES = 128 << 20
"""Maximum size of a response.

Brokers send less. They accept requests of at most 104,857,600 bytes (``socket.request.max.bytes``),
and a Fetch response has at most the requested ``max_bytes`` plus one batch.
"""

_SIZE = struct.Struct(">i")
_SMALL_BYTES = 1 << 14  # smaller buffers are not kept


class Buffers:
    """Pool of buffers for responses. Not thread-safe."""

    def __init__(self, keep_bytes: int = 64 << 20) -> None:
        """Create an empty pool that keeps at most ``keep_bytes``, including buffers in use."""
        self._keep_bytes = keep_bytes
        self._kept: dict[int, bytearray] = {}
        """Unused buffers by ``id``, oldest first. There may be hundreds of buffers."""
        self._sizes: dict[int, deque[int]] = {}
        """Ids of unused buffers by size. Buffers have only a few different sizes."""
        self._unused: set[int] = set()
        """Buffers that were in the pool at the last ``trim`` and have not been used since."""
        self._out_bytes = 0
        self.kept_bytes = 0
        """Total size of the unused buffers."""

    def take(self, size: int) -> bytearray:
        """Return a buffer with undefined content, of at least ``size`` bytes.

        A buffer from the pool is at most twice as large.
        """
        if size > _SMALL_BYTES:
            fitting = [kept for kept in self._sizes if size <= kept <= 2 * size]
            if fitting:
                newest = self._sizes[min(fitting)][-1]
                self._out_bytes += min(fitting)
                return self._forget(newest)
            # Round up, so that responses of similar sizes share buffers. A full response is a
            # little larger than a power of 2.
            step = 1 << (size.bit_length() - 3)
            size = -(-size // step) * step
        self._out_bytes += size
        return bytearray(size)

    def give(self, buffer: bytearray) -> None:
        """Return a buffer to the pool. If the pool is too large, free the oldest buffers."""
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
        """Free the buffers that have not been used since the last call."""
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
            alike.remove(key)  # near the front, because it is old
        if not alike:
            del self._sizes[size]
        self._unused.discard(key)
        self.kept_bytes -= size
        return buffer


class Frame:
    """One response. Its ``view`` must not be used after ``release``."""

    __slots__ = ("_buffer", "_buffers", "view")

    def __init__(self, buffers: Buffers | None, buffer: bytearray, size: int) -> None:
        """Create a frame. ``release`` returns ``buffer`` to ``buffers`` unless that is None."""
        self._buffers = buffers
        self._buffer: bytearray | None = buffer
        self.view = memoryview(buffer)[:size]

    def release(self) -> None:
        """Return the buffer to its pool. A second call does nothing."""
        if self._buffer is not None:
            buffer, self._buffer = self._buffer, None
            self.view = memoryview(b"")
            if self._buffers is not None:
                self._buffers.give(buffer)


class FrameReader:
    """Reads responses from a byte stream.

    Write received bytes into ``target``, then pass their number to ``received``.
    """

    def __init__(self, buffers: Buffers, limit_bytes: int = MAX_RESPONSE_BYTES) -> None:
        self._buffers = buffers
        self._limit_bytes = limit_bytes
        self._prefix = bytearray(_SIZE.size)
        self._frame: Frame | None = None
        self.target = memoryview(self._prefix)
        """Memory for the next bytes. It always has room for at least one."""

    @property
    def inside(self) -> bool:
        """True if a response has begun and is not complete."""
        return self._frame is not None or len(self.target) < _SIZE.size

    def received(self, count: int) -> Frame | None:
        """Process ``count`` bytes that were written to ``target``, and return a completed response.

        Return None if the response is not complete. Raise ``Garbled`` for an impossible size,
        before any memory is allocated.
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
            if size <= _SMALL_BYTES:  # the pool does not keep such buffers
                self._frame = Frame(None, bytearray(size), size)
            else:
                self._frame = Frame(self._buffers, self._buffers.take(size), size)
            self.target = self._frame.view
            return None
        frame, self._frame = self._frame, None
        self.target = memoryview(self._prefix)
        return frame

    def discard(self) -> None:
        """Release an incomplete response after the connection has ended."""
        if self._frame is not None:
            self._frame.release()
            self._frame = None
        self.target = memoryview(self._prefix)
