"""A flow with preserved offsets on two drivers, and its target of three brokers."""

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from support.flows import FlowRun, spec
from support.preserved_topics import KEPT, bounds
from support.torture_load import Reports

from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


def make_copy(cluster: SandboxCluster, topic: str, brokers: Sequence[int], **config: str) -> None:
    """Create a topic of one partition on these brokers, the first of which leads."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    made = NewTopic(topic, 1, replica_assignment=[list(brokers)], config={**KEPT, **config})
    admin.create_topics([made])[topic].result(60)


class Scene:
    """Topics that are copied, and the flow's reports on them in the present round."""

    def __init__(
        self,
        run: FlowRun,
        source: SandboxCluster,
        target: SandboxCluster,
        topics: Sequence[str],
        *,
        unclean: str,
        wait_until: WaitUntil,
    ) -> None:
        """Create a scene.

        ``topics`` are the source's, of one partition each. Faults hit the first one. ``unclean`` is
        one of them, whose copy is on two brokers.
        """
        self.run, self.reports = run, Reports(run)
        self.source, self.target = source, target
        self.topics, self.unclean = topics, unclean
        self.admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
        self.here, self.there = Admin(spec(source)), Admin(spec(target))
        self._wait_until = wait_until
        self._known: set[str] = set()
        self._lost: set[str] = set()

    def begin_round(self) -> None:
        """Ignore earlier reports in this round."""
        self._known, self._lost = set(self.reports.stops), set(self.reports.losses)

    def copy(self, topic: str) -> str:
        """Return a topic's name on the target."""
        return f"{self.source.name}.{topic}"

    def unit(self) -> dict[str, Any]:
        """Return the source task."""
        (unit,) = self.run.units() or [{}]
        return unit

    def partition(self, topic: str) -> Any:
        """Return the metadata of a copy's partition on the target."""
        name = self.copy(topic)
        return self.admin.list_topics(name, timeout=60).topics[name].partitions[0]

    def grow(self, topic: str) -> None:
        """Wait until it is copied on, as the target says; or stopped."""
        copy = self.copy(topic)
        before = self.wait(lambda: bounds(self.there, copy))[2]
        self.wait(lambda: bounds(self.there, copy)[2] > before + 20 or self.stopped(topic))

    def losses(self) -> list[dict[str, Any]]:
        """Return the losses of this round."""
        return [one for key, one in self.reports.losses.items() if key not in self._lost]

    def stopped(self, topic: str) -> list[str]:
        """Return the messages on a stopped copy in this round, after it was last recreated."""
        partition = f"{self.copy(topic)}-0"
        return [one for one in self.reports.stops - self._known if partition in one]

    def made_again(self) -> None:
        """Ignore earlier stops: the copy was recreated."""
        self._known |= self.reports.stops

    def wait(self, poll: Callable[[], Any], until: Callable[[Any], bool] = bool) -> Any:
        """Wait for a result of ``poll`` for which ``until`` is true."""
        return self._wait_until(poll, until=until, every_s=0.2)
