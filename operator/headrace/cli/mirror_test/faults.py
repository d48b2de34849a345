"""Faults that work with every mirror: topics and partitions that are added to the load."""

import json
import time
from collections.abc import Callable, Mapping

from headrace.api import ChaosAction, ChaosStep, Partitioning, TopicPartition
from headrace.chaos import Injection
from headrace.errors import InvalidSpec
from headrace.kafka import Admin, journal
from headrace.mirror_test import CreatedTopic, MirrorTestRun, documents

_ANSWER_S = 1.0
"""Time limit of a request to the target. Nothing else is observed during the request."""


class RecoveryProbe:
    """Checks of a mirror's recovery.

    A mirror has recovered when each partition of the target has a message that was sent after the
    fault, because earlier messages are copied first.
    """

    def __init__(self, run: MirrorTestRun) -> None:
        self._first = tuple(run.first_topics.values())
        self._target = Admin(run.target, _ANSWER_S)

    def since(self, time_ms: int) -> Callable[[], bool]:
        """Return a check of the recovery in the load's first topics.

        The check returns True if each partition has a message with the timestamp ``time_ms`` or
        later.
        """
        return self.in_topics(dict.fromkeys(self._first, 1), time_ms)

    def in_topics(self, topics: Mapping[str, int], time_ms: int) -> Callable[[], bool]:
        """Return a check of the recovery in ``topics``.

        ``topics`` are the required numbers of partitions, by target topic. The check returns True
        if each partition has a message with the timestamp ``time_ms`` or later.
        """

        def arrived() -> bool:
            there = self._target.topics()
            if any(there.get(name, 0) < count for name, count in topics.items()):
                return False
            partitions = [
                TopicPartition(name, number) for name in topics for number in range(there[name])
            ]
            firsts = self._target.offsets_at(partitions, time_ms)
            return all(at >= 0 for at in firsts.values())

        return arrived


class LoadFaults:
    """Injector that adds topics or partitions on the source, and informs the producers."""

    def __init__(self, run: MirrorTestRun) -> None:
        self._run = run
        self._source, self._arrivals = Admin(run.source), RecoveryProbe(run)
        self._names = list(run.added_topics)
        """Names of the topics that are to be added."""
        self._changed: dict[str, int] = {}
        """Number of partitions of each topic that was added or extended."""

    def inject(self, step: ChaosStep) -> Injection:
        """Inject a step.

        The mirror has recovered when each partition of the target, including new ones, has a
        message that was sent after the fault.
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
