"""The queue contains each key once, runs none concurrently with itself, and repeats failures."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from headrace.controller.queue import KeyQueue
from headrace.errors import Retriable

Work = Callable[[str], Awaitable[float | None]]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


def run(
    work: Work,
    test: Callable[[KeyQueue[str]], Awaitable[None]],
    on_reconciled: Callable[[float, bool], None] = lambda took_s, failed: None,
) -> None:
    async def main() -> None:
        queue = KeyQueue[str](on_reconciled=on_reconciled)
        running = asyncio.create_task(queue.run(work))
        await test(queue)
        assert not running.done()
        running.cancel()

    asyncio.run(main())


def test_a_swarm_of_changes_is_one_reconcile() -> None:
    reconciles: list[str] = []

    async def work(key: str) -> None:
        reconciles.append(key)

    async def test(queue: KeyQueue[str]) -> None:
        for _ in range(100):
            queue.add("a")
        queue.add("b")
        await until(lambda: len(reconciles) >= 2)

    run(work, test)
    assert sorted(reconciles) == ["a", "b"]


def test_what_changes_during_a_reconcile_is_reconciled_again_but_not_at_once() -> None:
    at_once = most = reconciles = 0

    async def work(key: str) -> None:
        nonlocal at_once, most, reconciles
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.1)
        at_once -= 1
        reconciles += 1

    async def test(queue: KeyQueue[str]) -> None:
        queue.add("a", 0)
        await until(lambda: at_once == 1)
        queue.add("a", 0)
        await until(lambda: reconciles == 2)

    run(work, test)
    assert most == 1


def test_it_rests_after_a_reconcile_as_long_as_that_took() -> None:
    began: list[float] = []

    async def work(key: str) -> float:
        began.append(time.monotonic())
        await asyncio.sleep(0.3)
        return 600.0

    async def test(queue: KeyQueue[str]) -> None:
        queue.add("a", 0)
        await until(lambda: len(began) == 1)
        queue.add("a", 0)
        await until(lambda: len(began) == 2)

    run(work, test)
    assert began[1] - began[0] >= 0.6


def test_a_failure_is_tried_again_and_stops_nobody_else() -> None:
    reconciles: list[str] = []

    async def work(key: str) -> None:
        reconciles.append(key)
        if key == "fails" and reconciles.count(key) < 3:
            raise Retriable("not now")
        if key == "faulty" and reconciles.count(key) < 2:
            raise ZeroDivisionError

    async def test(queue: KeyQueue[str]) -> None:
        for key in ("fails", "faulty", "well"):
            queue.add(key)
        await until(lambda: (reconciles.count("fails"), reconciles.count("faulty")) == (3, 2))

    run(work, test)
    assert reconciles.count("well") == 1


def test_a_reconcile_returns_when_it_wants_the_next() -> None:
    reconciles = 0

    async def work(key: str) -> float | None:
        nonlocal reconciles
        reconciles += 1
        return 0.01 if reconciles < 4 else None

    async def test(queue: KeyQueue[str]) -> None:
        queue.add("a")
        await until(lambda: reconciles == 4)

    run(work, test)


def test_each_reconcile_is_reported_with_its_outcome_and_its_duration() -> None:
    on_reconciled: list[tuple[float, bool]] = []

    async def work(key: str) -> None:
        if key == "fails" and not any(failed for _, failed in on_reconciled):
            raise Retriable("not now")

    async def test(queue: KeyQueue[str]) -> None:
        queue.add("well")
        queue.add("fails")
        await until(lambda: len(on_reconciled) == 3)

    run(work, test, on_reconciled=lambda took_s, failed: on_reconciled.append((took_s, failed)))
    assert sorted(failed for _, failed in on_reconciled) == [False, False, True]
    assert min(took_s for took_s, _ in on_reconciled) >= 0


def test_its_length_is_what_is_due_now_not_what_comes_later() -> None:
    lengths: list[int] = []
    go_on = asyncio.Event()

    async def work(key: str) -> None:
        await go_on.wait()

    async def test(queue: KeyQueue[str]) -> None:
        lengths.append(queue.length)
        queue.add("a", 0)
        queue.add("b", 0)
        queue.add("a-minute-later", 60)
        lengths.append(queue.length)
        go_on.set()
        await until(lambda: queue.length == 0)

    run(work, test)
    assert lengths == [0, 2]
