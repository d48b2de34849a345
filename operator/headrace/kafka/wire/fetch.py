"""Fetch requests in versions 11 to 13, with incremental sessions (KIP-227).

Version 12 is flexible (KIP-482) and lets the broker compare the last fetched epoch. Version 13
identifies topics by their ids.

The messages are encoded here instead of with kio. kio 0.6.5 needs 26 ms for a request with 1,000
partitions, and this module less than 1 ms. For responses, kio copies the record batches (0.02
core-seconds per GB) into read-only memory, and this module leaves them in the receive buffer. The
tests compare each message with kio's.
"""

import struct
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.kafka.wire.errors import Garbled
from headrace.kafka.wire.protocol import FETCH, Call, Encoded, Released
from headrace.kafka.wire.schemas import error_code, read_uvarint, uvarint

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_FLEXIBLE, _BY_ID = 12, 13

_HEAD = struct.Struct(">iiiibii")
_WANTED = struct.Struct(">iiqiqib")
_WANTED_11 = struct.Struct(">iiqqi")
_INDEX = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_ANSWERED = struct.Struct(">ihi")
_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_NO_TAGS: dict[int, memoryview] = {}
_LEADER, _DIVERGING = struct.Struct(">ii"), struct.Struct(">iq")


class FetchPosition(NamedTuple):
    """A partition to fetch, and the offset to start from."""

    topic_id: UUID | None
    """Id of the topic, or None if the cluster has no topic ids."""
    partition: int
    offset: int
    max_bytes: int
    """Maximum size of the result. The first partition with data always returns one whole batch."""
    leader_epoch: int = -1
    """Current leader epoch, or -1 if unknown. It lets a former leader reject the request."""
    last_fetched_epoch: int = -1
    """Leader epoch of the record before ``offset``, or -1 if unknown.

    From version 12 on, the broker compares this epoch and reports a divergence (KIP-595).
    """
    topic: str = ""
    """Name of the topic, for versions before 13."""
    attempt: int = 0
    """Number of requests for this offset.

    It is not sent, but a change makes the session send the partition again.
    """


class Forgotten(NamedTuple):
    """Partitions of a topic that a session no longer fetches."""

    topic_id: UUID | None
    topic: str
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True)
class Session:
    """Id and epoch of a fetch session (KIP-227). Epoch -1 means no session, 0 opens one."""

    id: int = 0
    epoch: int = -1
    forgotten: Sequence[Forgotten] = ()
    named: bool = False
    """True if a topic of the session has no id. All topics are then identified by name."""


NO_SESSION = Session()


class Fetched(NamedTuple):
    """Response for one partition."""

    topic_id: UUID | None
    """Id of the topic, or None before version 13."""
    partition: int
    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]] | None
    """Producer id and first offset of each aborted transaction. Brokers of Apache Kafka send
    None for a READ_UNCOMMITTED request, and always a list for other requests."""
    preferred_replica: int
    """Node id of a nearer follower (KIP-392), or -1."""
    records: memoryview
    """Record batches, of which the last may be incomplete. Valid until the response is released."""
    diverging: tuple[int, int] | None = None
    """Epoch and end offset of the common part of the fetched data and the broker's log, or None."""
    leader: tuple[int, int] | None = None
    """Node id and epoch of the current leader, if the broker named another one."""
    topic: str = ""
    """Name of the topic. Empty from version 13 on."""


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """Response for all requested partitions, or in a session for partitions with changes.

    The receiver must release it.
    """

    throttle_ms: int
    error: ErrorCode
    session_id: int
    partitions: Sequence[Fetched]
    frame: Released

    def release(self) -> None:
        """Return the buffer to its pool. ``records`` must not be used afterwards."""
        self.frame.release()


def fetch_call(
    positions: Iterable[FetchPosition],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    isolation: int = READ_COMMITTED,
    session: Session = NO_SESSION,
    rack: str = "",
) -> Call[FetchResponse]:
    """Return a request for these partitions.

    Topics are identified by their ids, unless one of them has no id. ``rack`` is the client's rack:
    the leader may name a follower in that rack.
    """
    partitions = list(positions)
    named = session.named or any(one.topic_id is None for one in partitions)
    head = _HEAD.pack(-1, max_wait_ms, min_bytes, max_bytes, isolation, session.id, session.epoch)

    def encode(version: int) -> Encoded[FetchResponse]:
        if version >= _FLEXIBLE:
            body = _flexible(head, partitions, session.forgotten, rack, by_id=version >= _BY_ID)
        else:
            body = _version_11(head, partitions, session.forgotten, rack)

        def read(frame: Released, place: int) -> FetchResponse:
            try:
                return parse_response(frame, place, version)
            except (struct.error, ValueError, IndexError) as error:
                frame.release()
                raise Garbled(f"a response to fetch cannot be read: {error}") from error

        return Encoded(version, (body,), read)

    return Call(FETCH, _BY_ID - 1 if named else _BY_ID, encode)


def _flexible(
    head: bytes,
    positions: Sequence[FetchPosition],
    forgotten: Sequence[Forgotten],
    rack: str,
    *,
    by_id: bool,
) -> bytes:
    topics: dict[UUID | str | None, list[bytes]] = {}
    for one in positions:
        topics.setdefault(one.topic_id if by_id else one.topic, []).append(
            _WANTED.pack(
                one.partition,
                one.leader_epoch,
                one.offset,
                one.last_fetched_epoch,
                -1,  # log start offset, sent only by followers
                one.max_bytes,
                0,
            )
        )
    parts = [head, uvarint(len(topics) + 1)]
    for topic, partitions in topics.items():
        parts += [_compact(topic), uvarint(len(partitions) + 1), *partitions, b"\0"]
    parts.append(uvarint(len(forgotten) + 1))
    for topic_id, name, indexes in forgotten:
        left = _compact(topic_id if by_id else name)
        parts += [left, uvarint(len(indexes) + 1), *map(_INDEX.pack, indexes), b"\0"]
    parts += [_compact(rack), b"\0"]
    return b"".join(parts)


def _version_11(
    head: bytes, positions: Sequence[FetchPosition], forgotten: Sequence[Forgotten], rack: str
) -> bytes:
    topics: dict[str, list[bytes]] = {}
    for one in positions:
        topics.setdefault(one.topic, []).append(
            _WANTED_11.pack(one.partition, one.leader_epoch, one.offset, -1, one.max_bytes)
        )
    parts = [head, _INDEX.pack(len(topics))]
    for topic, partitions in topics.items():
        parts += [_string(topic), _INDEX.pack(len(partitions)), *partitions]
    parts.append(_INDEX.pack(len(forgotten)))
    for _, name, indexes in forgotten:
        parts += [_string(name), _INDEX.pack(len(indexes)), *map(_INDEX.pack, indexes)]
    parts.append(_string(rack))
    return b"".join(parts)


def _compact(topic: UUID | str | None) -> bytes:
    if isinstance(topic, UUID):
        return topic.bytes
    content = (topic or "").encode()
    return uvarint(len(content) + 1) + content


def _string(text: str) -> bytes:
    content = text.encode()
    return _SHORT.pack(len(content)) + content


def parse_response(frame: Released, place: int, version: int) -> FetchResponse:
    """Read a response whose body begins at byte ``place``.

    Raise ``ValueError``, ``IndexError`` or ``struct.error`` if the response is too short or too
    long.
    """
    view = frame.view
    flexible, by_id = version >= _FLEXIBLE, version >= _BY_ID
    count_of, read_one = (_count, _partition) if flexible else (_count_11, _partition_11)
    throttle_ms, code, session_id = _ANSWERED.unpack_from(view, place)
    topics, place = count_of(view, place + _ANSWERED.size, 6)
    partitions: list[Fetched] = []
    for _ in range(topics):
        topic_id, name = None, ""
        if by_id:
            topic_id, place = UUID(bytes=bytes(view[place : place + 16])), place + 16
        elif flexible:
            size, place = _count(view, place, 1)
            name, place = str(view[place : place + size], "utf-8"), place + size
        else:
            (size,) = _SHORT.unpack_from(view, place)
            name, place = _name_11(view, place + _SHORT.size, size), place + _SHORT.size + size
        count, place = count_of(view, place, _PARTITION.size)
        for _ in range(count):
            fetched, place = read_one(view, place, topic_id, name)
            partitions.append(fetched)
        if flexible:
            _, place = _tags(view, place)
    if flexible:
        _, place = _tags(view, place)
    if place != len(view):
        raise ValueError(f"{len(view) - place} bytes too many")
    return FetchResponse(throttle_ms, error_code(code), session_id, partitions, frame)


def _partition(
    view: memoryview, place: int, topic_id: UUID | None, name: str
) -> tuple[Fetched, int]:
    partition, code, high, stable, start = _PARTITION.unpack_from(view, place)
    listed = place + _PARTITION.size
    count, place = _count(view, listed, 17)
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        producer_id, first_offset = struct.unpack_from(">qq", view, place)
        aborted.append((producer_id, first_offset))
        _, place = _tags(view, place + 16)
    (preferred,) = _INDEX.unpack_from(view, place)
    size, place = _count(view, place + _INDEX.size, 1)
    records, place = view[place : place + size], place + size
    tags, place = _tags(view, place)
    diverging = _DIVERGING.unpack_from(tags[0]) if 0 in tags else None
    leader = _LEADER.unpack_from(tags[1]) if 1 in tags else None
    error = error_code(code) if code else ErrorCode.none
    return Fetched(
        topic_id, partition, error, high, stable, start, aborted if view[listed] else None,
        preferred, records,
        None if diverging == (-1, -1) else diverging, None if leader == (-1, -1) else leader, name,
    ), place  # fmt: skip


def _partition_11(
    view: memoryview, place: int, topic_id: UUID | None, name: str
) -> tuple[Fetched, int]:
    partition, code, high, stable, start = _PARTITION.unpack_from(view, place)
    (listed,) = _INDEX.unpack_from(view, place + _PARTITION.size)
    count, place = _count_11(view, place + _PARTITION.size, 16)
    aborted = (
        None
        if listed < 0
        else [_ABORTED.unpack_from(view, place + 16 * one) for one in range(count)]
    )
    place += 16 * count
    (preferred,) = _INDEX.unpack_from(view, place)
    size, place = _count_11(view, place + _INDEX.size, 1)
    records, place = view[place : place + size], place + size
    error = error_code(code) if code else ErrorCode.none
    return Fetched(
        topic_id, partition, error, high, stable, start, aborted, preferred, records,
        topic=name,
    ), place  # fmt: skip


def _name_11(view: memoryview, place: int, size: int) -> str:
    if not 0 <= size <= len(view) - place:
        raise ValueError(f"a name of {size} bytes in {len(view) - place}")
    return str(view[place : place + size], "utf-8")


def _count_11(view: memoryview, place: int, least_bytes: int) -> tuple[int, int]:
    """Return the length of an array or of bytes (0 for null), and the next position.

    Raise ``ValueError`` if so many entries do not fit into the response.
    """
    (count,) = _INDEX.unpack_from(view, place)
    place += _INDEX.size
    if count * least_bytes > len(view) - place:
        raise ValueError(f"{count} entries in {len(view) - place} bytes")
    return max(count, 0), place


def _count(view: memoryview, place: int, least_bytes: int) -> tuple[int, int]:
    """Return the length of an array or of bytes (0 for null), and the next position.

    Raise ``ValueError`` if so many entries do not fit into the response.
    """
    count, place = read_uvarint(view, place)
    if (count - 1) * least_bytes > len(view) - place:
        raise ValueError(f"{count - 1} entries in {len(view) - place} bytes")
    return max(count - 1, 0), place


def _tags(view: memoryview, place: int) -> tuple[dict[int, memoryview], int]:
    if not view[place]:
        return _NO_TAGS, place + 1
    count, place = read_uvarint(view, place)
    found: dict[int, memoryview] = {}
    for _ in range(count):
        tag, place = read_uvarint(view, place)
        size, place = read_uvarint(view, place)
        if size > len(view) - place:
            raise ValueError(f"a tag of {size} bytes in {len(view) - place}")
        found[tag] = view[place : place + size]
        place += size
    return found, place


# Incremental fetch sessions (KIP-227). A request contains only changed partitions, and a response
# only partitions with new data or other changes. The rules are those of Kafka's
# ``FetchSessionHandler``.

K = TypeVar("K", bound=Hashable)
_OPEN = 0
"""Epoch that requests a new session. A broker without room for a session returns id 0."""
_LAST_EPOCH = (1 << 31) - 1


class FetchSession(Generic[K]):
    """Fetch session with one broker.

    There is one request at a time: call ``begin``, then ``answered`` or ``lost``.
    """

    def __init__(self) -> None:
        self._id, self._epoch = 0, _OPEN
        self._named = False
        self._known: Mapping[K, FetchPosition] = {}
        """Partitions that the broker has in the session, unless ``_epoch`` is ``_OPEN``."""

    def begin(self, positions: Mapping[K, FetchPosition]) -> tuple[list[FetchPosition], Session]:
        """Return the changes that the next request must contain to fetch exactly ``positions``.

        A partition whose topic was created again has another id. It is removed and added again.
        """
        known, self._known = self._known, positions
        if self._epoch == _OPEN:
            self._named = any(one.topic_id is None for one in positions.values())
            return list(positions.values()), Session(self._id, _OPEN, named=self._named)
        changed = [
            one
            for key, one in positions.items()
            # Offsets differ most often, and comparing topic ids takes a call.
            if (old := known.get(key)) is not one
            and (old is None or old.offset != one.offset or old != one)
        ]
        self._named = self._named or any(one.topic_id is None for one in changed)
        topics: dict[tuple[UUID | None, str], list[int]] = {}
        for key, old in known.items():
            if (new := positions.get(key)) is None or (
                new.topic_id is not old.topic_id and new.topic_id != old.topic_id
            ):
                topics.setdefault((old.topic_id, old.topic), []).append(old.partition)
        forgotten = tuple(Forgotten(*topic, indexes) for topic, indexes in topics.items())
        return changed, Session(self._id, self._epoch, forgotten, self._named)

    def answered(self, response: FetchResponse) -> bool:
        """Update the session after a response, and return True if its partitions are valid.

        After an error of the session, the next request is a full one.
        """
        if response.error is not ErrorCode.none:
            if response.error is ErrorCode.fetch_session_id_not_found:
                self._id = 0
            self._epoch = _OPEN
            return False
        self._id = response.session_id
        if not self._id:
            self._epoch = _OPEN
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """Reset the session after a request without a response.

        The next request opens a new session.
        """
        self._epoch = _OPEN


class FetchOutcome(Enum):
    """Outcome of a Fetch for one partition."""

    FETCHED = auto()
    MOVED = auto()
    """The leader or the topic id changed. Refresh the metadata and retry."""
    OUT_OF_RANGE = auto()
    """The broker does not have this offset."""
    CORRUPT = auto()
    """The broker cannot read its log."""
    REFUSED = auto()
    """Any other error."""


_OUTCOMES = {
    ErrorCode.none: FetchOutcome.FETCHED,
    ErrorCode.offset_out_of_range: FetchOutcome.OUT_OF_RANGE,
    ErrorCode.corrupt_message: FetchOutcome.CORRUPT,
} | dict.fromkeys(
    (
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.leader_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    ),
    FetchOutcome.MOVED,
)


def fetch_outcome(code: ErrorCode) -> FetchOutcome:
    """Return the outcome for a partition's error code."""
    return _OUTCOMES.get(code, FetchOutcome.REFUSED)
