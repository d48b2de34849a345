"""Requests and responses as bytes. The schemas and the writer are kio's.

Each request is spoken in one version: the newest that brokers of Kafka 3.3 already served, which
those of 4.3 still serve. One version means one code path, tested against all of them; later ones
have nothing that replication needs so far. EndTxn stays below 5, whose brokers raise the producer
epoch with each transaction (KIP-890). Those of share groups are the oldest, of Kafka 4.1.
"""

import io
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar, cast

from kio.index import load_request_schema, load_response_schema
from kio.schema.add_partitions_to_txn.v3 import AddPartitionsToTxnResponse
from kio.schema.alter_share_group_offsets.v0 import AlterShareGroupOffsetsResponse
from kio.schema.api_versions.v3 import ApiVersionsResponse
from kio.schema.delete_records.v2 import DeleteRecordsResponse
from kio.schema.describe_acls.v2 import DescribeAclsResponse
from kio.schema.describe_producers.v0 import DescribeProducersResponse
from kio.schema.describe_share_group_offsets.v0 import DescribeShareGroupOffsetsResponse
from kio.schema.describe_transactions.v0 import DescribeTransactionsResponse
from kio.schema.end_txn.v3 import EndTxnResponse
from kio.schema.find_coordinator.v4 import FindCoordinatorResponse
from kio.schema.index import api_key_map
from kio.schema.init_producer_id.v4 import InitProducerIdResponse
from kio.schema.list_groups.v4 import ListGroupsResponse
from kio.schema.list_offsets.v7 import ListOffsetsResponse
from kio.schema.metadata.v12 import MetadataResponse
from kio.schema.offset_commit.v8 import OffsetCommitResponse
from kio.schema.offset_fetch.v8 import OffsetFetchResponse
from kio.schema.offset_for_leader_epoch.v4 import OffsetForLeaderEpochResponse
from kio.schema.produce.v9 import ProduceResponse
from kio.schema.sasl_authenticate.v2 import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeResponse
from kio.schema.share_group_describe.v1 import ShareGroupDescribeResponse
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from headrace.kafka.wire.errors import Garbled
from headrace.kafka.wire.schemas import read_message

A = TypeVar("A")
Buffer = bytes | bytearray | memoryview

PRODUCE, FETCH = (0, 9), (1, 13)
"""Key and version of the requests that are framed by hand, in ``produce.py`` and ``fetch.py``."""

_RESPONSES: dict[tuple[int, int], type] = {
    (schema.__api_key__, schema.__version__): schema
    for schema in (
        AddPartitionsToTxnResponse,
        AlterShareGroupOffsetsResponse,
        ApiVersionsResponse,
        DeleteRecordsResponse,
        DescribeAclsResponse,
        DescribeProducersResponse,
        DescribeShareGroupOffsetsResponse,
        DescribeTransactionsResponse,
        EndTxnResponse,
        FindCoordinatorResponse,
        InitProducerIdResponse,
        ListGroupsResponse,
        ListOffsetsResponse,
        MetadataResponse,
        OffsetCommitResponse,
        OffsetFetchResponse,
        OffsetForLeaderEpochResponse,
        ProduceResponse,
        SaslAuthenticateResponse,
        SaslHandshakeResponse,
        ShareGroupDescribeResponse,
    )
}
SPOKEN: dict[int, int] = dict([*_RESPONSES, FETCH])
"""Version of each request that this client may send, by its key."""
SINCE_4_1 = frozenset(
    schema.__api_key__
    for schema in (
        AlterShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsResponse,
        ShareGroupDescribeResponse,
    )
)
"""Requests that brokers need not serve."""

_CORRELATION = struct.Struct(">i")
_SIZE = struct.Struct(">i")


class Released(Protocol):
    """A response's buffer, which is used again after ``release``."""

    @property
    def view(self) -> memoryview:
        """The response, header included."""
        ...

    def release(self) -> None:
        """The response is not needed any more."""
        ...


@dataclass(frozen=True, slots=True)
class Call(Generic[A]):
    """A request, and how its response is read."""

    api_key: int
    version: int
    body: Sequence[Buffer]
    """Without the header; sent as it is, not joined."""
    read: Callable[[Released, int], A]
    """From a response and where its body begins; raises ``Garbled``. Releases it, or its result
    does so."""

    @property
    def name(self) -> str:
        """Kafka's name of the request, in lower case."""
        return api_name(self.api_key)


def api_name(api_key: int) -> str:
    """``list_offsets``."""
    return api_key_map.get(api_key, f"request {api_key}")


def call(request: Any, response: type[A]) -> Call[A]:
    """A request of kio's, whose response is of that type."""
    key, version = request.__api_key__, request.__version__
    if _RESPONSES.get((key, version)) is not response:
        raise TypeError(f"{type(request).__name__} v{version} is not answered by {response}")
    buffer = io.BytesIO()
    entity_writer(type(request))(buffer, request)

    def read(frame: Released, place: int) -> A:
        try:
            return read_whole(response, frame.view, place, api_name(key))
        finally:
            frame.release()

    return Call(key, version, (buffer.getvalue(),), read)


def read_whole(schema: type[A], view: memoryview, place: int, name: str) -> A:
    """Read a message that ends with ``view``; ``Garbled`` for anything else."""
    try:
        message, end = read_message(schema, view, place)
    except ValueError as error:
        raise Garbled(f"a response to {name} cannot be read: {error}") from error
    if end != len(view):
        raise Garbled(f"a response to {name} has {len(view) - end} bytes too many")
    return cast(A, message)


def throttle_ms(answer: Any) -> int:
    """For how long the broker wants no further request, as its response says."""
    if (own := getattr(answer, "throttle_ms", None)) is not None:
        return int(own)
    delay: timedelta = getattr(answer, "throttle_time", timedelta())
    return int(delay.total_seconds() * 1000)


class Headers:
    """Writes and reads the headers of requests and responses, for one client id."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._requests: dict[tuple[int, int], bytes] = {}
        self._responses: dict[tuple[int, int], type] = {}

    def request(self, call: Call[Any], correlation_id: int) -> bytes:
        """Size and header of a request, to be sent before its body."""
        kind = call.api_key, call.version
        start = self._requests.get(kind) or self._requests.setdefault(kind, self._header(kind))
        size = len(start) + sum(map(len, call.body))
        # Key and version come first, then the correlation id, in each version of the header.
        return _SIZE.pack(size) + start[:4] + _CORRELATION.pack(correlation_id) + start[8:]

    def response(self, call: Call[Any], view: memoryview, correlation_id: int) -> int:
        """Where the body begins; ``Garbled`` when this is not the response to that request."""
        kind = call.api_key, call.version
        if (schema := self._responses.get(kind)) is None:
            answer = load_response_schema(i16(call.api_key), i16(call.version))
            schema = self._responses[kind] = cast(type, answer.__header_schema__)
        try:
            header, place = read_message(schema, view, 0)
        except ValueError as error:
            raise Garbled(f"a response to {call.name} has no readable header: {error}") from error
        if header.correlation_id != correlation_id:
            raise Garbled(
                f"a response to {call.name} has correlation id {header.correlation_id} instead of "
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
