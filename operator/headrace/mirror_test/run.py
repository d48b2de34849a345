"""One run of a MirrorTest, the input of each of its jobs: the test, resolved, and a name.

A resolved test names its clusters: in one with ``flowName``, ``headrace verify`` fills in the
flow's source, target and topic names first.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from headrace.api import (
    FLOW_LABEL,
    ChaosAction,
    ClusterAccess,
    ClusterSpec,
    MirrorTest,
    Model,
)
from headrace.errors import InvalidSpec
from headrace.mirror_test.load_topics import load_topics


class Run(Model):
    """A resolved test and the name of this run of it."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,20}$")]
    """Begins the ids of the run's producers."""
    test: MirrorTest
    secrets: Path | None = None
    """Folder of Secrets, ``<name>/<key>``."""

    @property
    def source(self) -> ClusterAccess:
        """Where the load is written."""
        return self._resolved(self.test.spec.source, "spec.source")

    @property
    def target(self) -> ClusterAccess:
        """Where the mirror is expected to carry it."""
        return self._resolved(self.test.spec.target, "spec.target")

    @property
    def flow(self) -> str | None:
        """Name of the flow under test; ``None``: a mirror that someone else runs."""
        return self.test.metadata.annotations.get(FLOW_LABEL)

    @property
    def first_topics(self) -> dict[str, str]:
        """Topics that the load begins with: the target's name by the source's."""
        return self._copies(load_topics(self.test))

    @property
    def added_topics(self) -> dict[str, str]:
        """Those that steps of chaos add, in their order: new ones in each run."""
        steps = [s for s in self.test.spec.chaos if s.action is ChaosAction.ADD_TOPIC]
        test = self.test.metadata.name
        return self._copies(f"{test}-{self.name}-{n}" for n in range(len(steps)))

    @property
    def topics(self) -> dict[str, str]:
        """All topics of the load."""
        return self.first_topics | self.added_topics

    def _copies(self, names: Iterable[str]) -> dict[str, str]:
        template, alias = self.test.spec.target_topic, self.source.alias
        return {name: template.format(source=alias, topic=name) for name in names}

    def _resolved(self, cluster: ClusterSpec | None, field: str) -> ClusterAccess:
        if cluster is None:
            raise InvalidSpec(
                f"test {self.test.metadata.name} names a flow instead of its clusters: "
                "`headrace verify` finds the flow and resolves it; a job alone cannot"
            )
        return ClusterAccess(cluster, field, self.secrets)
