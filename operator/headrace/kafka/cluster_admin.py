"""A cluster as an admin client knows it at once: its id, and which topics there are."""

from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from headrace.api import ClusterAccess
from headrace.errors import GaveUp, HeadraceError, Retriable
from headrace.kafka.admin_requests import Requests
from headrace.kafka.wire import Cluster, Loop, start

T = TypeVar("T")


class ClusterAdmin:
    """Blocking calls, each of at most ``timeout_s``; they raise ``Retriable`` or ``Fatal``."""

    def __init__(self, cluster: ClusterAccess, timeout_s: float = 10.0) -> None:
        self.name = cluster.name
        """Alias and address, for messages."""
        self._access = cluster
        self._timeout_s = timeout_s
        self._requests = Requests(cluster, timeout_s)

    def cluster_id(self) -> str:
        """The id that the cluster was formatted with: equal ids are one cluster."""
        client = self._requests.client
        tried = f"read the cluster id of {self.name}"
        future = self._requests.call(
            tried, lambda: client.describe_cluster(request_timeout=self._timeout_s)
        )
        return str(self._requests.result(tried, future).cluster_id)

    def expect(self, cluster_id: str) -> None:
        """Take no answer of the wire client from a broker of another cluster."""
        self._access = replace(self._access, cluster_id=cluster_id)

    def check_brokers(self) -> None:
        """Raise ``Retriable`` while a broker of another cluster answers at a known address."""
        try:
            self._on_wire(lambda cluster: cluster.check_brokers())
        except GaveUp as error:
            raise Retriable(f"could not compare the brokers of {self.name}: {error}") from error

    def topics(self) -> dict[str, int]:
        """Number of partitions by topic, of every topic, in one metadata request."""
        client = self._requests.client
        tried = f"list the topics of {self.name}"
        metadata = self._requests.call(tried, lambda: client.list_topics(timeout=self._timeout_s))
        return {name: len(t.partitions) for name, t in metadata.topics.items() if not t.error}

    def _on_wire(self, ask: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """With a client of the wire protocol that lives as long as the question."""
        loop = Loop()
        cluster = Cluster(loop, self._access)
        try:
            return loop.wait(start(ask(cluster)), self._timeout_s)
        finally:
            cluster.close()
            loop.close()

    def _on_wire_by_group(
        self,
        groups: Collection[str],
        ask: Callable[[Cluster], Coroutine[Any, Any, Mapping[str, T | HeadraceError]]],
    ) -> tuple[dict[str, T], dict[str, HeadraceError]]:
        """The answer about each of these groups, and why there is none about some; nothing is
        raised."""
        if not groups:
            return {}, {}
        try:
            answers = self._on_wire(ask)
        except HeadraceError as error:
            return {}, dict.fromkeys(groups, error)
        failed = {one: why for one, why in answers.items() if isinstance(why, HeadraceError)}
        found = {one: it for one, it in answers.items() if not isinstance(it, HeadraceError)}
        return found, failed
