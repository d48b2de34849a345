"""What a policy is."""

from typing import Protocol


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
