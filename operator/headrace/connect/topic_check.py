"""Notices, while a task runs, that a topic was deleted and created again on either side."""

from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial

from headrace.api import TopicPartition
from headrace.connect.background import BackgroundStep
from headrace.connect.context import FlowContext
from headrace.connect.losses import recreated_on_source, recreated_on_target
from headrace.connect.restoring import known_topic_ids
from headrace.connect.starts import Start
from headrace.errors import HeadraceError
from headrace.replication import Loss

Starts = Mapping[TopicPartition, Start]


class TopicCheck:
    """Compares the topics' ids every ``discovery.topicsSeconds``. One thread calls it.

    Nothing else shows it: the client goes on at the same offset of the new topic.
    """

    def __init__(self, context: FlowContext, pool: Executor) -> None:
        self._context = context
        self._asking = BackgroundStep[dict[str, tuple[str, str]]](pool, context.clock)
        self._asked: Starts = {}
        self._known_good: Starts = {}
        """What was stored when the ids were last found to be those of the restore."""

    def check(self, starts: Starts) -> dict[TopicPartition, Loss]:
        """``starts``: what is acknowledged now. What was found out since the last call."""
        if self._asking.due and starts:
            self._asked = dict(starts)
            topics = {at.topic for at in starts}
            self._asking.start(partial(known_topic_ids, self._context, topics))
        if not self._asking.done:
            return {}
        self._asking.put_off(self._context.spec.discovery.topics_seconds)
        try:
            ids = self._asking.take()
        except HeadraceError:  # brokers that are away are reported by whoever needs them
            return {}
        asked = {at: start for at, start in self._asked.items() if at in starts}
        losses = {
            at: loss for at, start in asked.items() if (loss := self._compare(at, start, ids))
        }
        self._known_good = {at: start for at, start in asked.items() if at not in losses}
        return losses

    def _compare(
        self, at: TopicPartition, start: Start, ids: Mapping[str, tuple[str, str]]
    ) -> Loss | None:
        """An absent topic is none that was created again: discovery deals with it."""
        source_id, target_id = ids[at.topic]
        known_good = self._known_good.get(at, start)
        now_ms = self._context.now_ms
        if source_id and source_id != start.source_topic_id:
            return recreated_on_source(known_good.source_offset, known_good.seen_end, now_ms)
        if target_id and target_id != start.target_topic_id:
            return recreated_on_target(known_good.target_offset, now_ms)
        return None
