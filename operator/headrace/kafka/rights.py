"""What a principal may do on a cluster, as its brokers say; nothing is changed there."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from headrace.errors import HeadraceError
from headrace.kafka.admin import Admin
from headrace.kafka.cluster_rights import ClusterRights
from headrace.kafka.errors import code_of
from headrace.kafka.operations import ALL, FORBIDDEN, Operation, operations
from headrace.kafka.wire import (
    may_use_transactional_id,
    unreadable,
    unwritable,
)

T = TypeVar("T")
Ask = Callable[[], Mapping[Any, "Future[Any]"]]


class Replicas(NamedTuple):
    """Of a topic: the least of its partitions."""

    assigned: int
    in_sync: int


class TopicRights(NamedTuple):
    """Of one topic, by name."""

    allowed: frozenset[Operation]
    exists: bool | None
    """``None``: the principal may not know."""
    partitions: int = 0
    replicas: Replicas = Replicas(0, 0)
    creation: HeadraceError | None = None
    """Why it cannot be made, beside rights: a factor that the brokers cannot give, a policy."""


_COORDINATOR_MOVES = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
"""What brokers answer of a group while another of them takes it over, and while the topic of
committed offsets is made: at the first question about any group of a new cluster."""
_AGAIN_S = 0.1


class RightsAdmin(Admin, ClusterRights):
    """Blocking calls as ``Admin``'s."""

    def topic_rights(
        self, names: Collection[str], new: Mapping[str, tuple[int, int]]
    ) -> dict[str, TopicRights]:
        """Of topics that exist, and of those that do not: how many partitions and replicas these
        would be made with is in ``new``, else one, and the broker's default."""
        deadline_s = time.monotonic() + self._timeout_s
        found, made = self._topic_rights(names, new)
        while made and time.monotonic() < deadline_s:
            time.sleep(_AGAIN_S)
            more, made = self._topic_rights(made, new)
            found |= more
        return found

    def _topic_rights(
        self, names: Collection[str], new: Mapping[str, tuple[int, int]]
    ) -> tuple[dict[str, TopicRights], set[str]]:
        """The same, and those that were made after they were described: of these neither partitions
        nor replicas are known."""
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
        """Of groups, be they there or not."""
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
                time.sleep(_AGAIN_S)
        return found

    def may_use_transactional_id(self, name: str) -> bool:
        """Whether it may write with this transactional id."""
        return self._on_wire(lambda cluster: may_use_transactional_id(cluster, name))

    def check_version(self) -> None:
        """Raise ``Fatal`` for brokers that are older than what the wire client speaks."""
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
        """Those that exist, are absent, and may not be described."""
        found: dict[str, TopicRights] = {}
        absent, hidden = set[str](), set[str]()
        if not names:
            return found, absent, hidden
        client, tried = self._requests.client, f"describe topics of {self.name}"
        futures = self._requests.call(
            tried,
            lambda: client.describe_topics(
                TopicCollection(sorted(names)),
                include_authorized_operations=True,
                request_timeout=self._timeout_s,
            ),
        )
        for name, future in futures.items():
            try:
                one = self._requests.result(f"describe topic {name} of {self.name}", future)
            except HeadraceError as error:
                code = code_of(error)
                if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    absent.add(name)
                elif code in FORBIDDEN:
                    hidden.add(name)
                else:
                    raise
                continue
            replicas = Replicas(
                min(len(at.replicas) for at in one.partitions),
                min(len(at.isr) for at in one.partitions),
            )
            allowed = operations(one.authorized_operations)
            found[name] = TopicRights(allowed, True, len(one.partitions), replicas)
        return found, absent, hidden

    def _refused(
        self, names: Collection[str], new: Mapping[str, tuple[int, int]]
    ) -> dict[Operation, dict[str, HeadraceError | None]]:
        """By what was tried on topics that do not exist, each in a trial run: why it would be
        refused, of creation for any reason, else for want of rights."""
        if not names:
            return {}
        refused: dict[Operation, dict[str, HeadraceError | None]] = {
            operation: self._refused_to(operation, ask)
            for operation, ask in self._trials(sorted(names), new).items()
        }
        for operation, wire in ((Operation.READ, unreadable), (Operation.WRITE, unwritable)):
            refused[operation] = dict.fromkeys(self._on_wire(partial(wire, topics=sorted(names))))
        return refused

    def _trials(self, names: list[str], new: Mapping[str, tuple[int, int]]) -> dict[Operation, Ask]:
        settings = {"request_timeout": self._timeout_s}
        options = {"validate_only": True, **self._timeouts()}
        client = self._requests.client
        resources = [ConfigResource(ResourceType.TOPIC, one) for one in names]
        change = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
        changes = [
            ConfigResource(ResourceType.TOPIC, one, incremental_configs=[change]) for one in names
        ]
        topics = [NewTopic(one, *new.get(one, (1, -1))) for one in names]
        grown = [NewPartitions(one, 2) for one in names]
        return {
            Operation.CREATE: lambda: client.create_topics(topics, **options),
            Operation.ALTER: lambda: client.create_partitions(grown, **options),
            Operation.DESCRIBE_CONFIGS: lambda: client.describe_configs(resources, **settings),
            Operation.ALTER_CONFIGS: lambda: client.incremental_alter_configs(
                changes, validate_only=True, **settings
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
