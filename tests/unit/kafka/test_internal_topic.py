"""Internal topic of headrace, with a cluster in memory."""

from typing import Any

import pytest
from support.fake_kafka import FakeCluster, FakeKafka

from headrace.errors import Fatal, Retriable
from headrace.kafka import Admin, ensure_topic

TOPIC = "east.checkpoints.internal"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeKafka("west").clusters["west"]


def ensure(admin: Any, partitions: int = 1) -> bool:
    found: Admin = admin
    config = {"cleanup.policy": "compact"}
    return ensure_topic(found, TOPIC, partitions, config, because="as MirrorMaker 2 makes it")


def test_it_is_made_once_with_its_settings(cluster: FakeCluster) -> None:
    assert ensure(cluster)
    assert cluster.configs[TOPIC] == {"cleanup.policy": "compact"}
    cluster.forbidden.add(TOPIC)  # the permission to create is no longer needed
    assert not ensure(cluster)


def test_one_that_another_process_makes_at_the_same_time_is_used(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = cluster.create_topic

    def make_twice(*args: Any, **kwargs: Any) -> bool:
        create(*args, **kwargs)
        return create(*args, **kwargs)

    monkeypatch.setattr(cluster, "create_topic", make_twice)
    assert not ensure(cluster)


def test_one_that_is_not_visible_yet_is_awaited(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "create_topic", lambda *_, **__: False)
    with pytest.raises(Retriable, match="is being created by another process"):
        ensure(cluster)


def test_another_number_of_partitions_is_refused(cluster: FakeCluster) -> None:
    ensure(cluster)
    with pytest.raises(Fatal, match="has 1 partitions, and must have 8, as MirrorMaker 2 makes it"):
        ensure(cluster, 8)
