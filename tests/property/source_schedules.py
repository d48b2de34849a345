"""Random schedules of events for a source task, on clusters in memory.

Each schedule is determined by a seed. ``python -m property.source_schedules 10000`` in ``tests``
runs 10,000 schedules, and prints the seeds of those that lose, skip or reorder a record.
"""

import logging
import random
import sys
from collections.abc import Callable, Container, Iterable
from itertools import count, takewhile

import structlog
from rich.progress import track
from support.fake_kafka import MARKER, FakeKafka, FakeLog, FakeRecord, Produced
from support.source_tasks import COPY, P0, P1, TOPIC, Scene

from headrace.api import TaskPhase
from headrace.api.partitions import TopicPartition
from headrace.kafka import KafkaError
from headrace.replication.progress import Loss, Progress, ProgressKey

PARTITIONS = (P0, P1)
DEAD = TopicPartition("dead", 0)
POISON = b"poison"
STEPS = 40
RETRIABLE = (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError._MSG_TIMED_OUT, KafkaError.UNKNOWN)


class Schedule:
    """Steps of one seed. Raises ``AssertionError`` at the first one that breaks a promise."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = count()
        self._poisonous = self._random.random() < 0.5
        """Whether there are records that the target never accepts, and a dead-letter topic."""
        self._recreates = self._random.random() < 0.3
        """Whether the source topic is deleted and created again, once."""
        self._old: dict[TopicPartition, FakeLog] = {}
        """Logs of the source before it was recreated."""
        self._on_data_loss = "Continue" if self._recreates else "Fail"
        self._scene = self._make_scene()
        """Scene of the running instance."""
        self._withheld: set[TopicPartition] = set()
        target = self._scene.target
        target.holds_back = self._withheld.__contains__
        target.create_topic(DEAD.topic, 1)
        target.refuses, target.names_refused = _refuses, self._random.random() < 0.5
        self._scene.start()

    def _make_scene(self, kafka: FakeKafka | None = None) -> Scene:
        scene = Scene(kafka=kafka)
        scene.change_spec(onDataLoss=self._on_data_loss, checkpoints={"enabled": False})
        if self._poisonous:
            scene.change_spec(onRecordError={"action": "DeadLetter", "deadLetterTopic": DEAD.topic})
        return scene

    def run(self) -> None:
        """Run all steps, then check that all records are copied and all progress is stored."""
        steps = self._steps()
        try:
            for _ in range(STEPS):
                self._random.choice(steps)()
                self._check()
            self._calm_down()
            self._refuse_for_a_minute()
            self._calm_down()
            self._lose_copies()
        finally:
            self._scene.close()

    def _steps(self) -> list[Callable[[], object]]:
        often = [self._append, self._turn, self._turn, self._commit, self._send, self._answer]
        return [
            *often * 2,
            self._answer_retriably,
            self._answer_retriably,
            self._withhold,
            self._refuse,
            self._stall,
            self._wait,
            self._withhold_progress,
            self._withhold_dead_letters,
            self._stop_a_producer,
            self._turn_target_off_or_on,
            self._lose_ownership,
            self._check_topics,
            self._check_topics,
            self._die,
            *([self._recreate_source] if self._recreates else []),
        ]

    # Events.

    def _append(self) -> None:
        at = self._random.choice(PARTITIONS)
        if self._random.random() < 0.1:
            self._scene.source.write(at, MARKER)
        for _ in range(self._random.randint(1, 3)):
            poison = self._poisonous and self._random.random() < 0.15
            value = (POISON if poison else b"") + b"%d" % next(self._numbers)
            self._scene.source.append(TOPIC, value, partition=at.partition)

    def _turn(self) -> None:
        self._scene.run_once()

    def _commit(self) -> None:
        self._scene.commit()

    def _withhold(self) -> None:
        self._withheld ^= {TopicPartition(COPY, self._random.randrange(2))}

    def _withhold_progress(self) -> None:
        topic = self._scene.context.progress.topic
        self._withheld ^= {TopicPartition(topic, number) for number in range(8)}

    def _withhold_dead_letters(self) -> None:
        self._withheld ^= {DEAD}

    def _send(self) -> None:
        """Send the oldest queued records of one partition."""
        queued = [one for one in self._queue(self._random.randrange(2)) if one.queued]
        for produced in queued[: self._random.randint(0, len(queued))]:
            produced.in_flight = True

    def _answer(self) -> None:
        """Append the oldest records of one partition, and report some of them in any order."""
        queue = self._queue(self._random.randrange(2))
        sent = list(takewhile(lambda one: not one.queued, queue))
        appended = sent[: self._random.randint(0, len(sent))]
        bad = next((n for n, one in enumerate(appended) if _refuses(one.at, one.record)), None)
        first = len(appended) if bad is None else self._random.randint(0, bad)
        batch, appended = appended[first:], appended[:first]
        for produced in appended:
            self._scene.producer.append(produced)
        if batch:
            self._scene.producer.answer(batch)
        for produced in self._random.sample(appended, self._random.randint(0, len(appended))):
            self._scene.producer.acknowledge(produced)

    def _answer_retriably(self) -> None:
        """Return a record to the queue, as the client does after a retriable error.

        The record stays before later ones, which may be in flight.
        """
        for produced in self._queue(self._random.randrange(2)):
            if produced.in_flight and produced.offset is None:
                produced.in_flight = False
                return

    def _refuse(self) -> None:
        """Reject the oldest record that is not appended, with its batch."""
        queue = self._queue(self._random.randrange(2))
        batch = [produced for produced in queue if produced.offset is None]
        if batch := batch[: self._random.randint(1, 3)]:
            code = self._random.choice(RETRIABLE)
            self._scene.producer.refuse_batch(dict.fromkeys(batch, code))

    def _stop_a_producer(self) -> None:
        lanes = [one for one in self._scene.target.producers if one.gapless]
        if lanes:
            self._random.choice(lanes).stop(KafkaError._FATAL)

    def _stall(self) -> None:
        """Stall the task.

        Its lane drops its queue at once, because another driver may own the partitions by then.
        """
        self._scene.clock.advance(1.5)
        self._scene.context.stall_detector.beat()
        if self._scene.phase is TaskPhase.RUNNING:
            self._scene.guard(self._scene.task.process)
            queued = [one for at in PARTITIONS for one in self._queue(at.partition) if one.queued]
            assert not queued, "records are still queued after a stall"
        self._scene.run_once()

    def _wait(self) -> None:
        for _ in range(3):
            self._scene.clock.advance(0.9)
            self._scene.run_once()

    def _turn_target_off_or_on(self) -> None:
        self._scene.target.away = not self._scene.target.away

    def _lose_ownership(self) -> None:
        """Let another driver claim a partition and end. The task notices it later."""
        known = self._scene.context.progress.was_read
        if known and not self._withheld and not self._scene.target.away:
            self._scene.take_away(self._random.choice(PARTITIONS))

    def _check_topics(self) -> None:
        self._scene.observe()
        self._scene.check_pool.run()

    def _recreate_source(self) -> None:
        if not self._old:
            self._old = {at: self._scene.log(at) for at in PARTITIONS}
            self._scene.source.recreate_topic(TOPIC)

    def _die(self) -> None:
        """Kill the instance with all unsent records of its producers. Another instance resumes."""
        self._scene.close()
        for producer in self._scene.target.producers:
            producer.queue.clear()
        self._scene = self._make_scene(self._scene.kafka)
        self._scene.task.activate()

    # Checks.

    def _check(self) -> None:
        assert self._scene.phase is not TaskPhase.FAILED, self._scene.error
        for at in PARTITIONS:
            expected, poison = self._expected(at)
            arrived = _in_order_of_arrival(self._scene.copies(at.partition))
            # A topic that is created again is first read from its middle.
            if not (self._overtaken(at) or self._old):
                assert arrived == expected[: len(arrived)], f"{at}: {arrived} are not in order"
            dead = self._dead_letters(poison)
            if not self._old:
                assert dead == poison[: len(dead)], f"{at}: {dead} are not in order"
            there, stored = {*arrived, *dead}, self._stored(at)
            if stored and stored.source_topic_id == self._scene.source.ids[TOPIC]:
                below = {r.value for r in self._scene.log(at).entries[: stored.source_offset] if r}
                assert below <= there, f"{at}: stored at {stored.source_offset}, has {there}"
                self._check_loss(at, stored.loss)
        for record in self._scene.target.logs[DEAD].entries:
            assert record
            assert _is_poison(record.value), f"{record.value!r} is dead-lettered"

    def _check_loss(self, at: TopicPartition, loss: Loss | None) -> None:
        """Check that the reported range covers the old topic's records that were not copied.

        The range is complete as far as it can be determined, and contains no offset that the old
        topic never had.
        """
        if not self._old:
            return
        assert loss
        values = {*self._scene.copies(at.partition), *self._scene.target.records(DEAD.topic)}
        old = enumerate(self._old[at].entries)
        lost = [offset for offset, one in old if one and one.value not in values]
        assert all(loss.first <= offset for offset in lost), f"{at}: {lost} are lost, not {loss}"
        assert loss.last < self._old[at].end, f"{at} ended at {self._old[at].end}: {loss}"

    def _expected(self, at: TopicPartition) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return the values to copy and the values to dead-letter."""
        values = self._scene.source.records(TOPIC, at.partition)
        return [v for v in values if not _is_poison(v)], [v for v in values if _is_poison(v)]

    def _dead_letters(self, of: Container[bytes | None]) -> list[bytes | None]:
        values = self._scene.target.records(DEAD.topic)
        return [value for value in _in_order_of_arrival(values) if value in of]

    def _calm_down(self) -> None:
        self._withheld.clear()
        self._scene.target.away = False
        for _ in range(20):
            if self._scene.phase in (TaskPhase.CLOSED, TaskPhase.FAILED):
                self._die()
            self._scene.recover()
            self._scene.confirm()
        self._check()
        for at in PARTITIONS:
            expected, poison = self._expected(at)
            copies = self._scene.copies(at.partition)
            arrived = _in_order_of_arrival(copies)
            dead = self._dead_letters(poison)
            if self._old:  # it is read from its beginning once that was noticed
                copies = [value for value in copies if value in expected]
                arrived = _in_order_of_arrival(reversed(copies))[::-1]
                dead.sort(key=poison.index)
            if self._overtaken(at):
                arrived.sort(key=expected.index)
            assert dead == poison
            assert arrived == expected, f"{at}: {arrived} of {expected}; {self._scene.error}"
            assert self._offset(at) == self._scene.log(at).end
        assert not self._scene.error, self._scene.error

    def _refuse_for_a_minute(self) -> None:
        """Reject records for a minute.

        Each attempt uses a new producer, and attempts become rare while nothing is appended.
        """
        target, made = self._scene.target, len(self._scene.target.producers)
        refuses, code = target.refuses, KafkaError.NOT_ENOUGH_REPLICAS
        target.refuses = lambda at, record: code if at.topic == COPY else refuses(at, record)
        self._scene.source.append(TOPIC, b"%d" % next(self._numbers))
        for _ in range(20):
            self._wait()
        target.refuses = refuses
        attempts = len(target.producers) - made
        assert attempts < 14, f"{attempts} attempts in a minute"

    def _overtaken(self, at: TopicPartition) -> bool:
        """Return whether librdkafka may have reordered records, see ``FakeCluster.overtaken``."""
        return TopicPartition(COPY, at.partition) in self._scene.target.overtaken

    def _lose_copies(self) -> None:
        """Truncate acknowledged copies of the target, which no instance accepts afterwards."""
        at = TopicPartition(COPY, self._random.randrange(2))
        self._on_data_loss = "Fail"
        self._scene.change_spec(onDataLoss=self._on_data_loss)
        log, source = self._scene.target.logs[at], P0._replace(partition=at.partition)
        stored = self._scene.stored(source)
        if not stored or not stored.target_offset:
            return
        log.truncate(self._random.randrange(stored.target_offset))
        for _ in range(log.end + self._random.randint(1, 9)):
            self._scene.source.append(TOPIC, b"%d" % next(self._numbers), partition=at.partition)
        before = self._offset(source)
        for _ in range(3):
            self._scene.recover()
            self._scene.commit()
            assert self._scene.stops(source), f"{at} lost copies"
            assert "missing from the target" in self._scene.error
            assert self._offset(source) == before, "progress went on behind a loss"
            self._die()

    def _offset(self, at: TopicPartition) -> int:
        stored = self._stored(at)
        return stored.source_offset if stored else 0

    def _stored(self, at: TopicPartition) -> Progress | None:
        """Return the stored progress according to the progress topic's log alone."""
        stored: Progress | None = None
        for where, log in self._scene.target.logs.items():
            if where.topic != self._scene.context.progress.topic:
                continue
            for entry in log.entries:
                assert entry is not None
                assert entry.key
                assert entry.value
                key, progress = ProgressKey.decode(entry.key), Progress.decode(entry.value)
                if (key.topic, key.partition) == at and (
                    stored is None or progress.epoch >= stored.epoch
                ):
                    stored = progress
        return stored

    def _queue(self, partition: int) -> list[Produced]:
        producers = self._scene.target.producers
        if not any("partitioner" not in producer.settings for producer in producers):
            return []
        return [one for one in self._scene.producer.queue if one.at == (COPY, partition)]


def _is_poison(value: bytes | None) -> bool:
    return (value or b"").startswith(POISON)


def _refuses(at: TopicPartition, record: FakeRecord) -> int:
    """Return the error of the copies' brokers for a record that no lane may append, or 0."""
    poison = at.topic == COPY and _is_poison(record.value)
    return KafkaError.INVALID_RECORD if poison else 0


def _in_order_of_arrival(values: Iterable[bytes | None]) -> list[bytes | None]:
    """Return the values in the order of their first arrival."""
    return list(dict.fromkeys(values))


def main() -> None:
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    first, number = random.randrange(10**9), int(sys.argv[1])
    failed = {}
    for seed in track(range(first, first + number), f"schedules from seed {first} on"):
        try:
            Schedule(seed).run()
        except AssertionError as error:
            failed[seed] = str(error)
    for seed, why in failed.items():
        print(f"seed {seed}: {why}")
    print(f"{number} schedules from seed {first} on: {len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
