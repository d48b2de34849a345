"""Consumer groups that fail over to the target, and groups that are left alone; real brokers."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from support.flows import FlowRun, spec
from support.group_reports import applied, printed, said_of_groups
from support.groups import commit, committed, in_transactions, member, read_on
from support.patience import WITHIN_S
from support.records import arrived, make_topic, numbered, produce, unique
from support.records import read as read_all
from support.security import grant

from headrace.api import TopicPartition
from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]


def offsets(cluster: SandboxCluster, group: str) -> dict[int, int]:
    return {number: offset for number, (offset, _) in committed(cluster, group).items()}


def shown(run: FlowRun) -> list[tuple[int, int]]:
    """Return committed offsets and lags of partitions without a note in ``flow groups``."""
    groups = printed("flow", "groups", run.name)["groups"]
    return [(one["committed"], one["lag"]) for one in groups if not one["note"]]


def translated(run: FlowRun) -> dict[int, int]:
    """Return the target offset in the checkpoint of a run's only group, by partition."""
    groups = printed("flow", "groups", run.name)["groups"]
    return {one["partition"]: one["checkpoint"]["targetOffset"] for one in groups}


def test_a_group_fails_over_and_reads_each_record_once(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("failover")
    topic = make_topic(spec(east), name, 2)
    in_transactions(east, topic, [(40, True), (3, False), (1, True), (60, True), (2, False)])
    produce(spec(east), topic, numbered(200, 2))
    group, copy = f"{name}-billing", f"east.{topic}"
    commit(east, group, topic, {0: 0, 1: 0})
    with FlowRun(tmp_path, [applied(name, east, west, topic)]) as run:
        wait_until(lambda: arrived(spec(west), copy), until=_is(301))
        before = read_on(east, group, topic, 150)
        last = offsets(east, group)
        wait_until(lambda: shown(run), until=lambda found: found == [(last[0], 0), (last[1], 0)])
        wait_until(lambda: offsets(west, group) == translated(run))
        after = read_on(west, group, copy, 1_000)
        wait_until(run.ready)
    assert len(before) == 150
    there = [one.value for records in read_all(spec(east), topic).values() for one in records]
    assert len(there) == 301
    assert Counter([*before, *after]) == Counter(there)


def test_records_that_are_filtered_are_not_copied_and_offsets_stay_exact(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("filtered")
    topic = make_topic(spec(east), name, 1)
    records = [
        one._replace(headers=(*one.headers, ("test", b"1"))) if n // 10 % 2 else one
        for n, one in enumerate(numbered(60, 1))
    ]
    produce(spec(east), topic, records[:40])
    exact = {5: 5, 10: 10, 15: 10, 20: 10, 25: 15, 40: 20}
    for at in exact:
        commit(east, f"{name}-{at}", topic, {0: at})
    flow = applied(name, east, west, topic)
    flow["spec"]["recordFilter"] = {"headers": {"exclude": [{"name": "test", "value": "1"}]}}

    def applied_offsets() -> dict[int, int]:
        return {at: offsets(west, f"{name}-{at}").get(0, -1) for at in exact}

    with FlowRun(tmp_path, [flow]) as run:
        wait_until(applied_offsets, until=lambda found: found == exact)
        without_note = sorted((at, 0) for at in exact)
        wait_until(lambda: sorted(shown(run)), until=lambda n: n == without_note)
    produce(spec(east), topic, records[40:])
    with FlowRun(tmp_path, [flow]) as run:
        wait_until(lambda: run.status().get("lag", {}).get("records"), until=_is(0))
        wait_until(lambda: arrived(spec(west), f"east.{topic}"), until=_is(30))
        found = applied_offsets()
    # The second run may have written a transaction marker at offset 20 of the target. A reader then
    # receives the same records from 20 and from 21.
    assert found == exact | {40: found[40]}
    following = read_on(west, f"{name}-40", f"east.{topic}", 10)
    assert following == [one.value for one in records[40:50]]
    copies = read_all(spec(west), f"east.{topic}")[0]
    assert copies == [one for n, one in enumerate(records) if n // 10 % 2 == 0]


def test_what_is_committed_is_read_while_the_coordinator_comes_back(
    start_cluster: Callable[..., SandboxCluster], wait_until: WaitUntil
) -> None:
    cluster = start_cluster("loading")
    topic = make_topic(spec(cluster), unique("loading"), 1)
    groups = {unique("group"): n for n in range(20)}
    for group, at in groups.items():
        commit(cluster, group, topic, {0: at})
    (broker,) = cluster.brokers
    admin = Admin(spec(cluster))
    broker.kill()
    broker.start()
    found = wait_until(lambda: admin.committed(groups), until=lambda answer: not answer[1])[0]
    place = TopicPartition(topic, 0)
    assert {group: of[place].offset for group, of in found.items()} == groups


def _is(number: int) -> Callable[[object], bool]:
    return lambda found: found == number


@pytest.mark.long
def test_when_all_is_killed_a_group_reads_again_what_it_read_since_its_checkpoint(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("killed")
    topic = make_topic(spec(east), name, 2)
    group, copy = f"{name}-billing", f"east.{topic}"
    commit(east, group, topic, {0: 0, 1: 0})
    read: list[tuple[int | None, bytes | None]] = []
    with FlowRun(tmp_path, [applied(name, east, west, topic)]) as run:
        wait_until(lambda: offsets(west, group) == {0: 0, 1: 0})
        with closing(member(east, group)) as consumer:
            consumer.subscribe([topic])

            def read_for(time_s: float) -> None:
                began_s = time.monotonic()
                while time.monotonic() - began_s < time_s:
                    produce(spec(east), topic, numbered(10, 2, first=len(read)))
                    for _ in range(10):
                        found = consumer.poll(WITHIN_S)
                        assert found is not None
                        assert found.error() is None, found.error()
                        consumer.commit(message=found, asynchronous=False)
                        read.append((found.partition(), found.value()))

            read_for(10)
            last = offsets(east, group)
            wait_until(lambda: sorted(shown(run)) == sorted((at, 0) for at in last.values()))
            wait_until(lambda: offsets(west, group) == translated(run))
            checked = len(read)
            read_for(10)
        wait_until(lambda: arrived(spec(west), copy) == len(read))
        for driver in run.drivers():
            driver.kill()
        run.process.kill()
    after = read_on(west, group, copy, 2 * len(read))
    before = [value for _, value in read]
    copied = {one.value for records in read_all(spec(west), copy).values() for one in records}
    assert copied == set(before)
    again = set(after)
    assert len(after) == len(again), "read twice on the target"
    print(f"{len(before)} read on the source, {len(again)} of them again on the target")
    assert again <= set(before[checked:])
    # To the end of each partition: nothing between the group's offset and the end is missed.
    for number in range(2):
        values = [value for partition, value in read if partition == number]
        missed = [value for value in values if value not in again]
        assert missed == values[: len(missed)]


def test_a_group_with_members_on_the_target_is_set_when_they_have_left(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("active")
    topic = make_topic(spec(east), name, 1)
    produce(spec(east), topic, numbered(100, 1))
    group, copy = f"{name}-billing", f"east.{topic}"
    with FlowRun(tmp_path, [applied(name, east, west, topic)]) as run:
        wait_until(lambda: arrived(spec(west), copy) == 100)
        with closing(member(west, group)) as consumer:
            consumer.subscribe([copy])
            wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment())
            commit(east, group, topic, {0: 40})
            words = "1 not, as the group has members there"
            wait_until(
                lambda: said_of_groups(run), until=lambda said: words in said and "1 exact" in said
            )
            assert offsets(west, group) == {}
            wait_until(run.ready)
        wait_until(lambda: offsets(west, group) == {0: 40})
        wait_until(lambda: said_of_groups(run).endswith("groups of the target: 1 set"))


def test_a_group_is_neither_moved_back_nor_taken_from_consumers_of_the_target(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("foreign")
    topic = make_topic(spec(east), name, 1)
    produce(spec(east), topic, numbered(100, 1))
    reset, there, copy = f"{name}-reset", f"{name}-there", f"east.{topic}"
    with FlowRun(tmp_path, [applied(name, east, west, topic)]) as run:
        for group in (reset, there):
            commit(east, group, topic, {0: 50})
            wait_until(lambda group=group: offsets(west, group) == {0: 50})
        commit(west, there, copy, {0: 55})
        commit(east, there, topic, {0: 90})
        commit(east, reset, topic, {0: 10})
        words = (
            "in groups of the target: 1 not, as consumers there have committed, "
            "1 not, as the group is behind them already"
        )
        wait_until(lambda: said_of_groups(run), until=lambda found: found.endswith(words))
        assert (offsets(west, there), offsets(west, reset)) == ({0: 55}, {0: 50})
        commit(east, reset, topic, {0: 60})
        wait_until(lambda: offsets(west, reset) == {0: 60})
        assert offsets(west, there) == {0: 55}


def test_offsets_of_a_deleted_topic_and_beyond_the_end_hold_up_no_others(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("odd")
    kept, gone = make_topic(spec(east), name, 1), make_topic(spec(east), f"{name}-gone", 1)
    for topic in (kept, gone):
        produce(spec(east), topic, numbered(10, 1))
    beyond, both = f"{name}-beyond", f"{name}-both"
    commit(east, beyond, kept, {0: 500})
    commit(east, both, gone, {0: 7})
    flow = applied(name, east, west, f"{name}(-gone)?")

    def notes() -> tuple[dict[tuple[str, str], str], list[str]]:
        found = printed("flow", "groups", name)
        said = {(one["group"], one["topic"]): one["note"] for one in found["groups"]}
        return said, found["problems"]

    with FlowRun(tmp_path, [flow]) as run:
        wait_until(lambda: arrived(spec(west), f"east.{gone}"), until=_is(10))
        wait_until(lambda: offsets(west, both), until=lambda at: at == {0: 7})
        admin = AdminClient({"bootstrap.servers": east.bootstrap_servers})
        admin.delete_topics([gone])[gone].result(WITHIN_S)
        commit(east, both, kept, {0: 4})
        wait_until(lambda: offsets(west, beyond), until=lambda at: at == {0: 10})
        expected = {
            (beyond, kept): "ahead of the copy, which ends at source offset 10",
            (both, gone): "the group has no offset on the source any more",
            (both, kept): "",
        }
        wait_until(notes, until=lambda found: found == (expected, []))
        wait_until(run.ready)
        produce(spec(east), kept, numbered(5, 1, first=10))
        wait_until(lambda: offsets(west, beyond), until=lambda at: at == {0: 15})


def test_without_the_right_to_commit_checkpoints_are_written_and_the_right_is_named(
    east: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    west = start_cluster(
        "strict",
        properties={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        },
    )
    name = unique("rights")
    topic = make_topic(spec(east), name, 1)
    produce(spec(east), topic, numbered(100, 1))
    group = f"{name}-billing"
    grant(west, group, "describe", on="group", to=("User:ANONYMOUS",))
    commit(east, group, topic, {0: 40})

    def error() -> str:
        units = run.units("CheckpointTask")
        return "; ".join(str(unit.get("lastError", {}).get("message", "")) for unit in units)

    with FlowRun(tmp_path, [applied(name, east, west, topic)]) as run:
        wait_until(lambda: run.units("CheckpointTask"))
        refused = f"set the committed offsets of group {group}"
        found = wait_until(error, until=lambda found: refused in found)
        assert "grant the principal permissions on this group" in found
        words = "1 exact; in groups of the target: 1 not, as the target refuses it"
        wait_until(lambda: words in said_of_groups(run))
