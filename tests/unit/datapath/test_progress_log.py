"""Content of the progress log. Its cluster is in memory."""

import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any, cast

import pytest
from support.fake_kafka import FakeConsumer, FakeKafka, FakeRecord

from headrace.api import ClusterAccess, ClusterSpec, earlier_name
from headrace.api.partitions import TopicPartition
from headrace.datapath import ProgressLog, ReadRecord, RecordConsumer
from headrace.errors import Fatal, Retriable
from headrace.kafka import KafkaError, Throttle, Throttled
from headrace.replication.progress import OwnerProducer, Progress, ProgressKey
from headrace.replication.reconcile import Decided

KEY = ProgressKey("id-of-east", "orders", 0, "east.orders")
WEST = ClusterAccess(ClusterSpec(alias="west", bootstrap_servers="127.0.0.1:1"))
PROGRESS = Progress("s", 7, 0, "t", 5, 3, "f-source-task-0 on me/1")


class Scene:
    def __init__(self) -> None:
        self.kafka = FakeKafka("west")
        self.cluster = self.kafka.clusters["west"]
        self.decided: dict[int, bool] = {}
        """Whether the progress at these offsets was committed, for transactions that have ended."""
        self.log = self.another()

    def another(
        self, consumer: Callable[..., RecordConsumer] | None = None, **more: Any
    ) -> ProgressLog:
        clients = replace(self.kafka.clients(), transactions_decided=self._decided)
        if consumer is not None:
            clients = replace(clients, consumer=consumer, **more)
        log = ProgressLog(WEST, "east", clients, self.kafka.clock)
        log.start()
        return log

    def _decided(self, _: ClusterAccess, at: TopicPartition, offsets: range) -> list[Decided]:
        return [
            Decided(range(offset, offset + 1), committed)
            for offset, committed in self.decided.items()
            if offset in offsets
        ]

    def write(self, *entries: Progress) -> None:
        for progress in entries:
            self.log.write({KEY: progress})

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


def test_a_client_that_brings_nothing_is_replaced(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = scene.kafka.clients().consumer(WEST)
    monkeypatch.setattr(deaf, "poll", lambda _: time.sleep(0.01))
    consumers = [deaf]

    def make(*asked: Any) -> RecordConsumer:
        return consumers.pop() if consumers else scene.kafka.clients().consumer(*asked)

    log = scene.another(make)
    scene.write(PROGRESS)
    with pytest.raises(Retriable, match="to its end within"):
        log.read_to_end(0.05)
    log.read_to_end()
    assert log.get(KEY) == PROGRESS
    log.close()


class ThrottledConsumers:
    """Consumers that deliver nothing before ``released``."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Throttle] = []
        self.released = threading.Event()
        self._scene, self._monkeypatch = scene, monkeypatch

    def make(self, _: object, __: object, throttle: Throttle) -> RecordConsumer:
        consumer = self._scene.kafka.clients().consumer(WEST)
        poll = consumer.poll

        def delayed(seconds: float) -> ReadRecord | None:
            return poll(seconds) if self.released.wait(0.01) else None

        self._monkeypatch.setattr(consumer, "poll", delayed)
        self.made.append(throttle)
        return consumer

    def throttle(self) -> bool:
        """Announce a delay, as a broker does; return False if there is no consumer yet."""
        for throttle in self.made:
            throttle.announce(30.0)
        return bool(self.made)


def test_throttled_client_is_kept_and_its_progress_is_said(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]
) -> None:
    consumers = ThrottledConsumers(scene, monkeypatch)
    log = scene.another(consumers.make)
    scene.write(PROGRESS)
    wait_until(consumers.throttle)
    with pytest.raises(Throttled, match=r"yet, 0 of 1 offsets are read: a quota of the brokers"):
        log.read_to_end(0.05)
    consumers.released.set()
    log.read_to_end()
    assert log.get(KEY) == PROGRESS
    assert len(consumers.made) == 1
    log.close()


def test_a_command_waits_for_a_throttled_client(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]
) -> None:
    consumers = ThrottledConsumers(scene, monkeypatch)
    said: list[Throttled] = []

    def report(error: Throttled) -> None:
        said.append(error)
        if len(said) == 2:
            consumers.released.set()

    log = scene.another(consumers.make, on_throttled=report)
    scene.write(PROGRESS)
    wait_until(consumers.throttle)
    log.read_to_end(0.05)
    assert log.get(KEY) == PROGRESS
    assert len(said) >= 2
    log.close()


def test_the_higher_epoch_wins_whatever_is_written_later(scene: Scene) -> None:
    scene.log.write({KEY: replace(PROGRESS, epoch=4, source_offset=9)})
    scene.log.write({KEY: replace(PROGRESS, epoch=3, source_offset=12)})  # a frozen owner thawed
    progress = scene.read()
    assert progress is not None
    assert (progress.epoch, progress.source_offset) == (4, 9)


FIRST, SECOND, THIRD = (replace(PROGRESS, source_offset=offset) for offset in (10, 20, 30))


def test_progress_of_a_transaction_counts_once_it_is_committed(scene: Scene) -> None:
    scene.write(PROGRESS, FIRST.of_transaction(), SECOND.of_transaction())
    assert scene.read() == PROGRESS
    scene.decided = {1: True}
    assert scene.read() == FIRST.of_transaction()
    scene.decided |= {2: False}
    assert scene.read() == FIRST.of_transaction()
    scene.write(THIRD.of_transaction())
    scene.decided |= {3: True}
    assert scene.read() == THIRD.of_transaction()


def test_what_is_committed_late_is_not_taken_for_later(scene: Scene) -> None:
    claim = replace(PROGRESS, epoch=4, owner="the next one")
    scene.write(FIRST.of_transaction(), claim)
    assert scene.read() == claim
    scene.decided = {0: True}
    assert scene.read() == claim
    assert not scene.log.overtaken(KEY)


def test_a_claim_made_of_what_was_committed_counts_at_once(scene: Scene) -> None:
    """The claim of a fail-over, for example, is written outside a transaction and has no marker."""
    scene.write(FIRST.of_transaction())
    scene.decided = {0: True}
    known = scene.read()
    assert known is not None
    claim = replace(known.of_no_transaction(), epoch=4, owner="a fail-over")
    scene.write(claim)
    assert scene.read() == claim


def test_of_one_owner_what_it_wrote_last_counts(scene: Scene) -> None:
    scene.write(FIRST.of_transaction(), SECOND)
    assert scene.read() == SECOND
    scene.decided = {0: True}
    assert scene.read() == SECOND


def test_what_is_committed_late_does_not_come_back_after_a_purge(scene: Scene) -> None:
    scene.write(FIRST.of_transaction())
    scene.log.purge([KEY])
    scene.decided = {0: True}
    assert scene.read() is None


def test_an_open_transaction_shows_that_its_owner_lives(scene: Scene) -> None:
    scene.write(PROGRESS)
    scene.read()
    scene.kafka.clock.advance(60)
    scene.write(FIRST.of_transaction())
    assert scene.read() == PROGRESS
    assert scene.log.stored_at(PROGRESS.owner) == scene.kafka.clock.monotonic()


def partition_of(scene: Scene, key: ProgressKey) -> TopicPartition:
    return scene.cluster.partition_of(scene.log.topic, key.encode())


def truncate(scene: Scene, offset: int) -> None:
    """Elect a leader of the key's partition without its records from an offset on."""
    with scene.cluster.changed:
        scene.cluster.logs[partition_of(scene, KEY)].truncate(offset)


def test_claim_is_read_after_progress_was_truncated(scene: Scene) -> None:
    scene.write(FIRST, SECOND, THIRD)
    assert scene.read() == THIRD
    truncate(scene, 1)
    claim = replace(FIRST, epoch=4, owner="the next one")
    scene.write(claim)
    assert scene.read() == claim


def test_claim_is_read_though_the_truncated_topic_is_longer_again(
    scene: Scene, wait_until: Callable[..., object]
) -> None:
    """Other tasks store progress in the same partition all the time."""
    consumers: list[FakeConsumer] = []

    def make(*asked: Any) -> RecordConsumer:
        made = scene.kafka.clients().consumer(*asked)
        consumers.append(cast("FakeConsumer", made))
        return made

    scene.log.close()
    scene.log = scene.another(make)
    scene.write(FIRST, SECOND, THIRD)
    assert scene.read() == THIRD
    truncate(scene, 1)
    at = partition_of(scene, KEY)
    wait_until(lambda: consumers[-1].positions.get(at, 0) <= 1)  # the client has noticed it
    claim = replace(FIRST, epoch=4, owner="the next one")
    scene.write(claim)
    names = (replace(KEY, topic=f"topic-{number}") for number in count())
    others = (key for key in names if partition_of(scene, key) == at)
    scene.log.write(dict.fromkeys(islice(others, 3), PROGRESS))
    assert scene.read() == claim


def test_committed_progress_counts_after_later_progress_was_truncated(scene: Scene) -> None:
    scene.write(FIRST, SECOND, THIRD)
    assert scene.read() == THIRD
    truncate(scene, 1)
    scene.write(SECOND.of_transaction())
    scene.decided = {1: True}
    assert scene.read() == SECOND.of_transaction()


def test_progress_that_the_topic_lost_is_kept_in_memory(scene: Scene) -> None:
    scene.write(PROGRESS)
    assert scene.read() == PROGRESS
    truncate(scene, 0)
    assert scene.read() == PROGRESS


def test_transactions_are_decided_though_nobody_asks(
    scene: Scene, wait_until: Callable[..., object]
) -> None:
    scene.write(FIRST.of_transaction())
    scene.read()
    scene.decided = {0: True}
    scene.kafka.clock.advance(60)
    wait_until(lambda: scene.log.get(KEY) == FIRST.of_transaction())


def test_progress_of_a_transaction_is_unreadable_to_an_older_headrace() -> None:
    assert b'"version":2' in PROGRESS.of_transaction().encode()
    assert b'"version":1' in PROGRESS.encode()


def test_writers_are_known_until_the_next_owner_has_fenced_them(scene: Scene) -> None:
    first, frozen, last = (OwnerProducer(name, id_, 0) for id_, name in enumerate("abc"))
    scene.log.write({KEY: replace(PROGRESS, writer=first)})
    # Its claim follows the last owner's reads, and precedes that owner's claim.
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
    with pytest.raises(Fatal, match=r"orders-0, record 0 of .* version 9, .*`headrace flow reset`"):
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
        "mm2-headrace-progress.east.internal", partitions, config=config
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


EARLIER = "headrace-progress.east.internal"
ANOTHER = replace(KEY, partition=1)


class TakeOver(Scene):
    """Cluster with progress that an earlier version has stored, and may still store."""

    def __init__(self) -> None:
        self.kafka = FakeKafka("west")
        self.cluster = self.kafka.clusters["west"]
        self.decided = {}
        self.cluster.create_topic(EARLIER, 8, config={"cleanup.policy": "compact"})
        self.store_earlier(PROGRESS)
        self.log = self.another()

    def store_earlier(self, progress: Progress | None, key: ProgressKey = KEY) -> None:
        at = TopicPartition(EARLIER, self.kafka_partition(key))
        value = None if progress is None else progress.encode()
        self.cluster.write(at, FakeRecord(key.encode(), value, 1_000))

    def kafka_partition(self, key: ProgressKey) -> int:
        return zlib.crc32(key.encode()) % 8  # as the producers of this cluster do


@pytest.fixture
def take_over() -> Iterator[TakeOver]:
    scene = TakeOver()
    yield scene
    scene.log.close()


def test_progress_under_the_earlier_name_counts_until_it_is_claimed(take_over: TakeOver) -> None:
    log = take_over.log
    assert earlier_name(log.topic) == EARLIER
    assert take_over.read() == PROGRESS
    assert log.entries() == log.stored("id-of-east") == {KEY: PROGRESS}
    assert (log.stored_ms(KEY), log.stored_at(PROGRESS.owner) > 0) == (1_000, True)
    claim = replace(PROGRESS, epoch=4, owner="the next one")
    take_over.write(claim)
    take_over.store_earlier(replace(PROGRESS, source_offset=9))  # a driver that is late
    assert (take_over.read(), log.entries()) == (claim, {KEY: claim})


def test_a_driver_of_the_earlier_version_is_followed_while_it_copies(take_over: TakeOver) -> None:
    assert take_over.read() == PROGRESS
    take_over.store_earlier(SECOND)
    assert take_over.read() == SECOND


def test_writers_of_the_earlier_version_are_fenced_until_the_claim(take_over: TakeOver) -> None:
    writer, own = OwnerProducer("theirs", 1, 2), OwnerProducer("ours", 3, 0)
    take_over.store_earlier(replace(PROGRESS, writer=writer))
    take_over.read()
    assert take_over.log.writers(KEY) == {writer}
    take_over.write(replace(PROGRESS, epoch=4, owner="the next one", writer=own))
    take_over.read()
    assert take_over.log.writers(KEY) == {own}


def test_transactions_of_the_earlier_version_count_once_committed(take_over: TakeOver) -> None:
    take_over.store_earlier(SECOND.of_transaction())
    assert take_over.read() == PROGRESS
    take_over.decided = {1: True}
    assert take_over.read() == SECOND.of_transaction()


def test_purged_progress_does_not_come_back_from_the_earlier_topic(take_over: TakeOver) -> None:
    take_over.read()
    take_over.log.purge([KEY])
    another = take_over.another()
    another.read_to_end()
    assert (another.get(KEY), another.entries()) == (None, {})
    another.close()


def test_unreadable_earlier_progress_is_not_taken_for_none(take_over: TakeOver) -> None:
    at = TopicPartition(EARLIER, take_over.kafka_partition(ANOTHER))
    take_over.cluster.write(at, FakeRecord(ANOTHER.encode(), b"{}", 1_000))
    take_over.log.read_to_end()
    with pytest.raises(Fatal, match=f"of {EARLIER}"):
        take_over.log.get(ANOTHER)
    assert take_over.log.entries() == {KEY: PROGRESS}


def test_the_earlier_topic_may_be_deleted_while_drivers_run(take_over: TakeOver) -> None:
    take_over.write(FIRST)
    take_over.read()
    del take_over.cluster.ids[EARLIER]
    take_over.cluster.silent = {TopicPartition(EARLIER, number) for number in range(8)}
    assert take_over.read() == FIRST
    assert take_over.read() == FIRST, "it is not asked again"


def test_progress_exists_under_either_name(take_over: TakeOver) -> None:
    fresh = FakeKafka("west")
    log = ProgressLog(WEST, "east", fresh.clients(), fresh.clock)
    assert not log.exists()
    fresh.clusters["west"].create_topic(EARLIER, 8)
    assert log.exists()
    assert take_over.log.exists()
