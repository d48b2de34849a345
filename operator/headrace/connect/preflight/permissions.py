"""Permissions that a flow needs on both clusters, and which of them are missing."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote

from headrace.api import HEARTBEATS, ClusterAccess, acls_topic, made_topics_topic
from headrace.api.flow import Location, TopicDeletionMode
from headrace.api.offsets import StartMode
from headrace.connect.runtime.context import FlowContext
from headrace.kafka import Operation, RightsAdmin, TopicRights, principal_of
from headrace.sentences import first_few

TRANSACTIONAL_IDS = "headrace-"
"""Prefix of all transactional ids."""
THE_CLUSTER = "kafka-cluster"
"""Kafka's name of the only resource of the type cluster."""

_MAKE = (Operation.CREATE, Operation.WRITE)
_KEEP = (Operation.CREATE, Operation.READ, Operation.WRITE)


class AclResource(StrEnum):
    """Resource type of an ACL, with the name of its kafka-acls.sh option."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional-id"


@dataclass(frozen=True)
class RequiredPermission:
    """Operation on resources of a cluster for which a flow needs permission."""

    side: Location
    resource: AclResource
    names: tuple[str, ...]
    operation: Operation
    purpose: str
    """Action of the flow that needs the permission, such as ``"write the copies"``."""
    optional: bool = False
    """Whether the flow works without the permission, except under some circumstances."""
    prefix: str = ""
    """Common prefix of all ``names``, including names added later. One prefixed ACL covers them."""


def needed_rights(
    context: FlowContext, topics: Collection[str], groups: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield the permissions that the replication of these source topics and groups requires."""
    yield from _to_copy(context, tuple(sorted(topics)))
    yield from _to_keep_settings(context, tuple(sorted(topics)))
    yield from _for_heartbeats(context)
    if context.spec.topic_deletion.mode is not TopicDeletionMode.DISABLED:
        yield from _to_delete(context, tuple(sorted(topics)))
    if context.spec.acls.enabled:
        yield from _to_keep_acls(context)
    if context.spec.checkpoints.enabled:
        yield from _for_checkpoints(context, tuple(sorted(groups)))
    if context.spec.start_from.mode is not StartMode.LATEST and not context.spec.acls.enabled:
        purpose = "check that copies fit on the target's disks"
        for side in Location:
            yield RequiredPermission(
                side, AclResource.CLUSTER, (THE_CLUSTER,), Operation.DESCRIBE, purpose, True
            )


def copies(context: FlowContext, topics: Collection[str]) -> tuple[str, ...]:
    """Return the topics' names on the target, sorted."""
    return tuple(sorted(map(context.policy.target_topic, topics)))


def _to_copy(context: FlowContext, topics: tuple[str, ...]) -> Iterator[RequiredPermission]:
    spec, there = context.spec, copies(context, topics)
    prefix = _prefix(context)
    target = _Side(Location.TARGET, prefix)
    yield RequiredPermission(
        Location.SOURCE, AclResource.TOPIC, topics, Operation.READ, "read the records"
    )
    yield target.need(there, Operation.CREATE, "make the copies that are absent")
    yield target.need(there, Operation.WRITE, "write the copies")
    yield target.need(
        there, Operation.ALTER, "add partitions to copies when their sources get more", True
    )
    progress = (context.progress.topic,)
    for operation in _KEEP:
        yield _Side(Location.TARGET).need(progress, operation, "keep the flow's progress")
    if dead_letters := spec.on_record_error.dead_letter_topic:
        for operation in _MAKE:
            purpose = "write the records that the target refuses"
            yield _Side(Location.TARGET).need((dead_letters,), operation, purpose)
    if context.preserved:
        purpose = "begin copies where their sources begin"
        yield target.need(there, Operation.DELETE, purpose)
        yield target.need(there, Operation.DESCRIBE_CONFIGS, "give copies their sources' offsets")
    optional = not context.preserved
    purpose = "repeat nothing after a crash" if optional else "give copies their sources' offsets"
    yield target.need(there, Operation.READ, purpose, optional)
    if context.exactly_once:
        optional, purpose = False, "copy in transactions"
    yield RequiredPermission(
        Location.TARGET,
        AclResource.TRANSACTIONAL_ID,
        (TRANSACTIONAL_IDS,),
        Operation.WRITE,
        purpose,
        optional,
        TRANSACTIONAL_IDS,
    )


def _to_keep_settings(
    context: FlowContext, topics: tuple[str, ...]
) -> Iterator[RequiredPermission]:
    sync, target = context.spec.topic_configs.enabled, _Side(Location.TARGET, _prefix(context))
    purpose = "keep the settings of copies like their sources'"
    read = purpose if sync else "notice deletions at risk, and settings that differ"
    own = _Side(Location.SOURCE)
    optional = not (sync or context.preserved)
    yield own.need(topics, Operation.DESCRIBE_CONFIGS, read, optional)
    if sync:
        for operation in (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS):
            yield target.need(copies(context, topics), operation, purpose)
    yield _Side(Location.TARGET).need(
        (context.progress.topic,), Operation.DESCRIBE_CONFIGS, "check that it is compacted", True
    )


def _to_keep_acls(context: FlowContext) -> Iterator[RequiredPermission]:
    purpose = "keep the ACLs of copies like their sources'"
    for side, operation in (
        (Location.SOURCE, Operation.DESCRIBE),
        (Location.TARGET, Operation.DESCRIBE),
        (Location.TARGET, Operation.ALTER),
    ):
        yield RequiredPermission(side, AclResource.CLUSTER, (THE_CLUSTER,), operation, purpose)
    for operation in _KEEP:
        topic = acls_topic(context.spec.source.alias)
        yield _Side(Location.TARGET).need((topic,), operation, "remember the ACLs that it added")


def _to_delete(context: FlowContext, topics: tuple[str, ...]) -> Iterator[RequiredPermission]:
    made = (made_topics_topic(context.spec.source.alias),)
    for operation in _KEEP:
        yield _Side(Location.TARGET).need(made, operation, "remember the copies that it makes")
    if context.spec.topic_deletion.mode is TopicDeletionMode.ENABLED:
        yield _Side(Location.TARGET, _prefix(context)).need(
            copies(context, topics), Operation.DELETE, "delete copies whose sources are deleted"
        )


def _for_heartbeats(context: FlowContext) -> Iterator[RequiredPermission]:
    heartbeats = context.spec.heartbeats
    if not heartbeats.enabled:
        return
    for side in (Location.SOURCE, Location.TARGET) if heartbeats.on_source else (Location.TARGET,):
        for operation in _MAKE:
            yield _Side(side).need((HEARTBEATS,), operation, "write heartbeats")


def _for_checkpoints(context: FlowContext, groups: tuple[str, ...]) -> Iterator[RequiredPermission]:
    spec = context.spec
    where = _Side(spec.offset_syncs.location)
    for operation in () if context.preserved else _KEEP:
        yield where.need((context.offset_syncs.topic,), operation, "keep offset syncs")
    for operation in _KEEP:
        topics = (context.checkpoints_topic,)
        yield _Side(Location.TARGET).need(topics, operation, "write checkpoints")
    purpose = "read the offsets of groups"
    yield RequiredPermission(
        Location.SOURCE, AclResource.GROUP, groups, Operation.DESCRIBE, purpose
    )
    if spec.checkpoints.apply_to_groups:
        purpose = "commit the offsets of groups"
        yield RequiredPermission(
            Location.TARGET, AclResource.GROUP, groups, Operation.READ, purpose
        )


@dataclass(frozen=True)
class _Side:
    """Cluster of topics, with the prefix of their names."""

    side: Location
    prefix: str = ""

    def need(
        self, names: tuple[str, ...], operation: Operation, purpose: str, optional: bool = False
    ) -> RequiredPermission:
        return RequiredPermission(
            self.side, AclResource.TOPIC, names, operation, purpose, optional, self.prefix
        )


def _prefix(context: FlowContext) -> str:
    policy = context.spec.replication_policy
    named = policy.type == "Default"
    return f"{context.spec.source.alias}{policy.separator}" if named else ""


_MAX_NAMED = 3


class CheckResult(StrEnum):
    """Result of one check."""

    OK = "ok"
    WARNING = "warning"
    """The flow carries out its spec, except under some circumstances."""
    MISSING = "missing"
    """The flow cannot carry out a part of its spec."""


@dataclass(frozen=True)
class Acl:
    """ACL that allows a principal an operation on resources."""

    principal: str
    resource: AclResource
    names: tuple[str, ...]
    operation: str
    prefixed: bool
    """Whether the ACL applies to all resources whose names begin with the only name."""


@dataclass(frozen=True)
class Finding:
    """Result of one check, with its subject and advice."""

    side: Location | None
    """Checked cluster; None for both."""
    subject: str
    """Checked resource, such as ``topic orders`` or ``cluster``."""
    what: str
    """Checked operation or setting."""
    outcome: CheckResult
    message: str = ""
    """Sentence about the result; may be empty."""
    acl: Acl | None = None
    """ACL to create, or None."""
    command: str = ""
    """Command that corrects the problem; empty if one command cannot."""

    @property
    def sentence(self) -> str:
        """Sentence for a condition."""
        where = f"{self.side.lower()} " if self.side else ""
        return f"{where}{self.subject}: {self.what}: {self.message}"


def named(kind: str, names: Collection[str]) -> str:
    """Return a list such as ``topics a, b, c and 4 more``."""
    return f"{kind}{'s' if len(names) > 1 else ''} {first_few(sorted(names), _MAX_NAMED)}"


def missing_right(
    need: RequiredPermission, lacking: Collection[str], cluster: ClusterAccess
) -> Finding:
    """Return the finding that the principal lacks a permission for these resources."""
    names = (need.prefix,) if need.prefix else tuple(sorted(lacking))
    principal = principal_of(cluster)
    operation = need.operation.value
    acl = Acl(principal, need.resource, names, operation, bool(need.prefix))
    return Finding(
        need.side,
        named(need.resource.replace("-", " "), lacking),
        operation,
        CheckResult.WARNING if need.optional else CheckResult.MISSING,
        f"{principal} may not; needed to {need.purpose}",
        acl,
        _grant(acl, cluster),
    )


def set_topic_command(cluster: ClusterAccess, topic: str, setting: str, value: str) -> str:
    """Return the command that changes one setting of a topic."""
    arguments = ["--alter", "--entity-type", "topics", "--entity-name", topic]
    return _command("kafka-configs.sh", cluster, *arguments, "--add-config", f"{setting}={value}")


def _grant(acl: Acl, cluster: ClusterAccess) -> str:
    arguments = ["--add", "--allow-principal", acl.principal, "--operation", acl.operation]
    for name in acl.names:
        arguments += (
            ["--cluster"] if acl.resource is AclResource.CLUSTER else [f"--{acl.resource}", name]
        )
    if acl.prefixed:
        arguments += ["--resource-pattern-type", "prefixed"]
    return _command("kafka-acls.sh", cluster, *arguments)


def _command(script: str, cluster: ClusterAccess, *arguments: str) -> str:
    servers = cluster.bootstrap_servers.replace(" ", "")
    locked = cluster.spec.tls is not None or cluster.spec.authentication is not None
    login = ["--command-config", "admin.properties"] if locked else []
    words = [script, "--bootstrap-server", servers, *login, *arguments]
    return " ".join(map(quote, words))


TopicsRights = Mapping[Location, Mapping[str, TopicRights]]


def known_topics(
    needs: Iterable[RequiredPermission],
    admins: Mapping[Location, RightsAdmin],
    new: Mapping[str, tuple[int, int]],
) -> dict[Location, dict[str, TopicRights]]:
    """Return the permissions on each needed topic.

    ``new`` is the argument of ``RightsAdmin.topic_rights``.
    """
    names: dict[Location, set[str]] = {side: set() for side in admins}
    for need in needs:
        if need.resource is AclResource.TOPIC:
            names[need.side].update(need.names)
    return {side: admin.topic_rights(names[side], new) for side, admin in admins.items()}


def check_rights(
    context: FlowContext,
    needs: Iterable[RequiredPermission],
    admins: Mapping[Location, RightsAdmin],
    topics: TopicsRights,
) -> Iterator[Finding]:
    """Yield one finding for each needed permission."""
    access = {Location.SOURCE: context.source_access, Location.TARGET: context.target_access}
    for need in needs:
        if not need.names:
            continue
        lacking = _LACKING[need.resource](need, admins[need.side], topics[need.side])
        if lacking:
            yield missing_right(need, lacking, access[need.side])
        else:
            subject = named(need.resource.replace("-", " "), need.names)
            yield Finding(need.side, subject, need.operation.value, CheckResult.OK)


def _topics(
    need: RequiredPermission, _: RightsAdmin, topics: Mapping[str, TopicRights]
) -> Collection[str]:
    return [one for one in need.names if not _allows(topics[one], need.operation)]


def _allows(rights: TopicRights, operation: Operation) -> bool:
    """Return True if an operation is allowed, or creates a topic that exists."""
    if operation is Operation.CREATE and rights.exists:
        return True
    return operation in rights.allowed


def _groups(need: RequiredPermission, admin: RightsAdmin, _: object) -> Collection[str]:
    rights = admin.group_rights(need.names)
    return [one for one in need.names if need.operation not in rights[one]]


def _cluster(need: RequiredPermission, admin: RightsAdmin, _: object) -> Collection[str]:
    return () if need.operation in admin.cluster_rights() else need.names


def _transactional_ids(need: RequiredPermission, admin: RightsAdmin, _: object) -> Collection[str]:
    return [one for one in need.names if not admin.may_use_transactional_id(f"{one}check")]


_LACKING: Mapping[
    AclResource,
    Callable[[RequiredPermission, RightsAdmin, Mapping[str, TopicRights]], Collection[str]],
] = {
    AclResource.TOPIC: _topics,
    AclResource.GROUP: _groups,
    AclResource.CLUSTER: _cluster,
    AclResource.TRANSACTIONAL_ID: _transactional_ids,
}
