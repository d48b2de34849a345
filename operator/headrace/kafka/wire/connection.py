"""Connection to one broker, with several requests in flight."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, TypeVar

from kio.schema.api_versions.v3 import ApiVersionsResponse
from kio.schema.api_versions.v3.request import ApiVersionsRequest

from headrace.errors import HeadraceError
from headrace.kafka.wire.errors import ConnectionLost, Garbled, Unanswered, UnsupportedBroker
from headrace.kafka.wire.frames import Buffers, FrameReader
from headrace.kafka.wire.loop import READ, WRITE, EventLoop, Reply, Timer
from headrace.kafka.wire.protocol import (
    API_VERSIONS,
    COMPARES_EPOCHS,
    FETCH,
    SINCE,
    SPOKEN,
    Buffer,
    Call,
    Encoded,
    Headers,
    api_name,
    call,
    throttle_ms,
)
from headrace.kafka.wire.transport import MAX_BUFFERS, Transport

A = TypeVar("A")
_MAX_READS_PER_TURN = 64  # then other connections get their turn
_ANY = (0, 32_767)
"""Versions of requests that the caller encodes itself."""
ASK_VERSIONS = call(
    ApiVersionsRequest(client_software_name="headrace", client_software_version="0.1"),
    ApiVersionsResponse,
)
"""ApiVersions request, to which every broker responds immediately."""
OLDEST_KAFKA = "2.4"
"""Oldest supported Kafka release. Older brokers lack required request versions."""


class _Request(Reply[A]):
    """Pending reply, with the data that is needed until it arrives."""

    __slots__ = ("call", "correlation_id", "deadline_s", "encoded")

    call: Call[A]
    encoded: Encoded[A]
    correlation_id: int
    deadline_s: float


class Connection:
    """Open connection to a broker.

    A request without a response in time closes the connection, as in Kafka's own client, because
    later responses could not be matched to requests.

    A network may drop an idle connection without notice. After an idle time, a request therefore
    waits for the response to a short probe. ``opening.py`` opens connections and logs in.
    """

    def __init__(
        self,
        loop: EventLoop,
        transport: Transport,
        server: str,
        *,
        headers: Headers,
        buffers: Buffers,
        request_timeout_s: float = 30.0,
        max_in_flight: int = 5,
        probe_after_s: float = math.inf,
        probe_timeout_s: float = 3.0,
        closed: Callable[["Connection"], None] = lambda _: None,
    ) -> None:
        """Create a connection over an open transport.

        Args:
            loop: Event loop of the connection.
            transport: Connected socket.
            server: Name of the broker for messages.
            headers: Writer and reader of request headers.
            buffers: Pool for responses.
            request_timeout_s: Default time-out of a request.
            max_in_flight: Maximum number of unanswered requests. Sequences of an idempotent
                producer are safe only up to five.
            probe_after_s: Idle time after which a probe precedes the next request.
            probe_timeout_s: Time-out of the probe.
            closed: Called when the connection has ended.
        """
        self.server = server
        self.closed_by: HeadraceError | None = None
        """Reason why the connection ended, or None while it is open."""
        self.versions: Mapping[int, tuple[int, int]] = {API_VERSIONS: SPOKEN[API_VERSIONS]}
        """Oldest and newest version of each request that the broker serves, by API key."""
        self._loop, self._transport, self._headers = loop, transport, headers
        self._reader = FrameReader(buffers)
        self._request_timeout_s, self._max_in_flight = request_timeout_s, max_in_flight
        self._probe_after_s, self._probe_timeout_s = probe_after_s, probe_timeout_s
        self._closed = closed
        self._waiting: deque[_Request[Any]] = deque()
        self._in_flight: deque[_Request[Any]] = deque()
        self._out: deque[Buffer] = deque()
        self._held = self._probing = False
        self._received_s = loop.now_s()
        """Time at which the last bytes were received."""
        self._throttled_until_s = 0.0
        self._correlation_id = 0
        self._drained: Reply[None] | None = None
        self._deadline: Timer | None = None
        self._armed_for_s = math.inf
        self._events = READ
        loop.watch(transport.sock, READ, self._ready)

    @property
    def load(self) -> int:
        """Number of requests without a response."""
        return len(self._waiting) + len(self._in_flight)

    def serves(self, api_key: int) -> bool:
        """Return True if this client and the broker support a common version of a request."""
        oldest, newest = SPOKEN.get(api_key, _ANY)
        least, most = self.versions.get(api_key, (0, -1))
        return max(oldest, least) <= min(newest, most)

    def version(self, api_key: int) -> int:
        """Return the newest version of a request that both sides support.

        Raise ``UnsupportedBroker`` if there is none.
        """
        oldest, newest = SPOKEN.get(api_key, _ANY)
        least, most = self.versions.get(api_key, (0, -1))
        chosen = min(newest, most)
        if chosen < max(oldest, least):
            raise self._unsupported(api_key)
        return chosen

    @property
    def compares_epochs(self) -> bool:
        """True if the broker detects a truncated log in a Fetch (version 12, Kafka 2.7)."""
        return self.version(FETCH) >= COMPARES_EPOCHS

    def _encoded(self, call: Call[A]) -> Encoded[A]:
        version = min(call.newest, self.version(call.api_key))
        if version < self.versions[call.api_key][0]:
            raise self._unsupported(call.api_key)
        return call.encode(version)

    def _unsupported(self, api_key: int) -> UnsupportedBroker:
        name, (oldest, newest) = api_name(api_key), SPOKEN.get(api_key, _ANY)
        release = SINCE.get(api_key, OLDEST_KAFKA)
        if api_key not in self.versions:
            return UnsupportedBroker(
                f"{self.server} does not serve {name}, which takes Kafka {release} or newer"
            )
        least, most = self.versions[api_key]
        older = most < oldest
        advice = f"it takes Kafka {release} or newer" if older else "it takes a newer headrace"
        return UnsupportedBroker(
            f"{self.server} serves {name} in versions {least} to {most}, and this client speaks "
            f"{oldest} to {newest}: {advice}"
        )

    def send(
        self, call: Call[A], *, timeout_s: float | None = None, during_login: bool = False
    ) -> Reply[A]:
        """Queue a request, send it in its turn, and return its reply.

        The reply fails with ``ConnectionLost``, ``Garbled`` or the error that ended the connection.
        It fails with ``UnsupportedBroker`` if the broker does not serve the request.
        """
        request: _Request[A] = _Request()
        if self.closed_by is not None:
            request.fail(self._lost(str(self.closed_by), call, arrived=False))
            return request
        try:
            request.encoded = self._encoded(call)
        except UnsupportedBroker as error:
            request.fail(error)
            return request
        now_s = self._loop.now_s()
        request.call = call
        request.deadline_s = now_s + (self._request_timeout_s if timeout_s is None else timeout_s)
        if during_login:
            self._begin(request)
        else:
            if not self._in_flight and now_s - self._received_s > self._probe_after_s:
                self._probe(now_s)
            self._waiting.append(request)
        if request.deadline_s < self._armed_for_s:
            self._arm(request.deadline_s)
        if (
            len(self._waiting) == 1
            and not (self._held or self._probing)
            and len(self._in_flight) < self._max_in_flight
            and now_s >= self._throttled_until_s
        ):
            self._begin(self._waiting.popleft())
            self._flush()
        else:
            self._pump()
        return request

    def _probe(self, now_s: float) -> None:
        """Send a request with a short deadline. Other requests wait for its response."""
        if self._held or self._probing or now_s < self._throttled_until_s:
            return  # a login serves as probe, and a throttled broker does not respond
        self._probing = True
        probe: _Request[Any] = _Request()
        probe.call, probe.encoded = ASK_VERSIONS, self._encoded(ASK_VERSIONS)
        probe.deadline_s = now_s + self._probe_timeout_s
        probe.then(self._probed)
        self._arm(min(self._armed_for_s, probe.deadline_s))
        self._begin(probe)
        self._flush()

    def _probed(self, _: Reply[Any]) -> None:
        self._probing = False  # _answer then sends the waiting requests

    def hold(self) -> Reply[None]:
        """Stop sending requests other than logins. The reply succeeds when nothing is in flight."""
        self._held = True
        self._drained = Reply()
        self._check_drained()
        return self._drained

    def go_on(self) -> None:
        """Send requests again after ``hold``."""
        self._held, self._drained = False, None
        self._pump()

    def throttle(self, delay_ms: int) -> None:
        """Send no request for ``delay_ms``, as the broker demanded (KIP-219)."""
        if delay_ms > 0:
            until_s = self._loop.now_s() + delay_ms / 1000
            self._throttled_until_s = max(self._throttled_until_s, until_s)
            self._loop.call_later(delay_ms / 1000, self._pump)

    def close(self, why: HeadraceError | None = None) -> None:
        """Close the connection. All unanswered requests fail."""
        if self.closed_by is not None:
            return
        self.closed_by = why or ConnectionLost(
            f"the connection to {self.server} was closed by us", may_have_arrived=False
        )
        self._loop.forget(self._transport.sock)
        self._transport.sock.close()
        if self._deadline is not None:
            self._deadline.cancel()
        self._reader.discard()
        self._out.clear()
        begun, waiting = self._in_flight, self._waiting
        self._in_flight, self._waiting = deque(), deque()
        self._closed(self)
        for requests, arrived in ((begun, True), (waiting, False)):
            for request in requests:
                request.fail(self._lost(str(self.closed_by), request.call, arrived=arrived))
        if self._drained is not None:
            self._drained.fail(self.closed_by)

    def _lost(self, why: str, call: Call[Any], *, arrived: bool) -> HeadraceError:
        if isinstance(self.closed_by, Garbled) and arrived:
            return self.closed_by
        if isinstance(self.closed_by, ConnectionLost) or self.closed_by is None:
            unanswered = arrived and isinstance(self.closed_by, Unanswered)
            kind = Unanswered if unanswered else ConnectionLost
            return kind(f"{call.name}: {why}", may_have_arrived=arrived)
        return self.closed_by  # a login that failed: report the reason

    def _ready(self, events: int) -> None:
        try:
            # TLS may have to write before it can read, and read before it can write. Try both.
            if events & READ or self._transport.wants:
                self._receive()
        except OSError as error:
            self._end(f"broke: {error}")
        except Garbled as error:
            self.close(Garbled(f"{self.server}: {error}"))
        else:
            if self.closed_by is None and (
                self._out or self._transport.wants or self._events != READ
            ):
                self._flush()

    def _receive(self) -> None:
        reader, receive = self._reader, self._transport.receive
        for _ in range(_MAX_READS_PER_TURN):
            if (count := receive(reader.target)) is None:
                return
            self._received_s = self._loop.now_s()
            if count == 0:
                self._end("was closed by the broker" + " in mid-response" * reader.inside)
                return
            if (frame := reader.received(count)) is not None:
                if not self._in_flight:
                    frame.release()
                    raise Garbled("a response came to no request")
                self._answer(self._in_flight[0], frame)
                if self.closed_by is not None:
                    return
        self._loop.call_from_thread(lambda: self._ready(READ) if self.closed_by is None else None)

    def _answer(self, request: _Request[Any], frame: Any) -> None:
        try:
            place = self._headers.response(
                request.call.api_key, request.encoded.version, frame.view, request.correlation_id
            )
        except Garbled:
            frame.release()
            raise
        answer = request.encoded.read(frame, place)
        self._in_flight.popleft()
        if delay_ms := throttle_ms(answer):
            self.throttle(delay_ms)
        request.succeed(answer)
        if self.closed_by is None:
            if self._drained is not None:
                self._check_drained()
            if self._waiting or self._out:
                self._pump()

    def _pump(self) -> None:
        """Send as many waiting requests as allowed."""
        if self.closed_by is not None:
            return
        while (
            self._waiting
            and not (self._held or self._probing)
            and len(self._in_flight) < self._max_in_flight
            and self._loop.now_s() >= self._throttled_until_s
        ):
            self._begin(self._waiting.popleft())
        if self._out:
            self._flush()

    def _begin(self, request: _Request[Any]) -> None:
        self._correlation_id = request.correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._in_flight.append(request)
        encoded = request.encoded
        header = self._headers.request(request.call.api_key, encoded, request.correlation_id)
        self._out.append(header)
        self._out.extend(filter(len, encoded.body))

    def _flush(self) -> None:
        out = self._out
        while out:
            try:
                sent = self._transport.send(list(islice(out, MAX_BUFFERS)))
            except OSError as error:
                self._end(f"broke: {error}")
                return
            if sent is None:
                break
            while sent:
                part = out.popleft()
                if sent < len(part):
                    out.appendleft(memoryview(part)[sent:])
                    break
                sent -= len(part)
        events = READ | (WRITE if out or self._transport.wants == WRITE else 0)
        if events != self._events:
            self._events = events
            self._loop.watch(self._transport.sock, events, self._ready)

    def _arm(self, deadline_s: float) -> None:
        """Set the only timer, to the earliest deadline of a request."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._armed_for_s = deadline_s
        delay_s = max(0.0, deadline_s - self._loop.now_s())
        self._deadline = self._loop.call_later(delay_s, self._overdue)

    def _overdue(self) -> None:
        self._deadline, self._armed_for_s = None, math.inf
        now_s = self._loop.now_s()
        if self._in_flight and (first := self._in_flight[0]).deadline_s <= now_s:
            if self._reader.inside and self._received_s + self._request_timeout_s > now_s:
                # The response is arriving over a slow network.
                first.deadline_s = self._received_s + self._request_timeout_s
            else:
                why = f"the connection to {self.server} gave no answer to {first.call.name} in time"
                self.close(Unanswered(why, may_have_arrived=True))
                return
        while self._waiting and self._waiting[0].deadline_s <= now_s:
            late = self._waiting.popleft()
            why = f"the request could not be sent to {self.server} in time"
            late.fail(self._lost(why, late.call, arrived=False))
        oldest = [queue[0].deadline_s for queue in (self._in_flight, self._waiting) if queue]
        if oldest and self.closed_by is None:
            self._arm(min(oldest))

    def _check_drained(self) -> None:
        if self._drained is not None and not self._in_flight:
            self._drained.succeed(None)

    def _end(self, how: str) -> None:
        why = f"the connection to {self.server} {how}"
        self.close(ConnectionLost(why, may_have_arrived=True))
