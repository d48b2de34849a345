"""How a topic of the source is named on the target (MirrorMaker 2's ReplicationPolicy)."""

from dataclasses import dataclass
from typing import Protocol

from headrace.api import HEARTBEATS, Policy
from headrace.errors import InvalidSpec


class ReplicationPolicy(Protocol):
    """Names of topics on the target."""

    def target_topic(self, topic: str) -> str:
        """The target's name of a topic of the source."""
        ...

    def source_topic(self, topic: str) -> str | None:
        """The source's name of a topic of the target; ``None`` when it is not of this source."""
        ...

    def came_from(self, topic: str, alias: str) -> bool:
        """Whether a topic's name says that it was copied from the cluster ``alias``, or by way of
        it."""
        ...


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


def policy_for(policy: Policy, source_alias: str) -> ReplicationPolicy:
    """The policy that a flow asks for; raises ``InvalidSpec`` for one that is not known."""
    match policy.type:
        case "Default":
            return DefaultReplicationPolicy(source_alias, policy.separator)
        case "Identity":
            return IdentityReplicationPolicy(source_alias, policy.separator)
    raise InvalidSpec(
        f"spec.policy.type: {policy.type} is no known policy; use Default or Identity"
    )
