"""The positions of a MirrorMaker 2, in Kafka Connect's topic on the target."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.api import TopicPartition, connect_offsets_topic
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.topic_tail import TopicTail
from headrace.connect.topics.topic_writer import Keyed, TopicWriter
from headrace.errors import Fatal, InvalidSpec
from headrace.kafka import Position
from headrace.replication import (
    DEDICATED_CONNECTOR,
    OFFSETS_PARTITIONS,
    ConnectPartition,
    connect_group,
    decode_position,
    encode_position,
)


@dataclass(frozen=True)
class MirrorMaker:
    """Where a MirrorMaker 2 keeps what; by default as in dedicated mode."""

    context: FlowContext
    """Of the flow between the same clusters."""
    topic: str
    """Of Connect's offsets."""
    group: str
    """Of Connect's workers."""
    connector: str | None = None
    """None: the only one that has positions of the source."""

    @classmethod
    def of(
        cls, context: FlowContext, topic: str | None, group: str | None, connector: str | None
    ) -> "MirrorMaker":
        """None: its default."""
        alias = context.spec.source.alias
        topic, group = topic or connect_offsets_topic(alias), group or connect_group(alias)
        return cls(context, topic, group, connector)

    @property
    def exists(self) -> bool:
        """Whether its topic is there."""
        return bool(self.context.target.describe([self.topic]))

    def create(self) -> None:
        """As Connect makes it."""
        factor = self.context.spec.target.replication_factor or -1
        config = {"cleanup.policy": "compact"}
        self.context.target.create_topic(self.topic, OFFSETS_PARTITIONS, factor, config=config)
        self._ends()  # it is there when its partitions have leaders

    def check_stopped(self, copies: frozenset[TopicPartition], quiet_s: float) -> None:
        """Raises ``Fatal`` while it runs: its workers are members of their group, or it writes
        positions or ``copies`` (partitions of the target) while they are watched so long."""
        target = self.context.target
        if target.has_members(self.group):
            raise Fatal(
                f"MirrorMaker 2 runs: group {self.group} on {target.name} has members. Stop it "
                "first; after a kill brokers need some seconds to notice"
            )
        before = self._ends() | target.known_ends(copies)
        time.sleep(quiet_s)
        after = self._ends() | target.known_ends(copies)
        if grew := sorted(at for at, end in after.items() if end != before.get(at, end)):
            raise Fatal(
                f"MirrorMaker 2 runs, or another writer: {grew[0]} on {target.name} grew within "
                f"{quiet_s:.0f} s. Stop it first"
            )

    def positions(self) -> dict[TopicPartition, int]:
        """Of each partition of the source the next offset that it would copy.

        Raises ``InvalidSpec`` where the topic is absent, or has no positions of the source.
        """
        target, alias = self.context.target, self.context.spec.source.alias
        if not self.exists:
            raise InvalidSpec(
                f"there is no topic {self.topic} on {target.name}: name the one in which "
                "MirrorMaker 2 keeps its positions by --offsets-topic (offset.storage.topic of "
                "its Connect cluster)"
            )
        found = self._read()
        ours = {one: offset for one, offset in found.items() if one.cluster == alias}
        if not ours:
            others = ", ".join(sorted({one.cluster for one in found})) or "none"
            raise InvalidSpec(
                f"{self.topic} on {target.name} has positions of these sources: {others}; "
                f"spec.source.alias is {alias}, and must be the alias that MirrorMaker 2 has"
            )
        names = sorted({one.connector for one in ours})
        if self.connector is None and len(names) > 1:
            raise InvalidSpec(
                f"{self.topic} on {target.name} has positions of several connectors from {alias}: "
                f"{', '.join(names)}; name one by --connector"
            )
        connector = self.connector or names[0]
        if connector not in names:
            raise InvalidSpec(
                f"{self.topic} on {target.name} has no position of connector {connector} from "
                f"{alias}, but of {', '.join(names)}"
            )
        return {one.at: offset for one, offset in ours.items() if one.connector == connector}

    def write(self, positions: Mapping[TopicPartition, int]) -> None:
        """It goes on from there; raises as writing does."""
        connector, alias = self.connector or DEDICATED_CONNECTOR, self.context.spec.source.alias
        TopicWriter(self.topic, self.context, by_key=True).write(
            (
                Keyed(ConnectPartition(connector, alias, at).key(), encode_position(offset))
                for at, offset in positions.items()
            ),
            "positions of MirrorMaker 2",
        )

    def _read(self) -> dict[ConnectPartition, int]:
        context, found = self.context, dict[ConnectPartition, int]()
        for at in self._ends():
            access, clients = context.target_access, context.clients
            tail = TopicTail(
                at.topic, access, context.target, clients, context.clock, partition=at.partition
            )
            for message in tail.read():
                if (one := ConnectPartition.decode(message.key() or b"")) is None:
                    continue
                if (offset := decode_position(message.value())) is None:
                    found.pop(one, None)
                else:
                    found[one] = offset
            tail.close()
        return found

    def _ends(self) -> dict[TopicPartition, int]:
        target = self.context.target
        count = target.topics().get(self.topic, 0)
        return target.offsets(
            [TopicPartition(self.topic, n) for n in range(count)], Position.LATEST
        )
