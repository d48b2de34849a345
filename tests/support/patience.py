"""The time that tests wait for slow steps: load of the machine is no finding."""

from typing import Any

WITHIN_S = 300.0
"""Longest wait of a test.

Runs of this project share two cores with other runs, and have taken three times as long as on an
idle machine.
"""


class Unchanged:
    """A condition that is true if so many observations in a row were equal.

    Observations are counted, not their time: if the machine pauses, nothing can change.
    """

    def __init__(self, looks: int = 30) -> None:
        self._looks, self._seen, self._equal = looks, None, 0

    def __call__(self, seen: Any) -> bool:
        """Record an observation, and return whether the last ones were equal."""
        self._equal = self._equal + 1 if seen == self._seen else 0
        self._seen = seen
        return self._equal >= self._looks
