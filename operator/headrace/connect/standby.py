"""What a standby does: the requests of a take-over are sent before they are needed."""

import random
from collections.abc import Set
from concurrent.futures import Executor
from functools import partial

from headrace.api import TopicPartition
from headrace.connect.background import BackgroundStep
from headrace.connect.context import FlowContext
from headrace.connect.lifecycle import LifeCycle
from headrace.connect.restoring import warm_up
from headrace.errors import Retriable

_FIRST_S, _INTERVAL_S = 2.0, 60.0
"""A standby is often created when a driver is lost, and take-overs must go first; later it repeats
its requests: brokers close a connection that is idle for 10 minutes."""


class Standby:
    """Keeps connections, metadata and progress warm. One thread calls it."""

    def __init__(self, context: FlowContext, life: LifeCycle, pool: Executor) -> None:
        self._context, self._life = context, life
        self._asking = BackgroundStep[None](pool, context.clock)
        self._asking.put_off(_FIRST_S * random.uniform(0.5, 1.0))
        self.warm = False
        """Whether the brokers have answered once."""

    def advance(self, partitions: Set[TopicPartition]) -> bool:
        """Send what is due; whether the brokers answered."""
        if self._asking.due:
            self._asking.start(partial(warm_up, self._context, partitions))
        if self._asking.done:
            try:
                self._asking.take()
            except Retriable as error:
                self._life.retrying(error)
                self._asking.back_off()
            else:
                self.warm = True
                self._life.recovered()
                self._asking.succeeded()
                self._asking.put_off(_INTERVAL_S)
        return self._life.error is None
