"""Driver processes come and go; no broker is needed for that."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.patience import WITHIN_S

from headrace.standalone.fleet import DriverProcess, Fleet, RespawnTimes, driver_server


class Recorder:
    """Events of the fleet about its drivers."""

    def __init__(self) -> None:
        self.joined: list[DriverProcess] = []
        self.left: list[DriverProcess] = []

    def called(self, *_: Any) -> dict[str, Any]:
        raise AssertionError("nobody asks anything here")


async def eventually(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running_fleet(
    log: Path | None = None, **options: Any
) -> AsyncIterator[tuple[Fleet, Recorder]]:
    """Yield a fleet of one driver, which has joined; ``log`` is the file of all drivers.

    ``options`` are further arguments of the fleet.
    """
    events = Recorder()
    fleet = Fleet(
        driver_server(),
        1,
        3.0,
        log,
        on_joined=events.joined.append,
        on_left=events.left.append,
        on_call=events.called,
        **options,
    )
    await fleet.start()
    try:
        await eventually(lambda: events.joined)
        yield fleet, events
    finally:
        await fleet.stop(5)


def test_a_driver_that_froze_and_then_ended_is_lost_once_and_replaced() -> None:
    async def scene() -> None:
        async with running_fleet() as (fleet, events):
            first = events.joined[0]
            first.process.send_signal(signal.SIGSTOP)
            await eventually(lambda: time.monotonic() - (first.last_beat or 0) > 1)
            fleet.expire((first.last_beat or 0) + 4, forgive=False)
            assert events.left == [first]
            assert fleet.ready() == []
            first.kill()
            await eventually(lambda: [driver.name for driver in fleet.ready()] == ["driver-2"])
            assert events.left == [first]
            fleet.ready()[0].kill()
            await eventually(lambda: len(events.left) == 2)

    asyncio.run(scene())


def test_a_driver_that_ran_for_long_is_replaced_at_once() -> None:
    respawn_times = RespawnTimes(delay_s=3_600.0, healthy_s=0.0)

    async def scene() -> None:
        async with running_fleet(respawn_times=respawn_times) as (fleet, _):
            fleet.ready()[0].kill()
            await eventually(lambda: [driver.name for driver in fleet.ready()] == ["driver-2"])

    asyncio.run(scene())


def test_drivers_are_rolled_and_the_old_one_stays_until_it_is_stopped() -> None:
    async def scene() -> None:
        async with running_fleet() as (fleet, events):
            (first,) = fleet.ready()
            fleet.roll()
            await eventually(lambda: [driver.name for driver in fleet.ready()] == ["driver-2"])
            assert first in fleet.alive(), "it may still hold units"
            first.send({"event": "stop"})
            await eventually(lambda: events.left == [first])
            assert [driver.name for driver in fleet.alive()] == ["driver-2"]

    asyncio.run(scene())


def test_the_log_of_a_driver_that_aborts_has_its_stacks(tmp_path: Path) -> None:
    log = tmp_path / "drivers.log"

    async def scene() -> None:
        async with running_fleet(log) as (_, events):
            events.joined[0].process.send_signal(signal.SIGABRT)
            await eventually(lambda: events.left)

    asyncio.run(scene())
    assert "Fatal Python error: Aborted" in log.read_text()
