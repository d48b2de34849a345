"""Early retries of stopped partitions: the clusters are compared with their state at the last try.

A stopped partition needs a user's action, and is otherwise retried only after up to an hour. With
these retries, a user who for example grants a permission sees the result within seconds.
"""

from collections.abc import Set
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.api.flow import Location
from headrace.connect.runtime.background import BackgroundStep
from headrace.connect.runtime.context import FlowContext, TopicState
from headrace.errors import HeadraceError

_INTERVAL_S = 10.0
_SHARE = 0.05
"""Maximum share of time that is spent on requests, because a task may have a thousand topics."""


class _Look(NamedTuple):
    topics: dict[tuple[Location, str], TopicState]
    took_s: float


class CauseCheck:
    """Detects that the cause of an error may have been removed. Not thread-safe.

    The cause is unknown, so any change of permissions or settings of the topics counts. Each state
    of the clusters causes one retry.
    """

    def __init__(self, context: FlowContext, unit: str, pool: Executor) -> None:
        self._context = context
        self._known = context.topic_states(unit)
        self._asking = BackgroundStep[_Look](pool, context.clock)

    def observe(self, stopped: Set[TopicPartition]) -> bool:
        """Return whether stopped partitions must be retried now.

        After the first answer they are retried as well, because a user may have acted before it.
        """
        if stopped and self._asking.due:
            self._asking.start(partial(self._look, {at.topic for at in stopped}))
        if not self._asking.done:
            return False
        self._asking.put_off(_INTERVAL_S)
        try:
            found, took_s = self._asking.take()
        except HeadraceError:  # brokers that are unreachable are reported where needed
            return False
        self._asking.put_off(max(_INTERVAL_S, took_s / _SHARE))
        changed = any(self._known.get(at) != state for at, state in found.items())
        self._known.update(found)
        return changed

    def _look(self, topics: Set[str]) -> _Look:
        began_s = self._context.clock.monotonic()
        targets = {self._context.policy.target_topic(topic) for topic in topics}
        names = {
            Location.SOURCE: topics,
            Location.TARGET: {*targets, self._context.progress.topic, *self._dead_letters()},
        }
        found: dict[tuple[Location, str], TopicState] = {}
        for side, admin in self._context.rights.items():
            rights = admin.rights_on_existing(names[side])
            settings, _ = admin.topic_configs(rights)
            for name in names[side]:
                config = settings.get(name)
                found[side, name] = TopicState(
                    rights.get(name), config.in_effect if config else None
                )
        return _Look(found, self._context.clock.monotonic() - began_s)

    def _dead_letters(self) -> Set[str]:
        topic = self._context.spec.on_record_error.dead_letter_topic
        return {topic} if topic else set()
