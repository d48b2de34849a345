"""Standby of a source task: it sends a takeover's requests before they are needed."""

import random
from concurrent.futures import Executor
from functools import partial

from headrace.api import TopicPartition
from headrace.connect.runtime.background import BackgroundStep
from headrace.connect.source.copying import Copying
from headrace.connect.source.task_context import TaskContext
from headrace.connect.takeover.restoring import warm_up
from headrace.errors import Retriable

_FIRST_S, _INTERVAL_S = 2.0, 60.0
"""A standby is often created when a driver is lost, and take-overs must go first; later it repeats
its requests: brokers close a connection that is idle for 10 minutes."""


class Standby:
    """Keeps connections, metadata and progress warm. One thread calls it."""

    def __init__(self, task: TaskContext, copying: Copying, pool: Executor) -> None:
        self._context, self._life, self._copying = task.flow, task.life, copying
        self._asking = BackgroundStep[None](pool, task.flow.clock)
        self._asking.put_off(_FIRST_S * random.uniform(0.5, 1.0))

    def advance(self) -> bool:
        """Send what is due, and have clients once brokers answer; whether they do."""
        if self._asking.due:
            has_lane = self._copying.lane is not None
            self._asking.start(partial(self._warm_up, self._copying.partitions, has_lane))
        if self._asking.done:
            try:
                self._asking.take()
            except Retriable as error:
                self._life.retrying(error)
                self._asking.back_off()
            else:
                self._copying.warm_up()
                self._life.recovered()
                self._asking.succeeded()
                self._asking.put_off(_INTERVAL_S)
        return self._life.error is None

    def _warm_up(self, partitions: frozenset[TopicPartition], has_lane: bool) -> None:
        warm_up(self._context, partitions)
        if not has_lane:
            self._copying.prepare_lane()
