"""Notices, while a task runs, that a topic was deleted and created again on either side."""

from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial

from headrace.api import TopicPartition
from headrace.connect.background import BackgroundStep
from headrace.connect.context import FlowContext
from headrace.connect.restoring import (
    Start,
    created_again_on_source,
    created_again_on_target,
    known_topic_ids,
)
from headrace.errors import HeadraceError

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

    def check(self, starts: Starts) -> None:
        """``starts``: what is stored now. Raises ``DataLoss``, of the first partition."""
        if self._asking.due and starts:
            self._asked = dict(starts)
            topics = {at.topic for at in starts}
            self._asking.start(partial(known_topic_ids, self._context, topics))
        if self._asking.done:
            self._asking.put_off(self._context.spec.discovery.topics_seconds)
            try:
                ids = self._asking.take()
            except HeadraceError:  # brokers that are away are reported by whoever needs them
                return
            self._compare(ids)

    def _compare(self, ids: Mapping[str, tuple[str, str]]) -> None:
        """An absent topic is none that was created again: discovery deals with it."""
        for at, start in sorted(self._asked.items()):
            source_id, target_id = ids[at.topic]
            position = self._known_good.get(at, start).source_offset
            if source_id and source_id != start.source_topic_id:
                raise created_again_on_source(self._context, at, position)
            if target_id and target_id != start.target_topic_id:
                raise created_again_on_target(self._context, at, position)
        self._known_good = self._asked
