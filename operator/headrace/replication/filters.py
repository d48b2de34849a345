"""Which topics a flow replicates, and which groups its checkpoints follow."""

import re
from collections.abc import Sequence

from headrace.api import HEARTBEATS, is_internal
from headrace.replication.policy import ReplicationPolicy


class NameFilter:
    """Full match of the name; exclude wins."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self.include = [re.compile(pattern) for pattern in include]
        self._exclude = [re.compile(pattern) for pattern in exclude]

    def matches(self, name: str) -> bool:
        """Whether it is one of them."""
        if any(pattern.fullmatch(name) for pattern in self._exclude):
            return False
        return any(pattern.fullmatch(name) for pattern in self.include)


class TopicFilter:
    """Full match of the name; exclude wins; heartbeats pass or not, internal topics never."""

    def __init__(
        self,
        include: Sequence[str],
        exclude: Sequence[str],
        policy: ReplicationPolicy,
        target_alias: str,
        *,
        heartbeats: bool = True,
    ) -> None:
        """``heartbeats``: whether those of the source pass."""
        self._heartbeats = heartbeats
        self._names = NameFilter(include, exclude)
        self._policy = policy
        self._target_alias = target_alias

    def matches(self, topic: str) -> bool:
        """Whether this topic of the source is replicated."""
        if topic == HEARTBEATS:
            return self._heartbeats
        if is_internal(topic) or self._policy.came_from(topic, self._target_alias):
            return False
        return self._names.matches(topic)

    def unmatched(self, topics: Sequence[str]) -> list[str]:
        """The include patterns that match none of these topics."""
        replicated = [topic for topic in topics if self.matches(topic)]
        return [
            pattern.pattern
            for pattern in self._names.include
            if not any(pattern.fullmatch(topic) for topic in replicated)
        ]
