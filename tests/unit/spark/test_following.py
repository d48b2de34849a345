"""Whether a consumer keeps up with what it reads."""

from typing import Any

from headrace_spark.following import BEHIND_MS, Following


class Queue:
    """A consumer's; each message that it waits for takes 10 ms."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.there: list[Any] = []
        self.next: Any = None

    def consume(self, most: int, timeout_s: float) -> list[Any]:
        assert timeout_s == 0
        taken, self.there = self.there[:most], self.there[most:]
        return taken

    def poll(self, timeout_s: float) -> Any:
        self.now_ms += 10
        return self.next


def test_it_is_behind_once_it_had_no_pause_for_a_second() -> None:
    queue = Queue()
    following = Following(queue, lambda: queue.now_ms)  # type: ignore[arg-type]
    queue.there = ["message"] * 2_000
    taken = following.take(0.1)
    assert not following.is_behind
    queue.now_ms += BEHIND_MS
    taken += following.take(0.1)
    assert following.is_behind
    while queue.there:
        taken += following.take(0.1)
    assert len(taken) == 2_000
    assert following.is_behind
    queue.next = "awaited"
    assert following.take(0.1) == ["awaited"]
    assert not following.is_behind
