"""Faults that work with every mirror: the load gets new topics or partitions."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing

from headrace.api import ChaosAction, ChaosStep, Partitioning, TopicPartition
from headrace.chaos import Injection
from headrace.errors import InvalidSpec
from headrace.kafka import Admin, Position, assign, clients, journal, make_consumer
from headrace.mirror_test import CreatedTopic, MirrorTestRun, documents

_ANSWER_S = 1.0
"""Time-out of a request to the target, in seconds. Nothing else is observed during a request."""
_READ_S = 2.0
"""Time-out for reading the ends of partitions, in seconds. A new consumer needs up to a second."""
_TAIL = 100
"""Number of offsets that are read at the end of a partition. It is enough for a message between
transaction markers."""


class RecoveryProbe:
    """Checks whether a mirror has recovered from a fault.

    A mirror has recovered when each partition of the target has a message that was sent after the
    fault, because earlier messages are copied first.
    """

    def __init__(self, run: MirrorTestRun) -> None:
        self._first, self._cluster = tuple(run.first_topics.values()), run.target
        self._target = Admin(run.target, _ANSWER_S)

    def since(self, time_ms: int) -> Callable[[], bool]:
        """Return a check of the load's first topics.

        The check returns True if each partition has a message with a timestamp of at least
        ``time_ms``.
        """
        return self.in_topics(dict.fromkeys(self._first, 1), time_ms)

    def in_topics(self, topics: Mapping[str, int], time_ms: int) -> Callable[[], bool]:
        """Return a check of ``topics``, the required number of partitions of each target topic.

        The check returns True if each partition has a message with a timestamp of at least
        ``time_ms``.
        """

        def arrived() -> bool:
            there = self._target.topics()
            if any(there.get(name, 0) < count for name, count in topics.items()):
                return False
            partitions = [
                TopicPartition(name, number) for name in topics for number in range(there[name])
            ]
            firsts = self._target.offsets_at(partitions, time_ms)
            return min(firsts.values()) >= 0 and self._have_messages(firsts, time_ms)

        return arrived

    def _have_messages(self, firsts: Mapping[TopicPartition, int], time_ms: int) -> bool:
        """Return True if the end of each partition has a committed message since ``time_ms``.

        ``firsts`` are the first offsets with this time. They may be offsets of transaction markers,
        which have the time of their commit and follow older messages.
        """
        ends = self._target.offsets(firsts, Position.LAST_STABLE)
        if any(ends[at] <= first for at, first in firsts.items()):
            return False
        missing, unread, deadline_s = set(firsts), set(firsts), time.monotonic() + _READ_S
        with closing(make_consumer(self._cluster)) as consumer:
            assign(consumer, [(at, max(first, ends[at] - _TAIL)) for at, first in firsts.items()])
            while missing & unread and time.monotonic() < deadline_s:
                found, ended = clients.poll_member(consumer)
                unread -= ended
                missing -= {
                    TopicPartition(one.topic() or "", one.partition() or 0)
                    for one in found
                    if one.timestamp()[1] >= time_ms
                }
        return not missing


class LoadFaults:
    """Adds topics and partitions on the source, and informs the producers in the journal."""

    def __init__(self, run: MirrorTestRun) -> None:
        self._run = run
        self._source, self._arrivals = Admin(run.source), RecoveryProbe(run)
        self._names = list(run.added_topics)
        """Names of the topics that can still be added."""
        self._changed: dict[str, int] = {}
        """Number of partitions of each topic that was added or changed."""

    def inject(self, step: ChaosStep) -> Injection:
        """Add a topic or partitions.

        The mirror has recovered when each partition of the target, including new ones, has a
        message that was sent afterwards.
        """
        at_ms = time.time_ns() // 1_000_000
        adds = step.action is ChaosAction.ADD_TOPIC
        changed = self._add_topic() if adds else self._add_partitions(step.partitions or 0)
        self._changed |= changed
        journal.write(
            self._run.source, self._run.name, documents.TOPICS_KEY, json.dumps(self._changed)
        )
        alike = self._run.test.spec.partitioning is Partitioning.PRESERVED
        wanted = {self._run.topics[name]: count if alike else 1 for name, count in changed.items()}
        return Injection(at_ms, self._arrivals.in_topics(wanted, at_ms), driver=", ".join(changed))

    def _add_topic(self) -> dict[str, int]:
        name, partitions = self._names.pop(0), self._run.test.spec.load.partitions
        if not self._source.create_topic(name, partitions):
            raise InvalidSpec(f"topic {name} is on {self._source.name} already")
        self._record_created(name)
        return {name: partitions}

    def _record_created(self, name: str) -> None:
        """Write the added topic into the journal, so that it is deleted with the run."""
        journal.wait_for_topics(self._source, {name})
        for one in self._source.describe([name]).values():
            created = CreatedTopic(
                name=name, topic_id=one.topic_id, copy_name=self._run.added_topics[name]
            )
            text = created.model_dump_json(by_alias=True)
            journal.write(self._run.source, self._run.name, documents.created_key(name), text)

    def _add_partitions(self, more: int) -> dict[str, int]:
        there = self._source.topics()
        changed = {name: there.get(name, 0) + more for name in self._run.first_topics}
        for name, total in changed.items():
            self._source.add_partitions(name, total)
        return changed
