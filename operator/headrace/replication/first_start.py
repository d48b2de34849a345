"""Topics that the source had at the first start of a flow.

They are stored in the progress topic on the target with separate keys, so that they need no other
topic or permission. Earlier versions of headrace log that they cannot read these keys, and ignore
the records.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from hashlib import blake2b
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple, Self

from pydantic import TypeAdapter

_ENTRY = Struct(">8sI?")
"""Hash of a topic's name and id, number of partitions, and True if the flow selected the topic."""
_TOPICS_OF_A_RECORD = 5_000
"""Maximum number of topics in a record. It then has 87 KB. Brokers accept 1 MB by default."""


class Origin(StrEnum):
    """State of a partition without progress at the first start of its flow."""

    SELECTED = "Selected"
    """The partition existed, and the flow selected its topic."""
    NOT_SELECTED = "NotSelected"
    """The partition existed, and the flow selected its topic only later."""
    CREATED_LATER = "CreatedLater"


class SourceTopic(NamedTuple):
    """A topic of the source."""

    name: str
    topic_id: str
    """Id of the topic, or an empty string if the source's brokers have no topic ids."""
    partitions: int
    selected: bool
    """True if ``spec.topics`` selects the topic."""


@dataclass(frozen=True)
class FirstStartKey:
    """Key of one record. The topics of a large cluster need several records."""

    first_start_of_flow: str
    source_cluster_id: str
    part: int = 0

    def encode(self) -> bytes:
        """Return canonical JSON, because compaction compares bytes."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> "FirstStartKey":
        """Decode a key. Raise ``ValueError`` for the key of another kind of record."""
        return _KEYS.validate_json(data, strict=True)


_KEYS: TypeAdapter[FirstStartKey] = TypeAdapter(FirstStartKey)


def is_first_start(key: bytes) -> bool:
    """Return True for the key of a record about a flow's first start."""
    try:
        FirstStartKey.decode(key)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class _Part:
    """Value of one record."""

    time_ms: int
    """Unix time of the first start, in ms. All records of one start have the same time."""
    parts: int
    """Number of records of the first start."""
    topics: str
    """Entries in Base64."""


_PARTS: TypeAdapter[_Part] = TypeAdapter(_Part)


class FirstStart:
    """Topics of the source at the first start of a flow."""

    def __init__(self, entries: Mapping[bytes, tuple[int, bool]] = MappingProxyType({})) -> None:
        """Create the object.

        ``entries`` contains the number of partitions of each topic, and True if the flow selected
        the topic, by the hash of the topic's name and id.
        """
        self._entries = entries

    @classmethod
    def of(cls, topics: Iterable[SourceTopic]) -> Self:
        """Create the object from the topics of the source."""
        return cls(
            {_hash(one.name, one.topic_id): (one.partitions, one.selected) for one in topics}
        )

    def origin(self, name: str, topic_id: str, partition: int) -> Origin:
        """Return whether a partition existed, and was selected, when the flow first started.

        ``topic_id`` is empty if the topic has no id.
        """
        # A topic keeps its entry without an id if its cluster is upgraded to Kafka 2.8.
        found = self._entries.get(_hash(name, topic_id)) or self._entries.get(_hash(name, ""))
        if found is None or partition >= found[0]:
            return Origin.CREATED_LATER
        return Origin.SELECTED if found[1] else Origin.NOT_SELECTED

    def encode(self, key: FirstStartKey, time_ms: int) -> dict[bytes, bytes]:
        """Return the records to store. ``key`` is the key of the first one."""
        packed = [_ENTRY.pack(*((one, *entry))) for one, entry in sorted(self._entries.items())]
        most = _TOPICS_OF_A_RECORD
        chunks = [packed[n : n + most] for n in range(0, len(packed), most)] or [[]]
        return {
            FirstStartKey(
                key.first_start_of_flow, key.source_cluster_id, part
            ).encode(): json.dumps(
                asdict(_Part(time_ms, len(chunks), b64encode(b"".join(chunk)).decode()))
            ).encode()
            for part, chunk in enumerate(chunks)
        }


def _hash(name: str, topic_id: str) -> bytes:
    return blake2b(f"{name}\n{topic_id}".encode(), digest_size=8).digest()


class FirstStarts:
    """Records of all flows that store progress in one topic. Not thread-safe."""

    def __init__(self) -> None:
        self._parts: dict[FirstStartKey, _Part] = {}

    def read(self, key: bytes, value: bytes | None) -> None:
        """Read a record. Raise ``ValueError`` for another kind of record."""
        decoded = FirstStartKey.decode(key)
        if value is None:
            self._parts.pop(decoded, None)
        else:
            self._parts[decoded] = _PARTS.validate_json(value, strict=True)

    def get(self, key: FirstStartKey) -> FirstStart | None:
        """Return the first start of a flow, or None if it is missing or incomplete."""
        first = self._parts.get(key)
        if first is None:
            return None
        flow, source = key.first_start_of_flow, key.source_cluster_id
        found = [self._parts.get(FirstStartKey(flow, source, n)) for n in range(first.parts)]
        entries: dict[bytes, tuple[int, bool]] = {}
        for part in found:
            if part is None or part.time_ms != first.time_ms:
                return None
            for one, partitions, selected in _ENTRY.iter_unpack(b64decode(part.topics)):
                entries[one] = partitions, selected
        return FirstStart(entries)
