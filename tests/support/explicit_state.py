"""A small model checker: every state that can be reached, the nearest first."""

import gc
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Exploration(Generic[S]):
    states: int
    transitions: int
    depth: int
    violation: str = ""
    trace: tuple[tuple[str, S], ...] = ()
    """The shortest way to the violation: events, and the state after each."""

    def __str__(self) -> str:
        steps = [f"{number:3}. {event}" for number, (event, _) in enumerate(self.trace, 1)]
        last = [str(state) for _, state in self.trace[-1:]]
        found = f"{self.violation or 'no violation'}; {self.states} states"
        return "\n".join([found, *steps, *last])


def explore(
    initial: S, successors: Callable[[S], Iterable[tuple[str, S]]], violation: Callable[[S], str]
) -> Exploration[S]:
    """Visit every reachable state, until ``violation`` names the fault of one."""
    reached: dict[S, tuple[str, S] | None] = {initial: None}
    waiting, transitions, depth = deque([(initial, 0)]), 0, 0
    with _no_collection():
        while waiting:
            state, depth = waiting.popleft()
            if found := violation(state):
                return Exploration(len(reached), transitions, depth, found, _trace(state, reached))
            for event, following in successors(state):
                transitions += 1
                if following not in reached:
                    reached[following] = (event, state)
                    waiting.append((following, depth + 1))
    return Exploration(len(reached), transitions, depth)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection: tuples have no cycles, and it takes a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _trace(state: S, reached: dict[S, tuple[str, S] | None]) -> tuple[tuple[str, S], ...]:
    steps: list[tuple[str, S]] = []
    while (step := reached[state]) is not None:
        event, before = step
        steps.append((event, state))
        state = before
    return tuple(reversed(steps))
