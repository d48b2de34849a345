"""The consumers of a rehearsal: they read and commit on the source while the load is sent."""

import threading
from collections.abc import Collection, Mapping
from contextlib import ExitStack, closing

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka import Admin, Committed, Consumer, Message, Position, clients
from headrace.mirror_test import Run


class Readers:
    """One thread, with a member of each group. They stop one after another: the first before it
    has read anything, the last when the load has ended; so they stop all over it, in mid-batch."""

    def __init__(self, run: Run, groups: Collection[str]) -> None:
        self._run, self._groups = run, list(groups)
        self._thread = threading.Thread(target=self._read, name="rehearsal", daemon=True)
        self._ended = threading.Event()
        self.percent = 0.0
        """Of the load; set by whoever follows it."""
        self.error: HeadraceError | None = None
        """Why they stopped early."""
        self.starts: Mapping[TopicPartition, int] = {}
        """Where the load begins."""

    def start(self) -> None:
        """All groups begin where the source's topics end now. Raises Kafka's errors."""
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
        """Those that still read commit, and all leave; waits for it."""
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
                    del members[group]  # it is closed with all others
                    continue
                found, _ = clients.poll_member(member)
                for message in found:
                    last[group][f"{message.topic()}/{message.partition()}"] = message
