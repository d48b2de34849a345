"""Questions about groups, to the brokers that coordinate them."""

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TypeVar

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3 import FindCoordinatorRequest as FindOneRequest
from kio.schema.find_coordinator.v3 import FindCoordinatorResponse as FindOneResponse
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import Coordinator, FindCoordinatorResponse
from kio.static.primitive import i8

from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire.cluster import ClusterClient
from headrace.kafka.wire.connection import Connection
from headrace.kafka.wire.errors import RequestRefused, refusal
from headrace.kafka.wire.protocol import FIND_COORDINATOR, call
from headrace.kafka.wire.replies import start
from headrace.timing import Backoff

T = TypeVar("T")
Found = dict[str, T | HeadraceError]
"""By group: the answer, or why there is none."""
Ask = Callable[[Connection, Collection[str]], Awaitable[Found[T]]]
"""Function that sends a request to a coordinator about its own groups."""

_SEVERAL_AT_ONCE = 4
"""Since this version a request names several keys."""
_GROUP = i8(0)  # the kind of coordinator
WITHIN_S = 5.0
"""How long a coordinator may take to answer, and how long one that moves is asked again."""
_MOVES = {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
}


async def at_coordinators(cluster: ClusterClient, groups: Iterable[str], ask: Ask[T]) -> Found[T]:
    """Call ``ask`` for each group at its coordinator; repeat it while that moves or loads.

    Groups of a coordinator that does not respond have that error. Other errors of ``ask`` are
    raised.
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
    """Query the coordinators of groups or transactional ids."""
    if connection.version(FIND_COORDINATOR) >= _SEVERAL_AT_ONCE:
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
        if one.error_code is ErrorCode.none:
            at.setdefault(one.node_id, []).append(one.key)
        else:
            tried = f"find the coordinator of group {one.key} of {cluster.name}"
            found[one.key] = refusal(one.error_code, tried)
    asked = [start(_ask(cluster, node, those, ask)) for node, those in at.items()]
    for reply in asked:
        found |= await reply
    return found


async def _ask(cluster: ClusterClient, node: int, groups: Collection[str], ask: Ask[T]) -> Found[T]:
    try:
        return await ask(await cluster.connection(node), groups)
    except Retriable as error:
        return dict.fromkeys(groups, error)


def _moves(answer: object) -> bool:
    return isinstance(answer, RequestRefused) and answer.code in _MOVES
