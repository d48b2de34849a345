"""Whose turn it is to roll out: an upgrade of the operator changes the drivers of every flow.

A roll-out costs each unit a move, and pods of two templates at a time. Flows of a higher
``spec.drivers.rolloutPriority`` come first, then by namespace and name.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.api import ReplicationFlow
from headrace.controller.drivers import DriverPod
from headrace.controller.targets import FlowName, flow_name

_PATIENCE_S = 600.0
"""A roll-out that takes longer does not keep the others from theirs: as a Deployment's
progressDeadlineSeconds. Its old pods stay until new ones are ready, so nothing is lost."""


@dataclass
class _Outdated:
    """A flow with pods of an older template."""

    priority: int
    since_s: float | None = None
    """When its roll-out began, by a monotonic clock; None while it waits."""


class Rollouts:
    """Counts the roll-outs that are under way. For one event loop.

    Nothing of it is stored: a flow with pods of its newest template and of others is in the
    middle of its roll-out, whoever began it.
    """

    def __init__(
        self,
        limit: int,
        everyone: Callable[[], Iterable[FlowName]],
        wake: Callable[[FlowName], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``limit``: so many flows at a time; 0: all. ``everyone``: the flows that there are.
        ``wake`` gets those that may ask again, when a roll-out has ended."""
        self._limit, self._everyone, self._wake, self._clock = limit, everyone, wake, clock
        self._outdated: dict[FlowName, _Outdated] = {}
        self._observed: set[FlowName] = set()

    def may_begin(self, flow: ReplicationFlow, pods: Iterable[DriverPod], newest: str) -> bool:
        """Whether the flow's drivers may be those of the template ``newest`` now.

        None begins before each flow was observed once: the one with the highest priority may be
        the last of them.
        """
        if not self._limit:
            return True
        name = flow_name(flow)
        self._observed.add(name)
        staying = [pod.template for pod in pods if not pod.terminating and not pod.ended]
        if all(template == newest for template in staying):
            self._end(name)
            return True
        own = self._outdated.setdefault(name, _Outdated(0))
        own.priority = flow.spec.drivers.rollout_priority
        if own.since_s is None and (newest in staying or self._is_next(name)):
            own.since_s = self._clock()
        return own.since_s is not None

    def observed(self, name: FlowName) -> None:
        """A flow was reconciled, however that ended."""
        self._observed.add(name)

    def forget(self, name: FlowName) -> None:
        """A flow is gone."""
        self._observed.discard(name)
        self._end(name)

    def _end(self, name: FlowName) -> None:
        if (ended := self._outdated.pop(name, None)) is not None and ended.since_s is not None:
            for waiting in self._waiting:
                self._wake(waiting)

    @property
    def _waiting(self) -> list[FlowName]:
        """In their order."""
        waiting = [of for of, one in self._outdated.items() if one.since_s is None]
        return sorted(waiting, key=lambda of: (-self._outdated[of].priority, of))

    def _is_next(self, name: FlowName) -> bool:
        if not self._observed.issuperset(self._everyone()):
            return False
        began = [one.since_s for one in self._outdated.values() if one.since_s is not None]
        active = sum(self._clock() - since_s < _PATIENCE_S for since_s in began)
        return name in self._waiting[: max(self._limit - active, 0)]
