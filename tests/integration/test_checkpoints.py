"""Consumer groups of the source, and the offsets at which they would resume on the target.

The brokers are real.
"""

import struct
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cluster.kubelet import Kubelet
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from support.flows import FlowRun, manifest, spec
from support.group_reports import printed
from support.groups import commit, in_transactions, positions
from support.mirror_client import mirror_client
from support.operators import Operator, Resources
from support.other_groups import make_streams_group, share_consumer
from support.records import (
    Record,
    arrived,
    compare,
    count,
    make_topic,
    numbered,
    produce,
    read,
    unique,
)
from support.security import add_acls, remove_acls

from headrace.api import progress_topic
from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]


class Decoded(NamedTuple):
    """A checkpoint as another program reads it: Kafka's types, big-endian."""

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str


def decode(record: Record) -> Decoded:
    """Decode a checkpoint without headrace's own code."""
    key, value = record.key or b"", record.value or b""
    group, rest = string(key)
    topic, rest = string(rest)
    assert len(rest) == 4
    version, upstream, downstream = struct.unpack_from(">hqq", value)
    metadata, rest_of_value = string(value[18:])
    assert (version, rest_of_value, record.headers) == (0, b"", ())
    return Decoded(group, topic, struct.unpack(">i", rest)[0], upstream, downstream, metadata)


def string(data: bytes) -> tuple[str, bytes]:
    """Return a STRING, and the data that follows it."""
    (length,) = struct.unpack_from(">h", data)
    return data[2 : 2 + length].decode(), data[2 + length :]


def checkpoints(target: SandboxCluster, group: str, alias: str = "east") -> dict[int, Decoded]:
    """Return the last checkpoints of a group, by partition."""
    found = read(spec(target), f"{alias}.checkpoints.internal")
    mine = [record for record in found.get(0, []) if string(record.key or b"")[0] == group]
    return {one.partition: one for one in map(decode, mine)}


def offsets(target: SandboxCluster, group: str) -> dict[int, tuple[int, int]]:
    """Source and target offset, by partition."""
    return {
        number: (one.upstream, one.downstream) for number, one in checkpoints(target, group).items()
    }


def oracle(source: SandboxCluster, target: SandboxCluster, topic: str) -> Callable[[int], int]:
    """Return a function from a source offset to the target offset of the next record.

    It reads both topics.
    """
    there = positions(source, topic)
    copies = positions(target, f"east.{topic}")
    assert [value for _, value in there] == [value for _, value in copies]
    pairs = list(zip([at for at, _ in there], [at for at, _ in copies], strict=True))
    behind = pairs[-1][1] + 1
    return lambda offset: next((copy for at, copy in pairs if at >= offset), behind)


def followed(
    name: str, source: SandboxCluster, target: SandboxCluster, *topics: str, **more: Any
) -> Any:
    """Return the manifest of a flow that follows the groups of one test as often as it can."""
    return manifest(
        name,
        source,
        target,
        *topics,
        groups={"include": [f"{name}-.*"]},
        discovery={"groupsSeconds": 1},
        checkpoints={"intervalSeconds": 2},
        **more,
    )


def test_offsets_of_groups_are_translated_and_follow_through_a_kill(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("groups")
    topic = make_topic(spec(east), name, 2)
    produce(spec(east), topic, numbered(1000, 2))
    group, late = f"{name}-billing", f"{name}-late"
    commit(east, group, topic, {0: 0, 1: 123})
    commit(east, f"{unique('other')}-group", topic, {0: 7})

    with FlowRun(tmp_path, [followed(name, east, west, topic)], drivers=2) as run:
        wanted = {0: (0, 0), 1: (123, 123)}
        wait_until(lambda: offsets(west, group), until=lambda found: found == wanted)
        assert checkpoints(west, group)[1].topic == f"east.{topic}"
        assert len(run.units("CheckpointTask")) == 1

        commit(east, late, topic, {1: 500})
        commit(east, group, topic, {0: 250})
        wanted = {0: (250, 250), 1: (123, 123)}
        wait_until(lambda: offsets(west, group), until=lambda found: found == wanted)
        wait_until(lambda: offsets(west, late), until=lambda found: found == {1: (500, 500)})
        assert len(run.units("CheckpointTask")) == 2

        run.drivers()[0].kill()
        east.broker(1).kill()
        east.start()
        produce(spec(east), topic, numbered(1000, 2, first=1000))
        commit(east, group, topic, {0: 900, 1: 1000})

        def caught_up() -> bool:
            found = offsets(west, group)
            return {n: up for n, (up, _) in found.items()} == {0: 900, 1: 1000}

        wait_until(caught_up)
        wait_until(run.ready)
        # A checkpoint may be written before the records after it are copied.
        wait_until(
            lambda: compare(read(spec(east), topic), read(spec(west), f"east.{topic}")),
            until=lambda found: found.missing == 0,
        )
    for number, (upstream, downstream) in offsets(west, group).items():
        copies = positions(west, f"east.{topic}", number)
        rest = {value for at, value in copies if at >= downstream}
        wanted_rest = {value for at, value in positions(east, topic, number) if at >= upstream}
        assert wanted_rest <= rest, f"partition {number}: {upstream} -> {downstream}"


def report(*arguments: str) -> dict[str, Any]:
    """Return the JSON that ``headrace flow groups`` prints."""
    found = printed("flow", "groups", *arguments)
    assert found["problems"] == []
    return found


def groups(*arguments: str) -> dict[str, tuple[Any, ...]]:
    """Return the offsets in a report, by group."""
    return {
        one["group"]: (one["committed"], *(one["checkpoint"] or {}).values(), one["lag"])
        for one in report(*arguments)["groups"]
    }


def test_the_command_shows_where_groups_would_go_on(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("shown")
    topic = make_topic(spec(east), name, 1)
    in_transactions(east, topic, [(3, True), (2, True)])
    commit(east, f"{name}-billing", topic, {0: 4})
    with FlowRun(tmp_path, [followed(name, east, west, topic)]) as run:
        # A checkpoint of records that are not copied yet is raised at the next interval.
        exact = partial(eq, {0: (4, 3)})
        wait_until(lambda: offsets(west, f"{name}-billing"), until=exact)
        assert groups(name) == {f"{name}-billing": (4, 4, 3, 0)}
    commit(east, f"{name}-billing", topic, {0: 6})
    commit(east, f"{name}-audit", topic, {0: 0})
    assert groups("-f", str(run.file)) == {
        f"{name}-audit": (0, None),
        f"{name}-billing": (6, 4, 3, 2),
    }


def test_share_groups_and_streams_groups_are_named(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("kinds")
    topic, other = make_topic(spec(east), name, 1), make_topic(spec(east), unique("other"), 1)
    produce(spec(east), topic, numbered(10, 1))
    billing, prices, share, starts = (
        f"{name}-{one}" for one in ("billing", "prices", "share", "starts")
    )
    commit(east, billing, topic, {0: 4})
    for group, where in ((prices, topic), (f"{name}-elsewhere", other)):
        make_streams_group(east, group, where)
        commit(east, group, where, {0: 5})
    make_streams_group(east, starts, topic)
    untranslated = [(prices, "streams"), (share, "share"), (starts, "streams")]

    def said() -> str:
        units = run.units("CheckpointConnector")
        conditions = [run.describe(one["name"])["status"]["conditions"] for one in units]
        return "".join(one["message"] for found in conditions for one in found)

    flow = followed(name, east, west, topic)
    with share_consumer(east, share, topic), FlowRun(tmp_path, [flow]) as run:
        words = (
            f"follows 1 consumer groups of east; their offsets are not translated: Streams "
            f"group {prices}, share group {share}, Streams group {starts}"
        )
        wait_until(said, until=partial(eq, words))
        wait_until(lambda: offsets(west, billing), until=partial(eq, {0: (4, 4)}))
        found = report(name)
    assert [one["group"] for one in found["groups"]] == [billing]
    assert [(one["group"], one["kind"]) for one in found["notTranslated"]] == untranslated
    assert report("-f", str(run.file)) == found, "also when its members have left"


def test_the_very_next_record_of_a_topic_with_transactions(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("tx")
    topic = make_topic(spec(east), name, 1)
    in_transactions(east, topic, [(5, True), (3, False), (1, True), (7, True), (2, False)])
    committed = range(count(spec(east), topic) + 1)
    for offset in committed:
        commit(east, f"{name}-{offset}", topic, {0: offset})

    def translated() -> dict[int, int]:
        groups = {offset: offsets(west, f"{name}-{offset}") for offset in committed}
        return {offset: found[0][1] for offset, found in groups.items() if found}

    with FlowRun(tmp_path, [followed(name, east, west, topic)]) as run:
        copies = len(positions(east, topic))
        wait_until(lambda: arrived(spec(west), f"east.{topic}") == copies)
        very_next = oracle(east, west, topic)
        # Translations from before the copies existed are raised at the next interval.
        expected = {offset: very_next(offset) for offset in committed}
        wait_until(translated, until=partial(eq, expected))
        wait_until(run.ready)


@pytest.mark.long
def test_without_a_right_records_are_copied_and_the_status_says_what_is_missing(
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
    commit(east, f"{name}-billing", topic, {0: 40})
    refused = [
        make_topic(spec(west), "east.checkpoints.internal", 1, **{"cleanup.policy": "compact"}),
        make_topic(spec(west), "mm2-offset-syncs.east.internal", 1),
    ]
    admin = AdminClient({"bootstrap.servers": west.bootstrap_servers})
    rights = [only_read(topic) for topic in refused]
    add_acls(admin, *rights)

    def errors() -> dict[str, str]:
        return {
            unit["type"]: unit["lastError"]["message"]
            for unit in run.status().get("units", [])
            if unit.get("lastError")
        }

    with FlowRun(tmp_path, [followed(name, east, west, topic)]) as run:
        wait_until(lambda: arrived(spec(west), f"east.{topic}") == 100)
        syncing = "write offset syncs to topic mm2-offset-syncs.east.internal"
        found = wait_until(errors, until=lambda found: syncing in found.get("SourceTask", ""))
        assert "grant the principal permissions on this topic" in found["SourceTask"]
        wait_until(run.ready)
        syncs, checkpoints_only = rights[1], rights[0]
        remove_acls(admin, syncs)
        produce(spec(east), topic, numbered(100, 1, first=100))
        commit(east, f"{name}-billing", topic, {0: 150})
        writing = "write checkpoints to topic east.checkpoints.internal"
        wait_until(errors, until=lambda found: writing in found.get("CheckpointTask", ""))
        wait_until(
            lambda: run.condition("Ready"),
            until=lambda ready: (
                (ready.get("status"), "east.checkpoints.internal" in ready.get("message", ""))
                == ("True", True)
            ),
        )
        remove_acls(admin, checkpoints_only)
        wait_until(lambda: offsets(west, f"{name}-billing") == {0: (150, 150)})
        wait_until(errors, until=lambda found: not found)
        copied = partial(arrived, spec(west), f"east.{topic}")
        wait_until(copied, until=partial(eq, 200))


def only_read(topic: str) -> AclBinding:
    """Return an ACL that lets all users read a topic, and nothing else."""
    return AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


def test_syncs_are_on_the_source_when_the_flow_says_so(
    start_cluster: Callable[..., SandboxCluster],
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    source = start_cluster("north")
    name = unique("located")
    topic = make_topic(spec(source), name, 1)
    in_transactions(source, topic, [(3, True), (2, True)])
    commit(source, f"{name}-billing", topic, {0: 4})
    flow = followed(name, source, west, topic, offsetSyncs={"location": "Source"})
    with FlowRun(tmp_path, [flow]) as run:
        found = partial(checkpoints, west, f"{name}-billing", "north")
        wait_until(found, until=lambda now: bool(now) and now[0].downstream == 3)
        wait_until(run.ready)
    syncs = read(spec(source), "mm2-offset-syncs.west.internal")[0]
    key = struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", 0)
    values = [one.value.hex() for one in syncs if one.key == key and one.value]
    pairs = [(0, 0), (2, 2), (4, 3), (5, 4)]
    assert values == [struct.pack(">qq", *pair).hex() for pair in pairs]
    assert "mm2-offset-syncs.north.internal" not in Admin(spec(west)).topics()


def test_kafkas_own_client_reads_checkpoints_as_mirror_maker_2s(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("java")
    topic = make_topic(spec(east), name, 2)
    produce(spec(east), topic, numbered(100, 2))
    group = f"{name}-billing"
    commit(east, group, topic, {0: 17, 1: 50})
    copy = f"east.{topic}"
    with FlowRun(tmp_path, [followed(name, east, west, topic)]):
        exact = {0: (17, 17), 1: (50, 50)}
        wait_until(lambda: offsets(west, group), until=partial(eq, exact))
        with mirror_client(west) as client:
            wait_until(lambda: "east" in client.upstream_clusters())
            assert "east.checkpoints.internal" in client.checkpoint_topics()
            assert copy in client.remote_topics("east")
            own = {progress_topic("east"), "east.checkpoints.internal"}
            assert own <= Admin(spec(west)).topics().keys()
            assert own.isdisjoint(client.remote_topics())
            wanted = {(copy, 0): (17, ""), (copy, 1): (50, "")}
            assert client.translate_offsets("east", group) == wanted
            assert client.consumer_offsets("east", group) == wanted
            assert client.translate_offsets("east", f"{name}-other") == {}


def test_groups_of_a_flow_in_a_cluster(
    *,
    operator: Operator,
    resources: Resources,
    kubelet: Kubelet,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: WaitUntil,
) -> None:
    name = unique("pods")
    topic = make_topic(spec(east), name, 1)
    produce(spec(east), topic, numbered(100, 1))
    groups = [f"{name}-audit", f"{name}-billing"]
    for group in groups:
        commit(east, group, topic, {0: 40})
    more = {"heartbeats": {"enabled": False}, "drivers": {"replicas": 1}, "tasks": {"max": 1}}
    resources.apply(followed(name, east, west, topic, **more))
    for group in groups:
        wait_until(lambda group=group: offsets(west, group) == {0: (40, 40)})

    def checkpoint_tasks() -> list[dict[str, Any]]:
        units = resources.tasks(name).values()
        return [unit for unit in units if unit["spec"]["type"] == "CheckpointTask"]

    def reported() -> list[str]:
        status = checkpoint_tasks()[0]["status"]
        return [one["message"] for one in status.get("conditions", [])]

    (task,) = checkpoint_tasks()
    assert task["spec"]["groups"] == groups
    exact = "offsets of 2 groups: 2 exact"
    wait_until(reported, until=lambda found: found == [exact])
    assert checkpoint_tasks()[0]["status"]["phase"] == "Running"
    patch = '{"spec": {"checkpoints": {"enabled": false}}}'
    resources.kubectl("patch", f"rflow/{name}", "--type=merge", "-p", patch)
    wait_until(lambda: checkpoint_tasks() == [])
