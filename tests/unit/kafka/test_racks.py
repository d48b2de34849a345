"""Racks in which partitions can be read, according to brokers' answers."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.api import TopicPartition
from headrace.errors import Fatal
from headrace.kafka.admin_requests import AdminRequests
from headrace.kafka.topic_admin import read_racks

AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER = "org.apache.kafka.common.replica.LeaderSelector"


class Brokers:
    """Brokers of three racks. One partition's leader is not its preferred leader."""

    def __init__(self, selector: str | None, racks: str = "abc", refused: bool = False) -> None:
        self._selector, self._racks, self._refused = selector, racks, refused
        self.client = self

    def call(self, tried: str, ask: Callable[[], Any]) -> Any:
        return ask()

    def result(self, tried: str, answer: Any) -> Any:
        if isinstance(answer, Fatal):
            raise answer
        return answer

    def describe_cluster(self, **_: Any) -> Any:
        racks = dict(enumerate(self._racks, 1))
        return SimpleNamespace(nodes=[SimpleNamespace(id=n, rack=racks.get(n)) for n in (1, 2, 3)])

    def list_topics(self, **_: Any) -> Any:
        partitions = {
            0: SimpleNamespace(leader=2, replicas=[1, 2]),
            1: SimpleNamespace(leader=-1, replicas=[3]),
        }
        topic = SimpleNamespace(partitions=partitions)
        return SimpleNamespace(topics={"orders": topic, "another": topic})

    def describe_configs(self, resources: Any, **_: Any) -> Any:
        setting = SimpleNamespace(value=self._selector)
        answer = Fatal("not allowed") if self._refused else {"replica.selector.class": setting}
        return dict.fromkeys(resources, answer)


def racks(brokers: Brokers) -> list[set[str]]:
    found = read_racks(cast(AdminRequests, brokers), 1.0, "east", {"orders", "gone"})
    assert not found or found.keys() == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    return [set(one) for _, one in sorted(found.items())]


def test_with_follower_fetching_those_of_all_replicas() -> None:
    assert racks(Brokers(AWARE)) == [{"a", "b"}, {"c"}]


@pytest.mark.parametrize("selector", [None, "", LEADER])
def test_else_that_of_the_preferred_leader_whoever_leads_now(selector: str | None) -> None:
    assert racks(Brokers(selector)) == [{"a"}, {"c"}]


def test_so_where_the_setting_may_not_be_read() -> None:
    assert racks(Brokers(AWARE, refused=True)) == [{"a"}, {"c"}]


def test_brokers_without_racks() -> None:
    assert racks(Brokers(AWARE, racks="")) == []
    assert racks(Brokers(AWARE, racks="a")) == [{"a"}, set()], "one broker alone has one"
