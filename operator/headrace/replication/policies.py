"""How a topic of the source is named on the target (MirrorMaker 2's ReplicationPolicy)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from headrace.api import HEARTBEATS, Policy
from headrace.replication.policy import ReplicationPolicy
from headrace.replication.policy_plug_ins import open_policy


@dataclass(frozen=True)
class DefaultReplicationPolicy:
    """``<source alias><separator><topic>``: one can see where a topic came from."""

    source_alias: str
    separator: str

    def target_topic(self, topic: str) -> str:
        """See ``ReplicationPolicy``."""
        return f"{self.source_alias}{self.separator}{topic}"

    def source_topic(self, topic: str) -> str | None:
        """See ``ReplicationPolicy``."""
        prefix = f"{self.source_alias}{self.separator}"
        return topic.removeprefix(prefix) if topic.startswith(prefix) else None

    def came_from(self, topic: str, alias: str) -> bool:
        """See ``ReplicationPolicy``.

        Any prefix counts, as in MirrorMaker 2 (``MirrorSourceConnector.isCycle``): in a ring of
        three clusters the first one's topics come back as ``third.second.first.topic``.
        """
        step = self.separator
        return f"{step}{alias}{step}" in f"{step}{topic}"


@dataclass(frozen=True)
class IdentityReplicationPolicy:
    """Names stay as they are; only heartbeats carry the alias, or two sources would mix theirs.

    The name cannot show a cycle: of two flows in opposite directions, topics must differ.
    """

    source_alias: str
    separator: str

    def target_topic(self, topic: str) -> str:
        """See ``ReplicationPolicy``."""
        return f"{self.source_alias}{self.separator}{topic}" if topic == HEARTBEATS else topic

    def source_topic(self, topic: str) -> str | None:
        """See ``ReplicationPolicy``."""
        return HEARTBEATS if topic == self.target_topic(HEARTBEATS) else topic

    def came_from(self, topic: str, alias: str) -> bool:
        """See ``ReplicationPolicy``."""
        return topic == f"{alias}{self.separator}{HEARTBEATS}"


@dataclass(frozen=True)
class RenameMapPolicy:
    """Names by a map; what it does not have keeps its name, as with Identity."""

    kept: IdentityReplicationPolicy
    renames: Mapping[str, str]

    def target_topic(self, topic: str) -> str:
        """See ``ReplicationPolicy``."""
        return self.renames.get(topic) or self.kept.target_topic(topic)

    def source_topic(self, topic: str) -> str | None:
        """See ``ReplicationPolicy``."""
        if (found := self._sources.get(topic)) is not None:
            return found
        return None if topic in self.renames else self.kept.source_topic(topic)

    def came_from(self, topic: str, alias: str) -> bool:
        """See ``ReplicationPolicy``."""
        return self.kept.came_from(topic, alias)

    @cached_property
    def _sources(self) -> Mapping[str, str]:
        return {renamed: topic for topic, renamed in self.renames.items()}


def policy_for(policy: Policy, source_alias: str) -> ReplicationPolicy:
    """The policy that a flow asks for; one of ours goes before a plug-in.

    Raises ``InvalidSpec`` for one that is not known.
    """
    identity = IdentityReplicationPolicy(source_alias, policy.separator)
    match policy.type:
        case "Default":
            return DefaultReplicationPolicy(source_alias, policy.separator)
        case "Identity":
            return identity
        case "RenameMap":
            return RenameMapPolicy(identity, policy.renames or {})
    return open_policy(policy.type, source_alias, policy.separator)
