"""Sends requests to partition leaders and group coordinators."""

import itertools
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3 import FindCoordinatorRequest as FindOneRequest
from kio.schema.find_coordinator.v3 import FindCoordinatorResponse as FindOneResponse
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import Coordinator, FindCoordinatorResponse
from kio.static.primitive import i8

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.errors import AccessDenied
from headrace.kafka.wire.cluster import ClusterClient, Leadership
from headrace.kafka.wire.connection import Connection
from headrace.kafka.wire.errors import RequestRefused, UnsupportedBroker, refusal
from headrace.kafka.wire.loop import start
from headrace.kafka.wire.protocol import FIND_COORDINATOR, Call, call
from headrace.timing import Backoff

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """Result or error of each requested partition."""

    found: Mapping[TopicPartition, T]
    failed: Mapping[TopicPartition, HeadraceError]

    def all(self) -> Mapping[TopicPartition, T]:
        """Return the results. Raise the first error, if there is one."""
        for error in self.failed.values():
            raise error
        return self.found


Group = list[tuple[TopicPartition, Leadership]]
"""Partitions of one leader."""
Results = Iterable[tuple[TopicPartition, ErrorCode, T]]
"""Partition, error code and result of each entry of a response."""


@dataclass(slots=True)
class _Asking(Generic[T]):
    tried: str
    open: dict[TopicPartition, HeadraceError]
    """Partitions without a result, with the last error."""
    found: dict[TopicPartition, T] = field(default_factory=dict)
    failed: dict[TopicPartition, HeadraceError] = field(default_factory=dict)

    def take(self, results: Results[T]) -> None:
        """Take the results of a response, without those of partitions that were not requested.

        A damaged request or response can name another partition.
        """
        for at, code, answer in results:
            if at not in self.open:
                continue
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
    """Send requests to all leaders, and repeat them until each partition has a result or an error.

    Requests must be idempotent, because a request that may have arrived is sent again. A partition
    without a leader fails after ``timeout_s`` and delays no other one.

    Args:
        cluster: Client of the cluster.
        partitions: Partitions to request.
        tried: Name of the attempt, with which error messages begin.
        request: Returns the request for the partitions of a leader.
        results: Returns the results of a response.
        timeout_s: Time after which partitions without a result fail.

    Raises:
        AccessDenied: The brokers reject the login or the TLS connection.
        UnsupportedBroker: A broker does not serve the request.
    """
    loop, backoff = cluster.loop, Backoff(0.05, 1.0)
    deadline_s = loop.now_s() + timeout_s
    leaderless = Retriable(f"could not {tried} the partition has no leader")
    asking = _Asking[T](tried, dict.fromkeys(partitions, leaderless))
    for attempt in itertools.count():
        groups = _by_leader(cluster, asking.open)
        replies = {
            leader: start(_ask_leader(cluster, leader, request(group)))
            for leader, group in groups.items()
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
        if groups or attempt:  # no wait if the first round had no leader
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


async def _ask_leader(cluster: ClusterClient, leader: int, call: Call[T]) -> T:
    connection = await cluster.connection(leader)
    return await connection.send(call)


async def _refresh(cluster: ClusterClient, topics: Iterable[str], backoff: Backoff) -> None:
    try:
        await cluster.refresh(topics)
    except (AccessDenied, UnsupportedBroker):
        raise
    except HeadraceError:
        await cluster.loop.sleep(backoff.next_s())  # the next round uses another broker


Found = dict[str, T | HeadraceError]
"""Result or error of each group."""
Ask = Callable[[Connection, Collection[str]], Awaitable[Found[T]]]
"""Function that sends a request about groups to their coordinator."""

_FIRST_BATCHED_VERSION = 4
"""First version of FindCoordinator in which a request can name several keys."""
_GROUP = i8(0)  # type of coordinator
WITHIN_S = 5.0
"""Time-out of a coordinator's response, and of retries while a coordinator moves, in seconds."""
_MOVES = {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
}


async def at_coordinators(cluster: ClusterClient, groups: Iterable[str], ask: Ask[T]) -> Found[T]:
    """Call ``ask`` with the groups of each coordinator.

    Groups whose coordinator moves or loads are retried for ``WITHIN_S``. If a coordinator does not
    respond, its groups have that error. All other errors of ``ask`` are raised.
    """
    loop, backoff = cluster.loop, Backoff(0.02, 1.0)
    deadline_s = loop.now_s() + WITHIN_S
    left = set(groups)
    found: Found[T] = {}
    while left:
        found |= await _once(cluster, sorted(left), ask)
        left = {one for one in left if _moves(found[one])}
        if loop.now_s() >= deadline_s:
            break
        if left:
            await loop.sleep(backoff.next_s())
    return found


async def find_coordinators(
    connection: Connection, kind: i8, keys: Collection[str]
) -> list[Coordinator]:
    """Return the coordinators of groups or transactional ids."""
    if connection.version(FIND_COORDINATOR) >= _FIRST_BATCHED_VERSION:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=tuple(keys))
        return list((await connection.send(call(request, FindCoordinatorResponse))).coordinators)
    asked = [
        (key, connection.send(call(FindOneRequest(key=key, key_type=kind), FindOneResponse)))
        for key in keys
    ]
    found: list[Coordinator] = []
    for key, reply in asked:
        one = await reply
        found.append(
            Coordinator(
                key=key,
                node_id=one.node_id,
                host=one.host,
                port=one.port,
                error_code=one.error_code,
                error_message=one.error_message,
            )
        )
    return found


async def _once(cluster: ClusterClient, groups: Collection[str], ask: Ask[T]) -> Found[T]:
    unanswered = Retriable(f"{cluster.name} did not answer for each group")
    found: Found[T] = dict.fromkeys(groups, unanswered)
    await cluster.refresh()
    connection = await cluster.any_connection()
    at: dict[int, list[str]] = {}
    for one in await find_coordinators(connection, _GROUP, groups):
        if one.key not in found:  # the request or the response was damaged
            continue
        if one.error_code is ErrorCode.none:
            at.setdefault(one.node_id, []).append(one.key)
        else:
            tried = f"find the coordinator of group {one.key} of {cluster.name}"
            found[one.key] = refusal(one.error_code, tried)
    asked = [start(_ask_coordinator(cluster, node, those, ask)) for node, those in at.items()]
    for reply in asked:
        found |= {group: answer for group, answer in (await reply).items() if group in found}
    return found


async def _ask_coordinator(
    cluster: ClusterClient, node: int, groups: Collection[str], ask: Ask[T]
) -> Found[T]:
    try:
        return await ask(await cluster.connection(node), groups)
    except Retriable as error:
        return dict.fromkeys(groups, error)


def _moves(answer: object) -> bool:
    return isinstance(answer, RequestRefused) and answer.code in _MOVES
