"""Notices, while a task runs, that a topic was deleted and created again on either side."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.connect.runtime.background import BackgroundStep
from headrace.connect.runtime.both_clusters import known_topic_ids, source_topic_ids
from headrace.connect.runtime.context import FlowContext
from headrace.connect.takeover.starts import Start, Starts
from headrace.connect.topics.losses import recreated_on_source, recreated_on_target
from headrace.errors import HeadraceError
from headrace.kafka import replaced
from headrace.replication import Loss

_SHORTEST_S = 1.0
"""Minimum interval, equal to the interval of storing progress."""
_SHARE = 0.05
"""Maximum share of time spent on requests: a task may have a thousand topics."""

Ids = Mapping[str, tuple[str, str]]


class Checked(NamedTuple):
    """Results since the last call."""

    losses: dict[TopicPartition, Loss]
    confirmed: Starts
    """Positions that are of the topics that the task began with: acknowledged before they were
    described."""


_NOTHING = Checked({}, {})


class TopicCheck:
    """Check of topic ids on both sides every ``discovery.topicsSeconds``.

    The source's ids are also compared whenever records of a topic were acknowledged. One thread
    calls this object. Nothing else reveals a new topic: the client continues at the same offset in
    it.
    """

    def __init__(self, context: FlowContext, pool: Executor) -> None:
        self._context, self._clock = context, context.clock
        self._describing = BackgroundStep[tuple[Ids, float]](pool, context.clock)
        # A restore has also compared them.
        self._next_of_all_s = self._clock.monotonic() + context.spec.discovery.topics_seconds
        self._asked: Starts = {}

    def check(self, starts: Starts) -> Checked:
        """Compare the topics of ``starts``, which has what is acknowledged now."""
        if self._describing.due:
            self._describe(starts)
        if not self._describing.done:
            return _NOTHING
        interval_s = self._context.spec.discovery.topics_seconds
        try:
            ids, took_s = self._describing.take()
        except HeadraceError:  # brokers that are unreachable are reported where needed
            self._describing.put_off(interval_s)
            return _NOTHING
        self._describing.put_off(max(_SHORTEST_S, took_s / _SHARE))
        asked = {at: start for at, start in self._asked.items() if at in starts}
        losses = {
            at: loss for at, start in asked.items() if (loss := self._compare(start, ids[at.topic]))
        }
        confirmed = {
            at: start
            for at, start in asked.items()
            if ids[at.topic][0]
            and not replaced(start.source_topic_id, ids[at.topic][0])
            and at not in losses
        }
        return Checked(losses, confirmed)

    def _describe(self, starts: Starts) -> None:
        now_s = self._clock.monotonic()
        of_all = now_s >= self._next_of_all_s
        topics = {
            at.topic
            for at, start in starts.items()
            if of_all or start.source_offset != start.confirmed.source_offset
        }
        if not topics:
            return
        if of_all:
            self._next_of_all_s = now_s + self._context.spec.discovery.topics_seconds
        self._asked = {at: start for at, start in starts.items() if at.topic in topics}
        ids_of = known_topic_ids if of_all else source_topic_ids
        describe = partial(ids_of, self._context, topics)
        self._describing.start(partial(self._measured, describe, dict(self._asked)))

    def _measured(self, describe: Callable[[], Ids], asked: Starts) -> tuple[Ids, float]:
        """Describe topics, again if one was replaced: a foreign broker may have answered."""
        began_s = self._clock.monotonic()
        ids = describe()
        if any(self._compare(start, ids[at.topic]) for at, start in asked.items()):
            self._context.check_brokers()
            ids = describe()
        return ids, self._clock.monotonic() - began_s

    def _compare(self, start: Start, ids: tuple[str, str]) -> Loss | None:
        """Return the loss by a topic that was created again; discovery handles an absent topic."""
        source_id, target_id = ids
        now_ms = self._context.now_ms
        if source_id and replaced(start.source_topic_id, source_id):
            return recreated_on_source(start.confirmed, now_ms)
        if target_id and replaced(start.target_topic_id, target_id):
            return recreated_on_target(start.confirmed.target_offset, now_ms)
        return None
