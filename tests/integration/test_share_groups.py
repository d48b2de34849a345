"""Share groups whose start offsets are set on the target before their first use; real brokers."""

from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, spec
from support.group_reports import applied, printed, said_of_groups
from support.groups import in_transactions, positions
from support.other_groups import finish_records, share_consumer
from support.records import arrived, make_topic, unique
from support.security import grant

from headrace.api import TopicPartition
from headrace.kafka import Admin, GroupActive
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]


@pytest.fixture
def flow(east: SandboxCluster, west: SandboxCluster) -> dict[str, Any]:
    """Return a flow that sets the groups of one test as often as it can. Its topic has holes."""
    name = unique("share")
    topic = make_topic(spec(east), name, 1)
    in_transactions(east, topic, [(40, True), (3, False), (1, True), (60, True), (2, False)])
    return applied(name, east, west, topic)


def admin(cluster: SandboxCluster) -> Admin:
    return Admin(spec(cluster))


def start(cluster: SandboxCluster, group: str, topic: str) -> int | None:
    """Return the start offset of the only partition."""
    found, refused = admin(cluster).share_starts([group])
    if refused:
        raise refused[group]  # coordinators may still load
    return found[group].get(TopicPartition(topic, 0))


def set_start(cluster: SandboxCluster, group: str, topic: str, offset: int) -> bool:
    """Set a start offset as ``kafka-share-groups --reset-offsets`` does, and return success."""
    return admin(cluster).set_share_starts({group: {TopicPartition(topic, 0): offset}}) == {}


def very_next(
    source: SandboxCluster, target: SandboxCluster, topic: str, offset: int | None
) -> tuple[int, Any]:
    """Return the offset and value of the first copy of a record at or after a source offset."""
    assert offset is not None
    value = next(value for at, value in positions(source, topic) if at >= offset)
    return next(one for one in positions(target, f"east.{topic}") if one[1] == value)


@pytest.mark.long
def test_share_groups_begin_at_the_very_next_record_until_they_are_used(
    flow: dict[str, Any],
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    name = flow["metadata"]["name"]
    topic = flow["spec"]["topics"]["include"][0]
    copy, packing, used = f"east.{topic}", f"{name}-packing", f"{name}-used"
    for group in (packing, used):
        wait_until(lambda group=group: set_start(east, group, topic, 0))
        assert len(finish_records(east, group, topic, 50)) > 50
    first = wait_until(lambda: start(east, packing, topic))
    assert 40 < first < 100, "in mid-log"

    with FlowRun(tmp_path, [flow]) as run:
        wait_until(lambda: arrived(spec(west), copy) == 101)
        expected, value = very_next(east, west, topic, first)
        assert expected != first
        wait_until(lambda: [start(west, one, copy) for one in (packing, used)] == [expected] * 2)
        assert finish_records(west, used, copy, 0)[0] == value
        assert start(west, used, copy) == expected, "it finished none"

        for group in (packing, used):
            finish_records(east, group, topic, 20)
        second, _ = very_next(east, west, topic, start(east, packing, topic))
        assert second > expected
        wait_until(lambda: start(west, packing, copy) == second)
        wait_until(
            lambda: said_of_groups(run).endswith("1 set, 1 not, as consumers there have committed")
        )
        # The message also counts earlier checkpoints. A lag of 0 shows that the checkpoint of the
        # new offset is written.
        shown = wait_until(
            lambda: sorted(printed("flow", "groups", name)["groups"], key=itemgetter("group")),
            until=lambda found: [one["lag"] for one in found] == [0, 0],
        )
        assert [one["group"] for one in shown] == [packing, used]
        assert [one["targetCommitted"] for one in shown] == [second, expected]
        assert [bool(one["note"]) for one in shown] == [False, True]
        assert start(west, used, copy) == expected

        wait_until(lambda: set_start(east, packing, topic, 95))
        last, value = very_next(east, west, topic, 95)
        found = printed("failover", name)
        assert found["problems"] == []
        assert {one["group"]: one["targetOffset"] for one in found["groups"]}[packing] == last
    assert start(west, packing, copy) == last
    assert finish_records(west, packing, copy, 1)[0] == value


def test_a_share_group_with_members_is_not_set(east: SandboxCluster, wait_until: WaitUntil) -> None:
    topic, group = make_topic(spec(east), unique("share"), 1), unique("members")
    with share_consumer(east, group, topic):
        failed = admin(east).set_share_starts({group: {TopicPartition(topic, 0): 0}})
        assert isinstance(failed[group], GroupActive)
        assert admin(east).used_share_groups([group]) == ({group}, {})
    assert admin(east).used_share_groups([group]) == ({group}, {}), "also when they have left"
    other = unique("unused")
    wait_until(lambda: set_start(east, other, topic, 0))
    assert admin(east).used_share_groups([other]) == (set(), {})
    assert admin(east).protocol_types()[other] == "share"


def test_the_right_that_is_needed_is_named(
    start_cluster: Callable[..., SandboxCluster], wait_until: WaitUntil
) -> None:
    west = start_cluster(
        "strict",
        properties={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        },
    )
    topic, group = make_topic(spec(west), unique("rights"), 1), unique("packing")
    grant(west, group, "describe", on="group", to=("User:ANONYMOUS",))

    def refused() -> str:
        failed = admin(west).set_share_starts({group: {TopicPartition(topic, 0): 0}})
        return str(failed.get(group))

    wait_until(refused, until=lambda why: "grant the principal permissions on this group" in why)
    assert start(west, group, topic) is None
    assert admin(west).used_share_groups([group]) == (set(), {})
