"""Encodes requests and decodes responses in the versions that a broker supports.

The schemas and the writer come from kio. ``SPOKEN`` contains the supported versions of each
request, and a connection uses the newest one that its broker also serves. Callers use the newest
version. Messages of older versions are converted here, field by field.

The oldest versions are those of Kafka 2.4. The newest ones contain what replication needs. EndTxn
stays below version 5, because from that version on brokers raise the producer epoch with each
transaction (KIP-890).
"""

import io
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Generic, Protocol, TypeVar, cast

from kio.index import load_request_schema, load_response_schema
from kio.schema.add_partitions_to_txn.v3 import AddPartitionsToTxnResponse
from kio.schema.alter_share_group_offsets.v0 import AlterShareGroupOffsetsResponse
from kio.schema.api_versions.v3 import ApiVersionsResponse
from kio.schema.delete_records.v2 import DeleteRecordsResponse
from kio.schema.delete_topics.v6 import DeleteTopicsResponse
from kio.schema.describe_acls.v2 import DescribeAclsResponse
from kio.schema.describe_configs.v4 import DescribeConfigsResponse
from kio.schema.describe_log_dirs.v4 import DescribeLogDirsResponse
from kio.schema.describe_producers.v0 import DescribeProducersResponse
from kio.schema.describe_share_group_offsets.v0 import DescribeShareGroupOffsetsResponse
from kio.schema.describe_transactions.v0 import DescribeTransactionsResponse
from kio.schema.end_txn.v3 import EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4 import FindCoordinatorResponse
from kio.schema.index import api_key_map
from kio.schema.init_producer_id.v4 import InitProducerIdResponse
from kio.schema.list_groups.v4 import ListGroupsResponse
from kio.schema.list_offsets.v7 import ListOffsetsResponse
from kio.schema.list_transactions.v0 import ListTransactionsResponse
from kio.schema.metadata.v12 import MetadataResponse
from kio.schema.offset_commit.v8 import OffsetCommitResponse
from kio.schema.offset_fetch.v8 import OffsetFetchResponse
from kio.schema.offset_for_leader_epoch.v4 import OffsetForLeaderEpochResponse
from kio.schema.sasl_authenticate.v2 import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeResponse
from kio.schema.share_group_describe.v1 import ShareGroupDescribeResponse
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from headrace.kafka.wire.errors import Garbled
from headrace.kafka.wire.schemas import entry_type, read_message

A = TypeVar("A")
Buffer = bytes | bytearray | memoryview

_RESPONSES: dict[tuple[int, int], type] = {
    (schema.__api_key__, schema.__version__): schema
    for schema in (
        AddPartitionsToTxnResponse,
        AlterShareGroupOffsetsResponse,
        ApiVersionsResponse,
        DeleteRecordsResponse,
        DeleteTopicsResponse,
        DescribeAclsResponse,
        DescribeConfigsResponse,
        DescribeLogDirsResponse,
        DescribeProducersResponse,
        DescribeShareGroupOffsetsResponse,
        DescribeTransactionsResponse,
        EndTxnResponse,
        FindCoordinatorResponse,
        InitProducerIdResponse,
        ListGroupsResponse,
        ListOffsetsResponse,
        ListTransactionsResponse,
        MetadataResponse,
        OffsetCommitResponse,
        OffsetFetchResponse,
        OffsetForLeaderEpochResponse,
        SaslAuthenticateResponse,
        SaslHandshakeResponse,
        ShareGroupDescribeResponse,
    )
}
PRODUCE, FETCH, METADATA = 0, 1, 3
FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS = 10, 17, 18
DELETE_TOPICS = 20
OFFSET_FETCH = 9
INIT_PRODUCER_ID, END_TXN, OFFSET_FOR_LEADER_EPOCH = 22, 26, 23
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
"""API keys of requests."""

_OLDEST = {
    "add_partitions_to_txn": 1,
    "delete_records": 1,
    "describe_acls": 1,
    "describe_configs": 1,
    "describe_log_dirs": 1,
    "find_coordinator": 3,
    "init_producer_id": 2,
    "list_groups": 3,
    "list_offsets": 5,
    "metadata": 9,
    "offset_fetch": 6,
    "offset_for_leader_epoch": 3,
    "end_txn": 1,
    "sasl_authenticate": 1,
}
"""Oldest supported version of each request that has several. Kafka 2.4 serves it."""

SPOKEN: dict[int, tuple[int, int]] = {
    key: (_OLDEST.get(api_key_map[key], newest), newest) for key, newest in _RESPONSES
} | {PRODUCE: (8, 13), FETCH: (11, 13)}
"""Oldest and newest version of each request that this client sends, by API key."""
COMPARES_EPOCHS = 12
"""First version of Fetch in which brokers compare the epoch of the last fetched record."""
REQUIRED = (
    PRODUCE,
    FETCH,
    ListOffsetsResponse.__api_key__,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
)
"""Requests that every broker of a source or target must serve."""
SHARE_GROUP_KEYS = frozenset(
    schema.__api_key__
    for schema in (
        AlterShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsResponse,
        ShareGroupDescribeResponse,
    )
)
SINCE = {
    DESCRIBE_PRODUCERS: "2.8",
    DESCRIBE_TRANSACTIONS: "3.0",
    LIST_TRANSACTIONS: "3.0",
} | dict.fromkeys(SHARE_GROUP_KEYS, "4.1")
"""Kafka release that introduced a request, for requests that Kafka 2.4 does not serve."""

_CORRELATION = struct.Struct(">i")
_SIZE = struct.Struct(">i")


class Released(Protocol):
    """Response in a buffer that is reused after ``release``."""

    @property
    def view(self) -> memoryview:
        """The response including its header."""
        ...

    def release(self) -> None:
        """Release the buffer."""
        ...


@dataclass(frozen=True, slots=True)
class Encoded(Generic[A]):
    """A request in one version, and a function that reads its response."""

    version: int
    body: Sequence[Buffer]
    """The request without its header. The parts are sent in order, without joining them."""
    read: Callable[[Released, int], A]
    """Reads a response from the start of its body, or raises ``Garbled``.

    The function releases the response, unless its result releases it later.
    """


@dataclass(frozen=True, slots=True)
class Call(Generic[A]):
    """A request that can be encoded in the version that its broker serves."""

    api_key: int
    newest: int
    """Newest version in which this request can be encoded."""
    encode: Callable[[int], Encoded[A]]

    @property
    def name(self) -> str:
        """Kafka's name of the request, in lower case."""
        return api_name(self.api_key)


def api_name(api_key: int) -> str:
    """Return Kafka's name of a request, for example ``list_offsets``."""
    return api_key_map.get(api_key, f"request {api_key}")


def call(request: Any, response: type[A], *, without: Collection[str] = ()) -> Call[A]:
    """Return the call for a kio request.

    An older response is converted to the type ``response``: fields that it lacks have their default
    value or are empty.

    Args:
        request: Request in its newest version.
        response: Type of the response, in the same version.
        without: Fields that may be omitted if an older request version lacks them. All other fields
            that it lacks must have their default value.
    """
    key, newest = request.__api_key__, request.__version__
    oldest, _ = SPOKEN[key]
    if (response.__api_key__, response.__version__) != (key, newest):  # type: ignore[attr-defined]
        raise TypeError(f"{type(request).__name__} v{newest} is not answered by {response}")

    def encode(version: int) -> Encoded[A]:
        if not oldest <= version <= newest:
            raise TypeError(f"{type(request).__name__} cannot be encoded in version {version}")
        asked, answered = request, cast(Any, response)
        if version != newest:
            schema: Any = load_request_schema(i16(key), i16(version))
            asked = converted(request, schema, without=without)
            answered = load_response_schema(i16(key), i16(version))
        buffer = io.BytesIO()
        entity_writer(type(asked))(buffer, asked)

        def read(frame: Released, place: int) -> A:
            try:
                message = read_whole(answered, frame.view, place, api_name(key))
            finally:
                frame.release()
            # Kafka 2.4 sends 0 in a field of Metadata that newer versions lack.
            return message if answered is response else converted(message, response, without=None)

        return Encoded(version, (buffer.getvalue(),), read)

    return Call(key, newest, encode)


def converted(message: Any, schema: Callable[..., A], *, without: Collection[str] | None = ()) -> A:
    """Convert a message to another version of its schema.

    Raise ``TypeError`` if the version lacks a field whose value is not the default, and ``without``
    does not name the field. None allows all fields to be omitted.
    """
    values: dict[str, Any] = {}
    old: Any = type(message)
    new: Any = schema
    for name, entry, empty in _shared(old, new):
        if entry is not None:
            value = getattr(message, name)
            if isinstance(value, tuple):
                values[name] = tuple(converted(one, entry, without=without) for one in value)
            else:
                values[name] = None if value is None else converted(value, entry, without=without)
        else:
            values[name] = getattr(message, name, empty)
    for name, default in _dropped(old, new):
        if without is None or name in without:
            continue
        if getattr(message, name) not in (default, None):
            raise TypeError(f"{new.__name__} has no {name} in this version")
    return schema(**values)


_EMPTY = {"uuid": None, "bool": False, "string": "", "error_code": ErrorCode.none}


@cache
def _shared(old: type, new: type) -> list[tuple[str, type | None, Any]]:
    """List the fields of ``new``.

    Each entry has the field's name, the class of its entries, and the value to use if ``old`` lacks
    the field.
    """
    known = {one.name for one in fields(cast(Any, old))}
    found: list[tuple[str, type | None, Any]] = []
    for one in fields(cast(Any, new)):
        kind: Any = entry_type(one)
        entry: Any = kind if is_dataclass(kind) else None
        if one.name in known:
            found.append((one.name, entry, None))
        elif one.default is MISSING:
            found.append((one.name, None, _EMPTY[one.metadata["kafka_type"]]))
    return found


@cache
def _dropped(old: type, new: type) -> list[tuple[str, Any]]:
    """List the fields of ``old`` that ``new`` lacks, with their defaults."""
    left = {one.name for one in fields(cast(Any, new))}
    return [
        (one.name, () if one.default is MISSING else one.default)
        for one in fields(cast(Any, old))
        if one.name not in left
    ]


def read_whole(schema: type[A], view: memoryview, place: int, name: str) -> A:
    """Read a message that fills the rest of ``view``. Raise ``Garbled`` for any other content."""
    try:
        message, end = read_message(schema, view, place)
    except ValueError as error:
        raise Garbled(f"a response to {name} cannot be read: {error}") from error
    if end != len(view):
        raise Garbled(f"a response to {name} has {len(view) - end} bytes too many")
    return cast(A, message)


def throttle_ms(answer: Any) -> int:
    """Return the time in ms for which the broker wants no further requests."""
    if (own := getattr(answer, "throttle_ms", None)) is not None:
        return int(own)
    delay: timedelta = getattr(answer, "throttle_time", timedelta())
    return int(delay.total_seconds() * 1000)


class Headers:
    """Writes request headers and reads response headers, for one client id."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._requests: dict[tuple[int, int], bytes] = {}
        self._responses: dict[tuple[int, int], type] = {}
        self._tagged: set[tuple[int, int]] = set()
        """API keys and versions of responses whose header may have tags."""

    def request(self, api_key: int, encoded: Encoded[Any], correlation_id: int) -> bytes:
        """Return the size and the header of a request. They precede its body."""
        kind = api_key, encoded.version
        start = self._requests.get(kind) or self._requests.setdefault(kind, self._header(kind))
        size = len(start) + sum(map(len, encoded.body))
        # Key and version come first, then the correlation id, in each version of the header.
        return _SIZE.pack(size) + start[:4] + _CORRELATION.pack(correlation_id) + start[8:]

    def response(self, api_key: int, version: int, view: memoryview, correlation_id: int) -> int:
        """Return the start of the response's body.

        Raise ``Garbled`` if the response does not belong to the request.
        """
        kind, name = (api_key, version), api_name(api_key)
        if len(view) > _CORRELATION.size and view[4] == 0 and kind in self._tagged:
            (found,) = _CORRELATION.unpack_from(view)
            if found == correlation_id:  # the hot path: a header without tags
                return _CORRELATION.size + 1
        if (schema := self._responses.get(kind)) is None:
            answer = load_response_schema(*map(i16, kind))
            schema = self._responses[kind] = cast(type, answer.__header_schema__)
            if answer.__header_schema__.__version__ == 1:
                self._tagged.add(kind)
        try:
            header, place = read_message(schema, view, 0)
        except ValueError as error:
            raise Garbled(f"a response to {name} has no readable header: {error}") from error
        if header.correlation_id != correlation_id:
            raise Garbled(
                f"a response to {name} has correlation id {header.correlation_id} instead of "
                f"{correlation_id}"
            )
        return place

    def _header(self, kind: tuple[int, int]) -> bytes:
        schema: Any = load_request_schema(*map(i16, kind))
        header = schema.__header_schema__(
            request_api_key=schema.__api_key__,
            request_api_version=schema.__version__,
            correlation_id=i32(0),
            client_id=self._client_id,
        )
        buffer = io.BytesIO()
        entity_writer(type(header))(buffer, header)
        return buffer.getvalue()
