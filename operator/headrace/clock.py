"""Time as a port: the module ``time`` is one clock, a test's own is another."""

from typing import Protocol


class Clock(Protocol):
    """As the module ``time`` has them; both in seconds."""

    def monotonic(self) -> float:
        """Since some moment; never set back."""
        ...

    def time(self) -> float:
        """Since 1970, as this machine believes."""
        ...
