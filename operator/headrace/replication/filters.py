"""Selects topics and groups by name, and filters and changes records."""

import re
from collections.abc import Iterable, Sequence

from headrace.api import HEARTBEATS, HeaderChanges, RecordFilter, RecordHeader, is_internal
from headrace.replication.policies import ReplicationPolicy


class NameFilter:
    """Selection of names by patterns that match the whole name.

    Exclude patterns take precedence.
    """

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self.include = [re.compile(pattern) for pattern in include]
        self._exclude = [re.compile(pattern) for pattern in exclude]

    def matches(self, name: str) -> bool:
        """Return True if the name is selected."""
        if any(pattern.fullmatch(name) for pattern in self._exclude):
            return False
        return any(pattern.fullmatch(name) for pattern in self.include)


class TopicFilter:
    """Selection of topics by patterns that match the whole name.

    Exclude patterns take precedence. Internal topics and topics that came from the target are never
    selected. Heartbeats topics are selected if ``heartbeats`` is True.
    """

    def __init__(
        self,
        include: Sequence[str],
        exclude: Sequence[str],
        policy: ReplicationPolicy,
        target_alias: str,
        *,
        heartbeats: bool = True,
    ) -> None:
        """Create a filter. ``heartbeats`` is True if the source's heartbeats topic is selected."""
        self._heartbeats = heartbeats
        self._names = NameFilter(include, exclude)
        self._policy = policy
        self._target_alias = target_alias

    def matches(self, topic: str) -> bool:
        """Return True if a source topic is replicated."""
        if topic == HEARTBEATS:
            return self._heartbeats
        if is_internal(topic) or self._policy.came_from(topic, self._target_alias):
            return False
        return self._names.matches(topic)

    def unmatched(self, topics: Sequence[str]) -> list[str]:
        """Return the include patterns that match none of these topics."""
        replicated = [topic for topic in topics if self.matches(topic)]
        return [
            pattern.pattern
            for pattern in self._names.include
            if not any(pattern.fullmatch(topic) for topic in replicated)
        ]


# The record filter and the header changes of a flow (``spec.recordFilter``, ``spec.headers``). No
# I/O.

Headers = tuple[tuple[str, bytes | None], ...]


class RecordChanges:
    """Record filter and header changes of one flow. They do not apply to heartbeats."""

    def __init__(self, record_filter: RecordFilter | None, headers: HeaderChanges | None) -> None:
        """Create the object from the fields of the flow's spec."""
        headers = headers or HeaderChanges()
        record_filter = record_filter or RecordFilter()
        self._include = _Headers(record_filter.headers.include)
        self._exclude = _Headers(record_filter.headers.exclude)
        self._removed = frozenset(headers.remove)
        self._added: Headers = tuple((one.name, one.value.encode()) for one in headers.add)

    def concern(self, topic: str) -> bool:
        """Return False if all records of a topic are copied unchanged."""
        return topic != HEARTBEATS and bool(
            self._include or self._exclude or self._removed or self._added
        )

    def apply(self, headers: Headers) -> Headers | None:
        """Return the headers of a record's copy, or None if the record is not copied.

        The result is ``headers`` itself if nothing changes. Call it only if ``concern`` returns
        True for the topic.
        """
        if self._exclude.match(headers) or (self._include and not self._include.match(headers)):
            return None
        if self._removed and any(name in self._removed for name, _ in headers):
            headers = tuple(one for one in headers if one[0] not in self._removed)
        return headers + self._added if self._added else headers


class _Headers:
    def __init__(self, headers: Iterable[RecordHeader]) -> None:
        self._any_value = {one.name for one in headers if one.value is None}
        self._values = {(one.name, one.value.encode()) for one in headers if one.value is not None}

    def __bool__(self) -> bool:
        return bool(self._any_value or self._values)

    def match(self, headers: Headers) -> bool:
        """Return True if at least one of the headers matches."""
        return any(
            name in self._any_value or (name, value) in self._values for name, value in headers
        )
