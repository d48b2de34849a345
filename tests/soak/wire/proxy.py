"""A proxy for one broker that reads Kafka's frames, and damages one of them on request."""

import itertools
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.sandbox.processes import HOST

HELD_MOST_S = 2.0
"""Longest time for which a frame waits for the next one. A client may wait for it as well."""


class Direction(StrEnum):
    """Direction of a frame."""

    REQUEST = "request"
    RESPONSE = "response"


@dataclass(frozen=True)
class Frame:
    """A request or a response, with its length."""

    content: bytes
    direction: Direction
    api_key: int
    version: int


@dataclass(eq=False)
class Link:
    """A connection of a client and its connection to the broker. Thread-safe."""

    number: int
    client: socket.socket
    broker: socket.socket
    swallows: bool = False
    """Whether all further data of both directions is dropped."""
    kinds: dict[int, tuple[int, int]] = field(default_factory=dict)
    """API key and version of open requests, by correlation id."""
    _held: dict[Direction, bytes] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, frame: Frame, content: bytes | None = None) -> None:
        """Send a frame, or other bytes in its place, and the held frame after it."""
        receiver = self.broker if frame.direction is Direction.REQUEST else self.client
        with self._lock:
            receiver.sendall(frame.content if content is None else content)
            receiver.sendall(self._held.pop(frame.direction, b""))

    def hold(self, frame: Frame) -> None:
        """Keep a frame until the next one of its direction was sent."""
        with self._lock:
            self._held[frame.direction] = frame.content
        threading.Timer(HELD_MOST_S, self._release, [frame]).start()

    def _release(self, frame: Frame) -> None:
        with suppress(OSError):
            self.send(frame, b"")

    def frame(self, content: bytes, direction: Direction) -> Frame:
        """Return a frame with its API key and version."""
        if direction is Direction.REQUEST:
            key, version, number = struct.unpack_from(">hhi", content, 4)
            self.kinds[number] = (key, version)
        else:
            (number,) = struct.unpack_from(">i", content, 4)
            key, version = self.kinds.pop(number, (-1, -1))
        return Frame(content, direction, key, version)

    def cut(self) -> None:
        """End both connections."""
        for one in (self.client, self.broker):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@dataclass
class Strike:
    """A damage that waits for a frame."""

    direction: Direction
    wanted: frozenset[int]
    """API keys, or empty for any."""
    inflict: Callable[[Link, Frame], None]
    """Function that sends the frame, or not, in the thread of its direction."""
    struck: threading.Event = field(default_factory=threading.Event)

    def wants(self, frame: Frame) -> bool:
        fits = not self.wanted or frame.api_key in self.wanted
        return fits and frame.direction is self.direction and frame.api_key >= 0


class FramingProxy:
    """A proxy on a port of its own that passes frames on to one broker."""

    def __init__(self, name: str) -> None:
        """Listen. ``serve`` begins to accept connections."""
        self.name = name
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.server_port = 0
        """Port to which new connections are made."""
        self.seen: set[tuple[Direction, int]] = set()
        """API keys of all frames so far."""
        self.strike: Strike | None = None
        self._links: set[Link] = set()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def serve(self, server_port: int) -> None:
        """Accept connections in a thread."""
        self.server_port = server_port
        threading.Thread(target=self._accept, daemon=True).start()

    def redirect(self, server_port: int) -> None:
        """End all connections, and connect new ones to another broker."""
        self.server_port = server_port
        for link in list(self._links):
            link.cut()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            try:
                broker = socket.create_connection((HOST, self.server_port))
            except OSError:
                client.close()
                continue
            for one in (client, broker):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(next(self._numbers), client, broker)
            self._links.add(link)
            for direction in Direction:
                threading.Thread(target=self._pass_on, args=(link, direction), daemon=True).start()

    def _pass_on(self, link: Link, direction: Direction) -> None:
        sender = link.client if direction is Direction.REQUEST else link.broker
        with suppress(OSError), sender.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                rest = stream.read(int.from_bytes(size))
                if link.swallows:
                    continue
                frame = link.frame(size + rest, direction)
                if frame.api_key >= 0:
                    self.seen.add((direction, frame.api_key))
                if (strike := self._struck_by(frame)) is None:
                    link.send(frame)
                else:
                    strike.inflict(link, frame)
                    strike.struck.set()
        # A network that swallows packets does not tell the client that the broker has closed.
        if direction is Direction.REQUEST or not link.swallows:
            link.cut()
            self._links.discard(link)

    def _struck_by(self, frame: Frame) -> Strike | None:
        with self._lock:
            strike = self.strike
            if strike is None or not strike.wants(frame):
                return None
            self.strike = None
            return strike
