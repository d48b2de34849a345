"""The queue: each key once, none twice at a time, failures again and again."""

import asyncio
from collections.abc import Awaitable, Callable

from headrace.controller.queue import KeyQueue
from headrace.errors import Retriable

Work = Callable[[str], Awaitable[float | None]]


async def until(said: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not said():
            await asyncio.sleep(0.01)


def run(
    work: Work,
    test: Callable[[KeyQueue[str]], Awaitable[None]],
    heard: Callable[[float, bool], None] = lambda took_s, failed: None,
) -> None:
    async def main() -> None:
        queue = KeyQueue[str](on_reconciled=heard)
        running = asyncio.create_task(queue.run(work))
        await test(queue)
        assert not running.done()
        running.cancel()

    asyncio.run(main())


def test_a_swarm_of_changes_is_one_look() -> None:
    looks: list[str] = []

    async def work(key: str) -> None:
        looks.append(key)

    async def test(queue: KeyQueue[str]) -> None:
        for _ in range(100):
            queue.add("a")
        queue.add("b")
        await until(lambda: len(looks) >= 2)

    run(work, test)
    assert sorted(looks) == ["a", "b"]


def test_what_changes_during_a_look_is_looked_at_again_but_not_at_once() -> None:
    at_once = most = looks = 0

    async def work(key: str) -> None:
        nonlocal at_once, most, looks
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.1)
        at_once -= 1
        looks += 1

    async def test(queue: KeyQueue[str]) -> None:
        queue.add("a", 0)
        await until(lambda: at_once == 1)
        queue.add("a", 0)
        await until(lambda: looks == 2)

    run(work, test)
    assert most == 1


def test_a_failure_is_tried_again_and_stops_nobody_else() -> None:
    looks: list[str] = []

    async def work(key: str) -> None:
        looks.append(key)
        if key == "fails" and looks.count(key) < 3:
            raise Retriable("not now")
        if key == "faulty" and looks.count(key) < 2:
            raise ZeroDivisionError

    async def test(queue: KeyQueue[str]) -> None:
        for key in ("fails", "faulty", "well"):
            queue.add(key)
        await until(lambda: (looks.count("fails"), looks.count("faulty")) == (3, 2))

    run(work, test)
    assert looks.count("well") == 1


def test_a_look_says_when_it_wants_the_next() -> None:
    looks = 0

    async def work(key: str) -> float | None:
        nonlocal looks
        looks += 1
        return 0.01 if looks < 4 else None

    async def test(queue: KeyQueue[str]) -> None:
        queue.add("a")
        await until(lambda: looks == 4)

    run(work, test)


def test_each_look_is_told_with_its_end_and_its_duration() -> None:
    heard: list[tuple[float, bool]] = []

    async def work(key: str) -> None:
        if key == "fails" and not any(failed for _, failed in heard):
            raise Retriable("not now")

    async def test(queue: KeyQueue[str]) -> None:
        queue.add("well")
        queue.add("fails")
        await until(lambda: len(heard) == 3)

    run(work, test, heard=lambda took_s, failed: heard.append((took_s, failed)))
    assert sorted(failed for _, failed in heard) == [False, False, True]
    assert min(took_s for took_s, _ in heard) >= 0


def test_its_length_is_what_wants_a_look_now_not_what_comes_later() -> None:
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
