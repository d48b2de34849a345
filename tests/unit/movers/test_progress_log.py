"""What the progress log keeps; its cluster is in memory."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.fake_kafka import FakeKafka, FakeRecord

from headrace.api import ClusterAccess, ClusterSpec
from headrace.api.partitions import TopicPartition
from headrace.errors import Fatal, Retriable
from headrace.kafka import KafkaError
from headrace.movers import ProgressLog
from headrace.replication.progress import Progress, ProgressKey, Writer

KEY = ProgressKey("id-of-east", "orders", 0, "east.orders")
PROGRESS = Progress("s", 7, 0, "t", 5, 3, 0, "f-source-task-0 on me/1")


class Scene:
    def __init__(self) -> None:
        self.kafka = FakeKafka("west")
        self.cluster = self.kafka.clusters["west"]
        self.log = self.another()

    def another(self) -> ProgressLog:
        west = ClusterAccess(ClusterSpec(alias="west", bootstrap_servers="127.0.0.1:1"))
        log = ProgressLog(west, "east", self.kafka.clients(), self.kafka.clock)
        log.start()
        return log

    def read(self) -> Progress | None:
        self.log.read_to_end()
        return self.log.get(KEY)


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.log.close()


def test_another_driver_reads_what_was_stored(scene: Scene) -> None:
    scene.log.write({KEY: PROGRESS})
    another = scene.another()
    another.read_to_end()
    assert (another.get(KEY), another.stored("id-of-east")) == (PROGRESS, {KEY: PROGRESS})
    another.close()


def test_a_topic_that_exists_needs_no_right_to_create_it(scene: Scene) -> None:
    scene.cluster.forbidden.add(scene.log.topic)
    scene.another().close()


def test_the_higher_epoch_wins_whatever_is_written_later(scene: Scene) -> None:
    scene.log.write({KEY: replace(PROGRESS, epoch=4, source_offset=9)})
    scene.log.write({KEY: replace(PROGRESS, epoch=3, source_offset=12)})  # a frozen owner thawed
    progress = scene.read()
    assert progress is not None
    assert (progress.epoch, progress.source_offset) == (4, 9)


def test_writers_are_known_until_the_next_owner_has_fenced_them(scene: Scene) -> None:
    first, frozen, last = (Writer(name, id_, 0) for id_, name in enumerate("abc"))
    scene.log.write({KEY: replace(PROGRESS, writer=first)})
    # Its claim is behind what the last owner has read, and before the claim of that one.
    scene.log.write({KEY: replace(PROGRESS, epoch=4, owner="b", writer=frozen, fencing=(first,))})
    claim = replace(PROGRESS, epoch=5, owner="c", writer=last, fencing=(first,))
    scene.log.write({KEY: claim})
    scene.read()
    assert scene.log.writers(KEY) == {first, frozen, last}

    scene.log.write({KEY: replace(claim, fencing=(first, frozen))})
    scene.log.write({KEY: replace(claim, fencing=(), source_offset=8)})
    scene.read()
    assert scene.log.writers(KEY) == {last}


def test_a_record_of_the_first_headrace_is_read_and_names_no_writer(scene: Scene) -> None:
    old = PROGRESS.encode().decode()
    for field in ("writer", "unfenced", "fencing"):
        assert f'"{field}":' in old
    early = (
        b"{"
        + b",".join(
            part
            for part in PROGRESS.encode()[1:-1].split(b",")
            if not part.startswith((b'"writer"', b'"unfenced"', b'"fencing"'))
        )
        + b"}"
    )
    assert Progress.decode(early) == PROGRESS


def test_purged_progress_is_forgotten_and_other_stays(scene: Scene) -> None:
    other = replace(KEY, topic="payments")
    scene.log.write({KEY: PROGRESS, other: PROGRESS})
    scene.log.read_to_end()
    scene.log.purge([KEY])
    assert scene.read() is None
    assert scene.log.stored("id-of-east") == {other: PROGRESS}
    assert scene.log.stored("id-of-another") == {}


def test_a_record_of_another_program_is_left_out(scene: Scene) -> None:
    scene.log.write({KEY: PROGRESS})
    for number in range(8):
        at = TopicPartition(scene.log.topic, number)
        scene.cluster.write(at, FakeRecord(b"not ours", b"{}", 0))
    assert scene.read() == PROGRESS


def write_of_a_later_version(scene: Scene) -> None:
    at = TopicPartition(scene.log.topic, 0)
    later = PROGRESS.encode().replace(b'"version":1', b'"version":9')
    scene.cluster.write(at, FakeRecord(KEY.encode(), later, 0))


def test_progress_of_a_later_version_is_an_error_and_not_absent(scene: Scene) -> None:
    write_of_a_later_version(scene)
    with pytest.raises(Fatal, match=r"orders-0, record 0 of .* version 9, .*`headrace reset`"):
        scene.read()


@pytest.mark.parametrize("value", [PROGRESS.encode(), None])
def test_unreadable_progress_ends_with_the_next_record_of_its_key(
    scene: Scene, value: bytes | None
) -> None:
    write_of_a_later_version(scene)
    scene.cluster.write(TopicPartition(scene.log.topic, 0), FakeRecord(KEY.encode(), value, 0))
    assert scene.read() == (PROGRESS if value else None)


@pytest.mark.parametrize(
    ("partitions", "config", "message"),
    [
        (8, {"cleanup.policy": "delete"}, "cleanup.policy=delete: .* set it to compact"),
        (1, {"cleanup.policy": "compact"}, "has 1 partitions, and must have 8"),
    ],
)
def test_a_progress_topic_of_another_shape_is_refused(
    partitions: int, config: dict[str, str], message: str
) -> None:
    kafka = FakeKafka("west")
    kafka.clusters["west"].create_topic(
        "headrace-progress.east.internal", partitions, config=config
    )
    west = ClusterAccess(ClusterSpec(alias="west", bootstrap_servers="127.0.0.1:1"))
    with pytest.raises(Fatal, match=message):
        ProgressLog(west, "east", kafka.clients(), kafka.clock).start()


def test_storing_is_done_when_all_of_it_is_acknowledged(scene: Scene) -> None:
    scene.cluster.holds_back = lambda at: True
    storing = scene.log.send({KEY: PROGRESS, replace(KEY, partition=1): PROGRESS})
    first, second = scene.cluster.producers[0].queue
    assert not storing.done()
    scene.cluster.producers[0].acknowledge(second)
    assert not storing.done()
    scene.cluster.producers[0].acknowledge(first)
    assert storing.done()


def test_storing_raises_what_the_target_refused(scene: Scene) -> None:
    scene.cluster.holds_back = lambda at: True
    storing = scene.log.send({KEY: PROGRESS})
    writer = scene.cluster.producers[0]
    writer.refuse(writer.queue[0], KafkaError.NOT_ENOUGH_REPLICAS)
    with pytest.raises(Retriable, match="could not write progress to"):
        storing.done()


def test_a_write_waits_so_long_for_an_answer_and_no_longer(scene: Scene) -> None:
    scene.cluster.holds_back = lambda at: True
    began_s = scene.kafka.clock.monotonic()
    with pytest.raises(Retriable, match="no answer within 3 s"):
        scene.log.write({KEY: PROGRESS}, timeout_s=3)
    assert 3 < scene.kafka.clock.monotonic() - began_s < 3.2
