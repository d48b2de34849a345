"""Requests that go to the leaders of partitions: grouped by leader, repeated where one moved."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kio.schema.errors import ErrorCode

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.errors import AccessDenied
from headrace.kafka.wire.cluster import ClusterClient
from headrace.kafka.wire.errors import UnsupportedBroker, refusal
from headrace.kafka.wire.protocol import Call
from headrace.kafka.wire.replies import start
from headrace.kafka.wire.view import Leadership
from headrace.timing import Backoff

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """Result, or error, of each requested partition."""

    found: Mapping[TopicPartition, T]
    failed: Mapping[TopicPartition, HeadraceError]

    def all(self) -> Mapping[TopicPartition, T]:
        """Return the results; raise the first failure, if there is one."""
        for error in self.failed.values():
            raise error
        return self.found


Group = list[tuple[TopicPartition, Leadership]]
"""Partitions of one leader."""
Results = Iterable[tuple[TopicPartition, ErrorCode, T]]
"""Results of each partition in a response."""


@dataclass(slots=True)
class _Asking(Generic[T]):
    tried: str
    open: dict[TopicPartition, HeadraceError]
    """Why there is no answer yet."""
    found: dict[TopicPartition, T] = field(default_factory=dict)
    failed: dict[TopicPartition, HeadraceError] = field(default_factory=dict)

    def take(self, results: Results[T]) -> None:
        for at, code, answer in results:
            if code is ErrorCode.none:
                self.found[at] = answer
                self.open.pop(at, None)
            else:
                self.refuse(at, code)

    def refuse(self, at: TopicPartition, code: ErrorCode) -> None:
        error = refusal(code, f"{self.tried} {at}")
        if code.retriable:
            self.open[at] = error
        else:
            self.failed[at] = error
            self.open.pop(at, None)


async def ask_leaders(
    cluster: ClusterClient,
    partitions: Iterable[TopicPartition],
    tried: str,
    request: Callable[[Group], Call[Any]],
    results: Callable[[Any], Results[T]],
    *,
    timeout_s: float,
) -> Answers[T]:
    """Ask each leader for its partitions, until all have answered or ``timeout_s`` is over.

    Only for what changes nothing: a request that may have arrived is sent again. A partition
    without a leader fails when the time is over, and holds up no other. Raises ``AccessDenied`` and
    ``UnsupportedBroker``.
    """
    loop, backoff = cluster.loop, Backoff(0.05, 1.0)
    deadline_s = loop.now_s() + timeout_s
    leaderless = Retriable(f"could not {tried} the partition has no leader")
    asking = _Asking[T](tried, dict.fromkeys(partitions, leaderless))
    for attempt in itertools.count():
        groups = _by_leader(cluster, asking.open)
        replies = {
            leader: start(_ask(cluster, leader, request(group))) for leader, group in groups.items()
        }
        for leader, reply in replies.items():
            try:
                asking.take(results(await reply))
            except (AccessDenied, UnsupportedBroker):
                raise
            except HeadraceError as error:
                asking.open |= {at: error for at, _ in groups[leader]}
        left_s = deadline_s - loop.now_s()
        if not asking.open or left_s <= 0:
            break
        if groups or attempt:  # else nobody was asked yet: no reason to wait
            await loop.sleep(min(backoff.next_s(), left_s))
        await _refresh(cluster, {at.topic for at in asking.open}, backoff)
        for at in list(asking.open):
            topic = cluster.view.topics.get(at.topic)
            if topic is not None and topic.error is not ErrorCode.none:
                asking.refuse(at, topic.error)
    return Answers(asking.found, asking.failed | asking.open)


def _by_leader(cluster: ClusterClient, partitions: Iterable[TopicPartition]) -> dict[int, Group]:
    groups: dict[int, Group] = {}
    for at in partitions:
        if (known := cluster.view.leadership(at)) is not None:
            groups.setdefault(known.leader, []).append((at, known))
    return groups


async def _ask(cluster: ClusterClient, leader: int, call: Call[T]) -> T:
    connection = await cluster.connection(leader)
    return await connection.send(call)


async def _refresh(cluster: ClusterClient, topics: Iterable[str], backoff: Backoff) -> None:
    try:
        await cluster.refresh(topics)
    except (AccessDenied, UnsupportedBroker):
        raise
    except HeadraceError:
        await cluster.loop.sleep(backoff.next_s())  # the next round asks another broker
