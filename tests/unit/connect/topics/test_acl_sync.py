"""ACLs of copies follow their sources' ACLs, with clusters in memory."""

from collections.abc import Iterable, Iterator

import pytest
from support.fake_kafka import FakeRecord
from support.source_tasks import COPY, TOPIC, Scene

from headrace.api import TopicPartition
from headrace.connect.topics.topic_sync import AclSync, AddedAcls
from headrace.errors import Retriable
from headrace.kafka import Position
from headrace.replication import TopicAcl

TOPICS = {TOPIC}
MEMORY = "mm2-headrace-acls.east.internal"


def read(principal: str, topic: str = TOPIC, permission: str = "Allow") -> TopicAcl:
    return TopicAcl(topic, "Literal", principal, "*", "Read", permission)


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    scene.change_spec(acls={"enabled": True, "intervalSeconds": 10})
    yield scene
    scene.close()


@pytest.fixture
def sync(scene: Scene) -> Iterator[AclSync]:
    sync = AclSync(scene.context)
    yield sync
    sync.close()


def allow(scene: Scene, *acls: TopicAcl) -> None:
    scene.source.acls = [one._asdict() for one in acls]


def on_target(scene: Scene) -> set[TopicAcl]:
    return {TopicAcl(**one) for one in scene.target.acls}


def again(scene: Scene, sync: AclSync) -> None:
    scene.clock.advance(10)
    sync.poll(TOPICS)
    assert sync.problem == ""


def test_they_are_off_unless_the_spec_asks(scene: Scene, sync: AclSync) -> None:
    scene.change_spec(acls={"enabled": False})
    allow(scene, read("User:ann"))
    sync.poll(TOPICS)
    assert (scene.target.acls, MEMORY in scene.target.ids) == ([], False)


def test_they_follow_the_source_and_no_other_acl_is_touched(scene: Scene, sync: AclSync) -> None:
    own, same = read("User:own", COPY), read("User:same", COPY)
    scene.target.acls = [own._asdict(), same._asdict()]
    allow(scene, read("User:ann"), read("User:same"))
    sync.poll(TOPICS)
    assert on_target(scene) == {own, same, read("User:ann", COPY)}
    allow(scene)
    again(scene, sync)
    assert on_target(scene) == {own, same}, "what was there before is nobody's to remove"


def test_what_somebody_removes_from_the_copy_comes_back(scene: Scene, sync: AclSync) -> None:
    allow(scene, read("User:ann"))
    sync.poll(TOPICS)
    scene.target.acls = []
    again(scene, sync)
    assert on_target(scene) == {read("User:ann", COPY)}


def test_the_next_connector_removes_what_the_last_one_added(scene: Scene, sync: AclSync) -> None:
    allow(scene, read("User:ann"))
    sync.poll(TOPICS)
    allow(scene)
    other = AclSync(scene.context)
    other.poll(TOPICS)
    other.close()
    assert on_target(scene) == set()


def test_it_is_remembered_before_it_is_added(
    scene: Scene, sync: AclSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(_: object) -> None:
        raise Retriable("killed here")

    allow(scene, read("User:ann"))
    monkeypatch.setattr(scene.target, "add_acls", crash)
    sync.poll(TOPICS)
    assert sync.problem == "killed here"
    assert len(scene.target.records(MEMORY)) == 1


def test_acls_of_other_flows_topics_stay(scene: Scene, sync: AclSync) -> None:
    allow(scene, read("User:ann"), read("User:ann", "payments"))
    sync.poll({TOPIC, "payments"})
    allow(scene)
    narrow = AclSync(scene.context)
    narrow.poll(TOPICS)
    narrow.close()
    assert on_target(scene) == {read("User:ann", "east.payments")}


def test_a_new_topic_gets_its_acls_at_once(scene: Scene, sync: AclSync) -> None:
    allow(scene, read("User:ann"), read("User:ann", "payments"))
    sync.poll(TOPICS)
    sync.poll({TOPIC, "payments"})
    assert read("User:ann", "east.payments") in on_target(scene)


def test_acls_remembered_under_the_earlier_name_are_taken_over(scene: Scene) -> None:
    earlier = TopicPartition("headrace-acls.east.internal", 0)
    scene.target.create_topic(earlier.topic, 1)
    gone, kept = read("User:gone", COPY), read("User:ann", COPY)
    for acl in (gone, kept):
        scene.target.write(earlier, FakeRecord(acl.encode(), b"f", 1_000))
    scene.target.acls = [gone._asdict(), kept._asdict()]
    allow(scene, read("User:ann"))
    sync = AclSync(scene.context)
    sync.poll(TOPICS)
    assert (sync.problem, on_target(scene)) == ("", {kept})
    sync.close()
    added = AddedAcls(scene.context, MEMORY)
    assert added.read() == {kept}
    added.close()
    left = {record.key: record.value for record in scene.target.logs[earlier].entries if record}
    assert left == {gone.encode(): None, kept.encode(): None}, "it is taken over once"


def test_acls_are_recorded_again_in_a_record_that_was_created_again(
    scene: Scene, sync: AclSync
) -> None:
    allow(scene, read("User:ann"), read("User:bob"))
    sync.poll(TOPICS)
    again(scene, sync)
    scene.target.recreate_topic(MEMORY)
    scene.clock.advance(10)
    sync.poll(TOPICS)
    assert "it was deleted and created again" in sync.problem
    again(scene, sync)
    allow(scene, read("User:bob"))
    other = AclSync(scene.context)
    other.poll(TOPICS)
    other.close()
    assert on_target(scene) == {read("User:bob", COPY)}, "the record has what was added before"


def test_record_that_was_deleted_is_created_again(
    scene: Scene, sync: AclSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync.poll(TOPICS)
    scene.target.delete_topic(MEMORY)
    offsets = scene.target.offsets

    def unknown(
        partitions: Iterable[TopicPartition], position: Position
    ) -> dict[TopicPartition, int]:
        if MEMORY not in scene.target.ids:
            raise Retriable(f"could not read offsets of {MEMORY}: unknown topic")
        return offsets(partitions, position)

    monkeypatch.setattr(scene.target, "offsets", unknown)
    scene.clock.advance(10)
    sync.poll(TOPICS)
    assert "unknown topic" in sync.problem
    again(scene, sync)
    assert MEMORY in scene.target.ids
