"""How much fetched data a driver holds: from the response until the target has acknowledged it."""

from collections.abc import Callable

from headrace.kafka.wire import FetchResponse

SOFT_BYTES = 32 << 20
"""No lane fetches more while so much is held. What requests on their way may bring counts when
another one is to ask for much."""
HARD_BYTES = 3 * SOFT_BYTES
"""Limit including what is held for partitions that the target does not accept. Other partitions
continue up to this limit.
"""
LEAST_BYTES = 256 << 10
"""That a request asks for: of one that waits for a record to come, nothing is set aside."""


class Memory:
    """Memory of all lanes of a loop, called in its thread."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self.asked_bytes = 0
        """Size of requests in flight, beyond ``LEAST_BYTES`` of each."""
        self._waiting: dict[Callable[[], None], None] = {}

    def room(self, *, stuck: bool) -> int:
        """Return how many bytes one more request may request; 0 means that it must wait.

        ``stuck`` states that the lane waits only for partitions that the target does not accept.
        """
        free = (HARD_BYTES if stuck else SOFT_BYTES) - self.held_bytes
        return max(LEAST_BYTES, free - self.asked_bytes) if free > 0 else 0

    def ask(self, size: int) -> None:
        """Count a request of a size; call ``answered`` after its response or its end."""
        self.asked_bytes += max(0, size - LEAST_BYTES)

    def answered(self, size: int) -> None:
        """Count the end of a request; its response, if any, counts as held."""
        self.asked_bytes -= max(0, size - LEAST_BYTES)

    def wait(self, freed: Callable[[], None]) -> None:
        """Call it once, when memory becomes free."""
        self._waiting[freed] = None

    def take(self, size: int) -> None:
        """Memory of a response is held."""
        self.held_bytes += size

    def give(self, size: int) -> None:
        """Release memory."""
        self.held_bytes -= size
        if self._waiting and self.held_bytes < SOFT_BYTES:
            waiting, self._waiting = self._waiting, {}
            for freed in waiting:
                freed()


class HeldResponse:
    """A response that is released when all that use parts of it have released it."""

    __slots__ = ("_memory", "_response", "_users", "size")

    def __init__(self, response: FetchResponse, memory: Memory) -> None:
        """Hold a response for one user, the creator."""
        self._response, self._memory = response, memory
        self.size = len(response.frame.view)
        """Size of the whole response in bytes."""
        self._users = 1
        memory.take(self.size)

    def use(self) -> None:
        """One more user, who calls ``release``."""
        self._users += 1

    def release(self) -> None:
        """One user less."""
        self._users -= 1
        if not self._users:
            self._response.release()
            self._memory.give(self.size)
