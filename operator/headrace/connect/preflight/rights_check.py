"""Whether a flow has the rights that it needs, as both clusters' brokers say."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from headrace.api.flow import Location
from headrace.connect.preflight.findings import Finding, Outcome, missing_right, named
from headrace.connect.preflight.needed_rights import Need, Resource
from headrace.connect.runtime.context import FlowContext
from headrace.kafka import Operation, RightsAdmin, TopicRights

TopicsRights = Mapping[Location, Mapping[str, TopicRights]]


def known_topics(
    needs: Iterable[Need],
    admins: Mapping[Location, RightsAdmin],
    new: Mapping[str, tuple[int, int]],
) -> dict[Location, dict[str, TopicRights]]:
    """What may be done with each topic that is needed; ``new`` as for ``topic_rights``."""
    names: dict[Location, set[str]] = {side: set() for side in admins}
    for need in needs:
        if need.resource is Resource.TOPIC:
            names[need.side].update(need.names)
    return {side: admin.topic_rights(names[side], new) for side, admin in admins.items()}


def check_rights(
    context: FlowContext,
    needs: Iterable[Need],
    admins: Mapping[Location, RightsAdmin],
    topics: TopicsRights,
) -> Iterator[Finding]:
    """One finding a need."""
    access = {Location.SOURCE: context.source_access, Location.TARGET: context.target_access}
    for need in needs:
        if not need.names:
            continue
        lacking = _LACKING[need.resource](need, admins[need.side], topics[need.side])
        if lacking:
            yield missing_right(need, lacking, access[need.side])
        else:
            subject = named(need.resource.replace("-", " "), need.names)
            yield Finding(need.side, subject, need.operation.value, Outcome.OK)


def _topics(need: Need, _: RightsAdmin, topics: Mapping[str, TopicRights]) -> Collection[str]:
    return [one for one in need.names if not _allows(topics[one], need.operation)]


def _allows(rights: TopicRights, operation: Operation) -> bool:
    """What exists need not be made."""
    if operation is Operation.CREATE and rights.exists:
        return True
    return operation in rights.allowed


def _groups(need: Need, admin: RightsAdmin, _: object) -> Collection[str]:
    rights = admin.group_rights(need.names)
    return [one for one in need.names if need.operation not in rights[one]]


def _cluster(need: Need, admin: RightsAdmin, _: object) -> Collection[str]:
    return () if need.operation in admin.cluster_rights() else need.names


def _transactional_ids(need: Need, admin: RightsAdmin, _: object) -> Collection[str]:
    return [one for one in need.names if not admin.may_use_transactional_id(f"{one}check")]


_LACKING: Mapping[
    Resource, Callable[[Need, RightsAdmin, Mapping[str, TopicRights]], Collection[str]]
] = {
    Resource.TOPIC: _topics,
    Resource.GROUP: _groups,
    Resource.CLUSTER: _cluster,
    Resource.TRANSACTIONAL_ID: _transactional_ids,
}
