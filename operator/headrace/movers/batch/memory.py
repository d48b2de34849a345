"""How much fetched data a driver holds: from the response until the target has acknowledged it."""

from collections.abc import Callable

from headrace.kafka.wire import FetchResponse

SOFT_BYTES = 32 << 20
"""No lane fetches more while so much is held. What requests on their way may bring counts when
another one is to ask for much."""
HARD_BYTES = 3 * SOFT_BYTES
"""With what is held of partitions that the target does not take: others go on until then."""
LEAST_BYTES = 256 << 10
"""That a request asks for: of one that waits for a record to come, nothing is set aside."""


class Memory:
    """Of all lanes of a loop, whose thread calls it."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self.asked_bytes = 0
        """Of requests under way, beyond ``LEAST_BYTES`` of each."""
        self._waiting: dict[Callable[[], None], None] = {}

    def room(self, *, stuck: bool) -> int:
        """How many bytes one more request may ask for; 0: it has to wait. ``stuck``: of a lane that
        waits for nothing else than partitions that the target does not take."""
        free = (HARD_BYTES if stuck else SOFT_BYTES) - self.held_bytes
        return max(LEAST_BYTES, free - self.asked_bytes) if free > 0 else 0

    def ask(self, size: int) -> None:
        """A request asks for so much. Its answer or its end is followed by ``answered``."""
        self.asked_bytes += max(0, size - LEAST_BYTES)

    def answered(self, size: int) -> None:
        """That request is over: what it brought, if anything, counts as held."""
        self.asked_bytes -= max(0, size - LEAST_BYTES)

    def wait(self, freed: Callable[[], None]) -> None:
        """Call it once, when memory becomes free."""
        self._waiting[freed] = None

    def take(self, size: int) -> None:
        """Memory of a response is held."""
        self.held_bytes += size

    def give(self, size: int) -> None:
        """It is free again."""
        self.held_bytes -= size
        if self._waiting and self.held_bytes < SOFT_BYTES:
            waiting, self._waiting = self._waiting, {}
            for freed in waiting:
                freed()


class HeldResponse:
    """A response that is released when all that use parts of it have released it."""

    __slots__ = ("_memory", "_response", "_users", "size")

    def __init__(self, response: FetchResponse, memory: Memory) -> None:
        """It has one user: whoever made it."""
        self._response, self._memory = response, memory
        self.size = len(response.frame.view)
        """Of the whole response, in bytes."""
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
