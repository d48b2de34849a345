"""ACLs of a cluster, and the operations that a principal may perform."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from headrace.errors import Fatal, GaveUp, HeadraceError
from headrace.kafka.admin import Admin
from headrace.kafka.admin_requests import ClusterAdmin
from headrace.kafka.errors import code_of
from headrace.kafka.security import principal_of
from headrace.kafka.topic_admin import is_missing
from headrace.kafka.wire import (
    BrokerDisk,
    RequestRefused,
    answer_to_acls,
    broker_disks,
    describe_topics,
    may_use_transactional_id,
    unreadable,
    unwritable,
)
from headrace.sentences import first_few

T = TypeVar("T")
AclFields = Mapping[str, str]
"""Fields of an ACL, named as in kafka-acls.sh.

They are ``topic``, ``pattern``, ``principal``, ``host``, ``operation`` and ``permission``.
"""

_EVERY: Any = None
"""Matches any name in a filter. The type annotations of the client do not allow it."""


class AclAdmin(Admin):
    """Lists, adds and removes ACLs of topics. Calls block as in ``Admin``.

    Calls raise ``Fatal`` if the principal lacks a permission on the cluster, or if the brokers have
    no authorizer.
    """

    def topic_acls(self) -> list[dict[str, str]]:
        """Return the ACLs of all topics."""
        every = AclBindingFilter(
            ResourceType.TOPIC,
            _EVERY,
            ResourcePatternType.ANY,
            _EVERY,
            _EVERY,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        client, tried = self._requests.client, f"list the ACLs of {self.name}"
        with self._explained("Describe"):
            future = self._requests.call(
                tried, lambda: client.describe_acls(every, request_timeout=self._timeout_s)
            )
            found = [_fields(one) for one in self._requests.result(tried, future)]
            if not found and (code := self._on_wire(answer_to_acls).value):
                refused = KafkaException(KafkaError(code))
                raise self._requests.failed(refused, tried) from refused
        return found

    def add_acls(self, acls: Collection[AclFields]) -> None:
        """Add ACLs. Raise the first error if an ACL could not be added."""
        if not acls:
            return
        self._check_before_write()
        bindings = [_made(AclBinding, one) for one in acls]
        client, tried = self._requests.client, f"add ACLs of topics of {self.name}"
        futures = self._requests.call(
            tried, lambda: client.create_acls(bindings, request_timeout=self._timeout_s)
        )
        self._all(futures, tried)

    def remove_acls(self, acls: Collection[AclFields]) -> None:
        """Remove ACLs that exist. Raise the first error if an ACL could not be removed."""
        if not acls:
            return
        self._check_before_write()
        filters = [_made(AclBindingFilter, one) for one in acls]
        client, tried = self._requests.client, f"remove ACLs of topics of {self.name}"
        futures = self._requests.call(
            tried, lambda: client.delete_acls(filters, request_timeout=self._timeout_s)
        )
        self._all(futures, tried)

    def _all(self, futures: Mapping[Any, Any], tried: str) -> None:
        """Wait for all responses, then raise the first error."""
        failed: list[HeadraceError] = []
        for future in futures.values():
            try:
                self._requests.result(tried, future)
            except HeadraceError as error:
                failed.append(error)
        if failed:
            with self._explained("Alter"):
                raise failed[0]

    @contextmanager
    def _explained(self, operation: str) -> Iterator[None]:
        """Add advice to errors about missing permissions and a missing authorizer.

        ``operation`` is the permission on the cluster that the request needs.
        """
        try:
            yield
        except HeadraceError as error:
            match code_of(error):
                case KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                    raise Fatal(f"{error}: {self._needs(operation)}") from error
                case KafkaError.SECURITY_DISABLED:
                    raise Fatal(
                        f"{error}: its brokers have no authorizer, so there are no ACLs"
                    ) from error
            raise

    def _needs(self, operation: str) -> str:
        who = principal_of(self._access)
        return (
            f"{who} has no {operation} on it (kafka-acls.sh --add --allow-principal {who} "
            f"--operation {operation} --cluster)"
        )


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


_OPERATIONS = {_camel(one.name): one for one in AclOperation}


def _made(kind: Callable[..., T], acl: AclFields) -> T:
    """Return an ACL, or a filter that matches only that ACL."""
    return kind(
        ResourceType.TOPIC,
        acl["topic"],
        ResourcePatternType[acl["pattern"].upper()],
        acl["principal"],
        acl["host"],
        _OPERATIONS[acl["operation"]],
        AclPermissionType[acl["permission"].upper()],
    )


def _fields(acl: AclBinding) -> dict[str, str]:
    return {
        "topic": acl.name,
        "pattern": _camel(ResourcePatternType(acl.resource_pattern_type).name),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _camel(AclOperation(acl.operation).name),
        "permission": _camel(AclPermissionType(acl.permission_type).name),
    }


class Operation(StrEnum):
    """Operations that an ACL allows, by their names in kafka-acls.sh."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    DELETE = "Delete"


ALL = frozenset(Operation)
FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


def _is_forbidden(error: HeadraceError) -> bool:
    return isinstance(error, RequestRefused) and error.code.value in FORBIDDEN


_BY_CLIENT = {getattr(AclOperation, one.name): one for one in Operation}


def operations(of_client: Iterable[AclOperation] | None) -> frozenset[Operation]:
    """Return the operations that a response allows.

    ``None`` means that the cluster has no authorizer, so that all operations are allowed.
    """
    if of_client is None:
        return ALL
    return frozenset(_BY_CLIENT[one] for one in of_client if one in _BY_CLIENT)


def _in_bits(bits: int | None) -> frozenset[Operation]:
    """Return the operations in the bits of a response, as ``operations`` does."""
    if bits is None:
        return ALL
    return operations(one for one in AclOperation if bits >> one.value & 1)


class ClusterRights(ClusterAdmin):
    """Reads the permissions on the cluster. Calls block as in ``ClusterAdmin``."""

    def cluster_rights(self) -> frozenset[Operation]:
        """Return the operations that the principal may perform on the cluster."""
        client, tried = self._requests.client, f"describe {self.name}"
        future = self._requests.call(
            tried,
            lambda: client.describe_cluster(
                include_authorized_operations=True, request_timeout=self._timeout_s
            ),
        )
        found = self._requests.result(tried, future).authorized_operations
        # The client returns None for "no authorizer" and for "no operation allowed". Another
        # request tells them apart.
        if found is None and self._on_wire(answer_to_acls).value in FORBIDDEN:
            return frozenset()
        return operations(found)


Ask = Callable[[], Mapping[Any, "Future[Any]"]]


class Replicas(NamedTuple):
    """Replica counts of a topic. Each is the minimum over the partitions."""

    assigned: int
    in_sync: int


class TopicRights(NamedTuple):
    """Permissions on a topic."""

    allowed: frozenset[Operation]
    exists: bool | None
    """True if the topic exists, or None if the principal may not see it."""
    partitions: int = 0
    replicas: Replicas = Replicas(0, 0)
    creation: HeadraceError | None = None
    """Reason why the topic cannot be created, other than a missing permission.

    Examples are an impossible replication factor or a policy of the cluster.
    """


_COORDINATOR_MOVES = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Errors while a group's coordinator moves, or while ``__consumer_offsets`` is being created.

A new cluster creates that topic at the first request about a group.
"""
_RETRY_INTERVAL_S = 0.1
_NAMED = 3
"""Maximum number of topics in a message."""


class RightsAdmin(Admin, ClusterRights):
    """Reads permissions on topics, groups and transactional ids. Calls block as in ``Admin``."""

    def topic_rights(
        self, names: Collection[str], new: Mapping[str, tuple[int, int]]
    ) -> dict[str, TopicRights]:
        """Return the permissions on each topic, whether the topic exists or not.

        ``new`` contains the partitions and the replication factor with which a missing topic would
        be created. The default is one partition and the broker's default replication factor.
        """
        deadline_s = time.monotonic() + self._timeout_s
        found, made = self._topic_rights(names, new)
        while made and time.monotonic() < deadline_s:
            time.sleep(_RETRY_INTERVAL_S)
            more, made = self._topic_rights(made, new)
            found |= more
        return found

    def rights_on_existing(self, names: Collection[str]) -> dict[str, frozenset[Operation]]:
        """Return the permissions on topics that exist or that the principal may not see.

        The call only describes the topics. On a topic that the principal may not see, there are no
        permissions.
        """
        found, _, hidden = self._described(names)
        rights = {name: topic.allowed for name, topic in found.items()}
        return rights | dict.fromkeys(hidden, frozenset())

    def check_comparable(self, names: Collection[str], excusing: Collection[str] = ()) -> None:
        """Check that an audit can read topics and their settings.

        Args:
            names: Topics to compare.
            excusing: Topics that name the records that a flow did not copy.

        Raises:
            GaveUp: The principal lacks a permission on a topic, so nothing could be proved.
        """
        rights = self.rights_on_existing(names)
        for operation in (Operation.DESCRIBE, Operation.READ, Operation.DESCRIBE_CONFIGS):
            lacking = sorted(name for name in rights if operation not in rights[name])
            if lacking:
                raise GaveUp(
                    f"the user of {self._access.alias} may not {operation} topic "
                    f"{first_few(lacking, _NAMED)}: it cannot be compared; allow it, or leave "
                    "it out (spec.audit.exclude)"
                )
        rights = self.rights_on_existing(excusing) if excusing else {}
        lacking = sorted(name for name in rights if Operation.READ not in rights[name])
        if lacking:
            raise GaveUp(
                f"the user of {self._access.alias} may not {Operation.READ} topic "
                f"{first_few(lacking, _NAMED)}, which names the records that the flow did not "
                "copy: allow it"
            )

    def _topic_rights(
        self, names: Collection[str], new: Mapping[str, tuple[int, int]]
    ) -> tuple[dict[str, TopicRights], set[str]]:
        """Return the permissions, and the topics that were created during the call.

        The partitions and replicas of such topics are unknown.
        """
        found, absent, hidden = self._described(names)
        unknown = absent | hidden
        refused = self._refused(unknown, new)
        creation = refused.pop(Operation.CREATE, {})
        made = set[str]()
        for name in unknown:
            forbidden = {one for one, topics in refused.items() if name in topics}
            why, exists = creation.get(name), False if name in absent else None
            if code_of(why) == KafkaError.TOPIC_ALREADY_EXISTS:
                why, exists = None, True
                if name in absent:
                    made.add(name)
            if code_of(why) in FORBIDDEN:
                forbidden, why = forbidden | {Operation.CREATE}, None
            if name in hidden:
                forbidden |= {Operation.DESCRIBE}
            found[name] = TopicRights(ALL - forbidden, exists, creation=why)
        return found, made

    def group_rights(self, names: Iterable[str]) -> dict[str, frozenset[Operation]]:
        """Return the permissions on groups, whether they exist or not."""
        deadline_s = time.monotonic() + self._timeout_s
        found: dict[str, frozenset[Operation]] = {}
        wanted = set(names)
        while wanted:
            in_time = time.monotonic() < deadline_s
            for name, future in self._described_groups(sorted(wanted)).items():
                try:
                    one = self._requests.result(f"describe group {name} of {self.name}", future)
                except HeadraceError as error:
                    if (code := code_of(error)) in FORBIDDEN:
                        found[name] = frozenset()
                    elif code not in _COORDINATOR_MOVES or not in_time:
                        raise
                else:
                    found[name] = operations(one.authorized_operations)
            if wanted := wanted - found.keys():
                time.sleep(_RETRY_INTERVAL_S)
        return found

    def may_use_transactional_id(self, name: str) -> bool:
        """Return True if the principal may write with this transactional id."""
        return self._on_wire(lambda cluster: may_use_transactional_id(cluster, name))

    def broker_disks(self, topics: Mapping[str, int]) -> dict[int, BrokerDisk]:
        """Return the disk of each broker, with the sizes of its replicas of these topics.

        ``topics`` contains the number of partitions of each topic.
        """
        return self._on_wire(partial(broker_disks, topics=topics))

    def check_version(self) -> None:
        """Raise ``Fatal`` if the brokers are older than the wire client supports."""
        self._on_wire(lambda cluster: cluster.refresh())

    def _described_groups(self, names: list[str]) -> Mapping[str, "Future[Any]"]:
        client = self._requests.client
        return self._requests.call(
            f"describe groups of {self.name}",
            lambda: client.describe_consumer_groups(
                names, include_authorized_operations=True, request_timeout=self._timeout_s
            ),
        )

    def _described(
        self, names: Collection[str]
    ) -> tuple[dict[str, TopicRights], set[str], set[str]]:
        """Return the topics that exist, that do not exist, and that the principal may not see."""
        found: dict[str, TopicRights] = {}
        absent, hidden = set[str](), set[str]()
        if not names:
            return found, absent, hidden
        ask = partial(describe_topics, names=names, operations=True)
        described = self._retried_on_wire(f"describe topics of {self.name}", ask)
        for name, one in described.items():
            if isinstance(one, HeadraceError):
                if is_missing(one):
                    absent.add(name)
                elif _is_forbidden(one):
                    hidden.add(name)
                else:
                    raise one
                continue
            replicas = Replicas(
                min(len(at.replicas) for at in one.partitions.values()),
                min(len(at.in_sync) for at in one.partitions.values()),
            )
            allowed = _in_bits(one.operations)
            found[name] = TopicRights(allowed, True, len(one.partitions), replicas)
        return found, absent, hidden

    def _refused(
        self, names: Collection[str], new: Mapping[str, tuple[int, int]]
    ) -> dict[Operation, dict[str, HeadraceError | None]]:
        """Return the operations that brokers reject on topics that do not exist, with the errors.

        The requests only validate, or cannot have an effect. ``CREATE`` is returned
        for errors of any kind, other operations only for missing permissions.
        """
        if not names:
            return {}
        refused: dict[Operation, dict[str, HeadraceError | None]] = {
            operation: self._refused_to(operation, ask)
            for operation, ask in self._trials(sorted(names), new).items()
        }
        refused[Operation.DESCRIBE_CONFIGS] = {
            name: one
            for name, one in self._settings(sorted(names)).items()
            if isinstance(one, HeadraceError) and _is_forbidden(one)
        }
        for operation, wire in ((Operation.READ, unreadable), (Operation.WRITE, unwritable)):
            refused[operation] = dict.fromkeys(self._on_wire(partial(wire, topics=sorted(names))))
        return refused

    def _trials(self, names: list[str], new: Mapping[str, tuple[int, int]]) -> dict[Operation, Ask]:
        options = {"validate_only": True, **self._timeouts()}
        client = self._requests.client
        change = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
        changes = [
            ConfigResource(ResourceType.TOPIC, one, incremental_configs=[change]) for one in names
        ]
        topics = [NewTopic(one, *new.get(one, (1, -1))) for one in names]
        grown = [NewPartitions(one, 2) for one in names]
        return {
            Operation.CREATE: lambda: client.create_topics(topics, **options),
            Operation.ALTER: lambda: client.create_partitions(grown, **options),
            Operation.ALTER_CONFIGS: lambda: client.incremental_alter_configs(
                changes, validate_only=True, request_timeout=self._timeout_s
            ),
        }

    def _refused_to(self, operation: Operation, ask: Ask) -> dict[str, HeadraceError | None]:
        refused: dict[str, HeadraceError | None] = {}
        for key, future in self._requests.call(f"try {operation} on {self.name}", ask).items():
            name = str(getattr(key, "name", key))
            try:
                self._requests.result(f"{operation.lower()} topic {name} of {self.name}", future)
            except HeadraceError as error:
                if operation is Operation.CREATE or code_of(error) in FORBIDDEN:
                    refused[name] = error
        return refused
