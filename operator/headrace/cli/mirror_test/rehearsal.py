"""Rehearsal of a fail-over during a mirror test."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from headrace import logs
from headrace.api import ClusterAccess, TopicPartition
from headrace.cli.screen.exits import Exit
from headrace.errors import GaveUp, HeadraceError, InvalidSpec
from headrace.host import spawn
from headrace.kafka import (
    Admin,
    Committed,
    Consumer,
    Message,
    Position,
    assign,
    clients,
    make_consumer,
)
from headrace.mirror_test import MirrorTestRun, Rehearsed, count_group
from headrace.mirror_test.faults import RecordId


class Readers:
    """Reads the source in several consumer groups, with one member each, in one thread.

    The groups stop one after another: the first before it has read anything, the last when the load
    has ended. Their offsets are therefore spread over the whole load, and are
    in the middle of batches.
    """

    def __init__(self, run: MirrorTestRun, groups: Collection[str]) -> None:
        self._run, self._groups = run, list(groups)
        self._thread = threading.Thread(target=self._read, name="rehearsal", daemon=True)
        self._ended = threading.Event()
        self.percent = 0.0
        """Percentage of the load that was sent. The observer of the load sets it."""
        self.error: HeadraceError | None = None
        """Error that ended the reading early, or None."""
        self.starts: Mapping[TopicPartition, int] = {}
        """Offsets at which the load begins."""

    def start(self) -> None:
        """Set all groups to the current ends of the source's topics, and start reading.

        Raise an error if an offset cannot be read or committed.
        """
        admin = Admin(self._run.source)
        there = admin.topics()
        partitions = [
            TopicPartition(topic, number)
            for topic in self._run.first_topics
            for number in range(there.get(topic, 0))
        ]
        self.starts = admin.offsets(partitions, Position.LATEST)
        begin = {at: Committed(offset, "") for at, offset in self.starts.items()}
        refused = admin.commit(dict.fromkeys(self._groups, begin))
        if refused:
            raise next(iter(refused.values()))
        self._thread.start()

    def end(self) -> None:
        """Commit the offsets of members that still read, and wait until all have left."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _read(self) -> None:
        try:
            with ExitStack() as open_ones:
                topics = self._run.first_topics
                members = {
                    group: open_ones.enter_context(
                        closing(clients.open_member(self._run.source, group, topics))
                    )
                    for group in self._groups
                }
                self._take_turns(members)
        except HeadraceError as error:
            self.error = error

    def _take_turns(self, members: dict[str, Consumer]) -> None:
        last: dict[str, dict[str, Message]] = {group: {} for group in members}
        while members:
            ended = self._ended.is_set()
            for number, group in enumerate(self._groups):
                if (member := members.get(group)) is None:
                    continue
                if ended or self.percent >= 100 * number / max(1, len(self._groups) - 1):
                    clients.commit_member(member, last[group].values())
                    del members[group]  # closed later, with all others
                    continue
                found, _ = clients.poll_member(member)
                for message in found:
                    last[group][f"{message.topic()}/{message.partition()}"] = message


_QUIET_PERIOD_S = 2
_COMMAND_S = 600.0
"""Time-out of a command, in seconds. Longer than the command's own --timeout-seconds of 300."""

_NOTHING = "nothing is changed"
"""Text that `headrace failover --abort` and `headrace flow resume` print if nothing changes."""


@dataclass(frozen=True)
class _Done:
    """Result of a command that has ended."""

    code: int
    output: str
    errors: str

    @property
    def last_log_error(self) -> str:
        if sentences := logs.messages_in(self.errors):
            return sentences[-1]
        lines = self.errors.strip().splitlines()
        return lines[-1] if lines else f"a command ended with exit code {self.code}"

    @property
    def found_nothing(self) -> bool:
        """True if there was nothing to change."""
        return self.code == Exit.OK and _NOTHING in self.output


@dataclass(frozen=True)
class FailOverCommands:
    """Runs fail-over commands for the flow of a mirror test.

    The flow runs on this machine or, if ``namespace`` is given, in a Kubernetes cluster.
    """

    run: MirrorTestRun
    namespace: str | None = None

    def fail_over(self) -> dict[str, Any]:
        """Fail over, and return the document that `headrace failover` prints.

        Raises:
            GaveUp: The command failed. The message is its last error.
        """
        done = self._headrace(
            "failover", *self._secrets, "-o", "json", "--quiet-seconds", _QUIET_PERIOD_S
        )
        if done.code != Exit.OK:
            raise GaveUp(done.last_log_error)
        found: dict[str, Any] = json.loads(done.output)
        return found

    def undo(self) -> str | None:
        """Undo the fail-over, so that the flow copies again.

        Return an error message if the flow does not copy, otherwise None.
        """
        try:
            done = self._headrace("failover", *self._secrets, "--abort")
            if done.found_nothing:
                # There is no fail-over to undo. The flow may be stopped, or may already run again.
                done = self._headrace("flow resume")
        except GaveUp as error:
            return str(error)
        return None if done.code == Exit.OK else done.last_log_error

    @property
    def _secrets(self) -> tuple[str, ...]:
        """Option ``--secrets`` for a flow of a cluster that has Secrets, otherwise empty."""
        folder = self.run.secrets
        if self.namespace is None or folder is None or not folder.is_dir():
            return ()
        return ("--secrets", str(folder))

    def _headrace(self, verb: str, *options: object) -> _Done:
        """Run a headrace command and return its result.

        The command ends with this process, so that it cannot change anything after an undo.
        """
        place = ("-n", self.namespace) if self.namespace else ()
        words = (*verb.split(), self.run.flow or "", *place, *options)
        process = spawn(
            [sys.executable, "-m", "headrace", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            output, errors = process.communicate(timeout=_COMMAND_S)
        except subprocess.TimeoutExpired as error:
            raise GaveUp(f"`headrace {verb}` did not end within {_COMMAND_S:.0f} s") from error
        finally:
            process.kill()
        return _Done(process.returncode, output.decode(), errors.decode())


class FailOver:
    """Rehearses the fail-over of a run's flow, on this machine or in a cluster's ``namespace``."""

    def __init__(
        self, run: MirrorTestRun, groups: Sequence[str], namespace: str | None = None
    ) -> None:
        self._run, self._groups = run, groups
        self._commands = FailOverCommands(run, namespace)
        self._readers = Readers(run, self._groups)
        self._error: HeadraceError | None = None
        self._begun = False
        """True from the start of a fail-over until it has been undone."""

    def start(self) -> None:
        """Start reading in the groups. Call it before the load starts."""
        try:
            self._readers.start()
        except HeadraceError as error:
            self._error = error

    def progress(self, percent: float) -> None:
        """Set the percentage of the load that was sent."""
        self._readers.percent = percent

    def fail_over(self) -> Rehearsed:
        """Fail over after the load, resume the groups on the target, and return the outcome."""
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
        """Stop reading and undo the fail-over.

        Return an error message if that failed, otherwise None.
        """
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
        """Each source record, with itself as the key. ``copied`` returns this object for an equal
        record, so that each record is in memory once, however many groups receive it."""

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
    """Yield all records of these partitions, from the given offsets to the ends."""
    with closing(make_consumer(cluster)) as consumer:
        assign(consumer, list(begins.items()))
        left = set(begins)
        while left:
            found, ends = clients.poll_member(consumer)
            left -= ends
            yield from found
