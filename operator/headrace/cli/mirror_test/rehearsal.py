"""``spec.rehearsal`` of a mirror test: consumers read under load, the flow is failed over by the
command that a person types, they go on at the target, and the fail-over is undone."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from headrace.api import ClusterAccess, TopicPartition
from headrace.cli.mirror_test.fail_over_commands import FailOverCommands
from headrace.cli.mirror_test.rehearsal_readers import Readers
from headrace.errors import GaveUp, HeadraceError, InvalidSpec
from headrace.kafka import Admin, Message, Position, assign, clients, make_consumer
from headrace.mirror_test import Rehearsed, Run, count_group
from headrace.mirror_test.faults import RecordId


class FailOver:
    """Of one run, whose flow runs on this machine, or in a ``namespace`` of a cluster."""

    def __init__(self, run: Run, groups: Sequence[str], namespace: str | None = None) -> None:
        self._run, self._groups = run, groups
        self._commands = FailOverCommands(run, namespace)
        self._readers = Readers(run, self._groups)
        self._error: HeadraceError | None = None
        self._begun = False
        """The fail-over."""

    def start(self) -> None:
        """The groups begin to read; before the load does."""
        try:
            self._readers.start()
        except HeadraceError as error:
            self._error = error

    def progress(self, percent: float) -> None:
        """Of the load."""
        self._readers.percent = percent

    def fail_over(self) -> Rehearsed:
        """After the load: fail over, and let the groups go on at the target."""
        self._readers.end()
        if error := self._error or self._readers.error:
            return Rehearsed(error=str(error))
        self._begun, began_s = True, time.monotonic()
        try:
            found = self._commands.fail_over()
            seconds = time.monotonic() - began_s
            if problems := found["problems"]:
                raise GaveUp(f"the fail-over is not complete: {problems[0]}")
            if others := set(self._groups) - {one["group"] for one in found["groups"]}:
                raise InvalidSpec(
                    f"{self._run.flow} does not follow {min(others)}: its spec.groups has to match "
                    "it"
                )
            return self._counted(seconds)
        except HeadraceError as error:
            return Rehearsed(error=str(error))

    def end(self) -> str | None:
        """Nobody reads any more, and the flow copies on; why it does not."""
        self._readers.end()
        if not self._begun:
            return None
        self._begun = False
        return self._commands.undo()

    def _counted(self, seconds: float) -> Rehearsed:
        run, copies = self._run, {copy: name for name, copy in self._run.first_topics.items()}
        source = {
            _record(one, one.topic() or ""): (_at(one), one.offset() or 0)
            for one in _log(run.source, self._readers.starts)
        }
        there = Admin(run.target).topics()
        topics = {copy: there[copy] for copy in copies if copy in there}
        begins = Admin(run.target).offsets(
            [TopicPartition(topic, n) for topic, count in topics.items() for n in range(count)],
            Position.EARLIEST,
        )
        known = {record: record for record in source}
        """A record of the load is kept in memory once, however many groups are delivered it."""

        def copied(message: Message) -> RecordId:
            record = _record(message, copies[message.topic() or ""])
            return known.get(record, record)

        target = [copied(one) for one in _log(run.target, begins)]
        delivered: dict[str, list[RecordId]] = {group: [] for group in self._groups}

        def on_record(group: str, message: Message) -> None:
            delivered[group].append(copied(message))

        clients.read_to_ends(run.target, self._groups, topics, on_record)
        committed, refused = Admin(run.source).committed(self._groups)
        if refused:
            raise next(iter(refused.values()))
        return Rehearsed(
            groups=tuple(
                count_group(
                    group,
                    source,
                    target,
                    {at: one.offset for at, one in committed.get(group, {}).items()},
                    delivered[group],
                )
                for group in self._groups
            ),
            seconds=round(seconds, 1),
        )


def _record(message: Message, topic: str) -> RecordId:
    return topic, hash(message.value())


def _at(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


def _log(cluster: ClusterAccess, begins: Mapping[TopicPartition, int]) -> Iterator[Message]:
    """All records of these partitions, from there to their ends."""
    with closing(make_consumer(cluster)) as consumer:
        assign(consumer, list(begins.items()))
        left = set(begins)
        while left:
            found, ends = clients.poll_member(consumer)
            left -= ends
            yield from found
