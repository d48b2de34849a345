"""Driver processes of a run: starts, supervises, replaces and stops them."""

import asyncio
import itertools
import json
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headrace.control.flow_actions import target_driver
from headrace.driver import DriverSettings, run_driver
from headrace.driver.herder_link import encode
from headrace.errors import InvalidSpec
from headrace.host import ForkedProcess, ForkServer
from headrace.logs import get_logger
from headrace.standalone.task_store import TaskStore
from headrace.timing import Backoff

Samples = list[tuple[str, list[str], float]]
"""Name of a metric, values of its labels, and value."""


class DriverProcess:
    """One driver process and the socket to it."""

    def __init__(
        self,
        name: str,
        incarnation: str,
        process: ForkedProcess,
        writer: asyncio.StreamWriter,
        rack: str = "",
    ) -> None:
        self.name = name
        self.rack = rack
        """Rack of the driver, such as a zone. Empty if unknown."""
        self.incarnation = incarnation
        self.process = process
        self.leaving = False
        """True if the driver must leave. It gets no units, and is stopped when it holds none."""
        self.last_beat: float | None = None
        """Monotonic time of the last heartbeat.

        None before the first one, and if the driver is lost.
        """
        self.joined = False
        """True if the driver has ever sent a heartbeat."""
        self._writer = writer
        self._requests = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Samples]] = {}

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message. If the socket is closed, the message is dropped."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def samples(self, timeout_s: float) -> Samples:
        """Return the samples of the driver's units.

        Empty if the driver does not respond in time.
        """
        request = next(self._requests)
        asked = self._asked[request] = asyncio.get_running_loop().create_future()
        self.send({"event": "samples", "id": request})
        try:
            return await asyncio.wait_for(asked, timeout_s)
        except TimeoutError:
            return []
        finally:
            del self._asked[request]

    def take_samples(self, message: Mapping[str, Any]) -> None:
        """Receive the response to a request for samples."""
        asked = self._asked.get(message["request"])
        if asked is not None and not asked.done():
            asked.set_result(message["samples"])

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.kill()

    def freeze(self, lasts_s: float) -> None:
        """Stop the process for ``lasts_s`` seconds with SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)
        thaw = partial(self.process.send_signal, signal.SIGCONT)
        asyncio.get_running_loop().call_later(lasts_s, thaw)

    def close(self) -> None:
        """Close the socket, so that the driver stops."""
        self._writer.close()


log = get_logger(__name__)

_LINE_LIMIT = 64 << 20


@dataclass(frozen=True)
class RespawnTimes:
    """Times, in seconds, of the replacement of drivers that end."""

    delay_s: float = 1.0
    """Delay before the first replacement. It doubles with each driver that ends early."""
    max_delay_s: float = 30.0
    """Longest delay, however many drivers end early."""
    healthy_s: float = 10.0
    """Running time after which a driver that ends is replaced without delay."""


OnCall = Callable[[DriverProcess, str, Mapping[str, Any]], dict[str, Any]]


def driver_server() -> ForkServer:
    """Return the server that starts the drivers of a run."""
    return ForkServer(run_driver, "headrace drivers")


class Fleet:
    """Group of ``size`` drivers.

    A driver that ends is replaced by a driver with a new name, so that its units move at once.
    """

    def __init__(
        self,
        server: ForkServer,
        size: int,
        lease_s: float,
        log_file: Path | None,
        secrets: Path | None = None,
        *,
        on_joined: Callable[[DriverProcess], None],
        on_left: Callable[[DriverProcess], None],
        on_call: OnCall,
        log_format: str = "logfmt",
        racks: Sequence[str] = (),
        respawn_times: RespawnTimes = RespawnTimes(),
    ) -> None:
        """Create a fleet without drivers. ``start`` starts them.

        Args:
            server: Starts the processes, and is closed with the fleet.
            size: Number of drivers.
            lease_s: Time without a heartbeat after which a driver is lost.
            log_file: File for the drivers' output, or None for this process's standard error.
            secrets: Folder of Secrets that they read.
            on_joined: Called at the first heartbeat of a driver.
            on_left: Called when a driver is lost.
            on_call: Answers a driver's calls.
            log_format: One of ``logs.FORMATS``.
            racks: Racks that are assigned to the drivers in turn.
            respawn_times: Times of the replacement of drivers that end.
        """
        self._server, self._respawn_times = server, respawn_times
        self._log_format = log_format
        self._in_rack = dict.fromkeys(racks, 0)
        """Number of drivers in each rack."""
        self.size = size
        """Desired number of drivers."""
        self._log_file = log_file
        self._secrets = secrets
        self._lease_s = lease_s
        self._on_joined, self._on_left, self._on_call = on_joined, on_left, on_call
        self._drivers: dict[str, DriverProcess] = {}
        self._starting = 0
        self._numbers = itertools.count(1)
        self._serving: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.failure: asyncio.Future[None]

    def alive(self) -> list[DriverProcess]:
        """Return the drivers that sent a heartbeat within the lease."""
        return [driver for driver in self._drivers.values() if driver.last_beat is not None]

    def ready(self) -> list[DriverProcess]:
        """Return the live drivers that may have units. Drivers that are leaving are excluded."""
        return [driver for driver in self.alive() if not driver.leaving]

    def get(self, name: str) -> DriverProcess | None:
        """Return a driver whose process runs, or None."""
        return self._drivers.get(name)

    def resize(self, size: int) -> None:
        """Set the number of drivers. If there are too many, the youngest ones leave."""
        staying = [driver for driver in self._drivers.values() if not driver.leaving]
        for _ in range(size - self.size):
            self._keep(self._spawn_and_serve())
        for driver in staying[size:]:
            driver.leaving = True
        self.size = size

    def roll(self) -> None:
        """Replace all drivers.

        The same number of new drivers starts, and each old one leaves when it holds no unit.
        """
        for driver in self._drivers.values():
            driver.leaving = True
        for _ in range(self.size - self._starting):
            self._keep(self._spawn_and_serve())

    async def start(self) -> None:
        """Start all drivers. ``failure`` completes with an error if a driver cannot be started."""
        self.failure = asyncio.get_running_loop().create_future()
        self._server.open()
        for _ in range(self.size):
            self._keep(self._spawn_and_serve())

    def expire(self, now: float, forgive: bool) -> None:
        """Declare drivers without heartbeats lost.

        With ``forgive``, restart their time limits instead.
        """
        for driver in self.alive():
            if forgive:
                driver.last_beat = now
            elif driver.last_beat is not None and now - driver.last_beat > self._lease_s:
                driver.last_beat = None
                self._on_left(driver)

    async def stop(self, timeout_s: float) -> None:
        """Request all drivers to stop. Kill drivers that still run after ``timeout_s``."""
        self._stopping = True
        for driver in self._drivers.values():
            driver.send({"event": "stop"})
        deadline = time.monotonic() + timeout_s
        while self._drivers and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        for driver in list(self._drivers.values()):
            log.warning("driver did not stop in time, killed", driver=driver.name)
            driver.kill()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await asyncio.to_thread(self._server.close)

    def _keep(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._serving.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._serving.discard(task)
        if not task.cancelled() and (error := task.exception()) and not self.failure.done():
            self.failure.set_exception(error)

    async def _spawn_and_serve(self) -> None:
        """Start and serve a driver. Replace it when it ends, as long as the fleet needs it."""
        times = self._respawn_times
        backoff = Backoff(times.delay_s, times.max_delay_s, jitter=False)
        while not self._stopping:
            started = time.monotonic()
            self._starting += 1
            try:
                reader, driver = await self._spawn()
            finally:
                self._starting -= 1
            self._drivers[driver.name] = driver
            try:
                await self._serve(reader, driver)
            finally:
                await self._ended(driver)
            healthy = time.monotonic() - started > times.healthy_s
            if healthy:
                backoff.reset()
            if driver.leaving:
                return
            if not self._stopping and not healthy:
                await asyncio.sleep(backoff.next_s())
            staying = sum(not one.leaving for one in self._drivers.values())
            if staying + self._starting >= self.size:
                return  # no replacement after a resize

    async def _spawn(self) -> tuple[asyncio.StreamReader, DriverProcess]:
        ours, theirs = socket.socketpair()
        name, incarnation = f"driver-{next(self._numbers)}", uuid.uuid4().hex[:8]
        rack = self._next_rack()
        settings = DriverSettings(
            name=name,
            incarnation=incarnation,
            lease_s=self._lease_s,
            log_format=self._log_format,
            rack=rack,
            secrets=str(self._secrets) if self._secrets is not None else None,
        )
        title = f"headrace driver --name {name} --incarnation {incarnation}"
        title += f" --rack {rack}" if rack else ""
        with theirs, ExitStack() as files:
            log_file = files.enter_context(self._log_file.open("ab")) if self._log_file else None
            process = self._server.start(
                title,
                settings.to_json(),
                link=theirs.fileno(),
                log=log_file.fileno() if log_file else None,
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=_LINE_LIMIT)
        return reader, DriverProcess(name, incarnation, process, writer, rack)

    def _next_rack(self) -> str:
        """Return the rack with the fewest drivers, or empty without racks."""
        rack = min(self._in_rack, key=self._in_rack.__getitem__, default="")
        if rack:
            self._in_rack[rack] += 1
        return rack

    async def _serve(self, reader: asyncio.StreamReader, driver: DriverProcess) -> None:
        # A closed socket, or an incomplete line of a killed driver, ends the driver.
        with suppress(ConnectionError, json.JSONDecodeError):
            while line := await reader.readline():
                message = json.loads(line)
                known = driver.last_beat is not None
                driver.last_beat = time.monotonic()
                if not known:
                    driver.joined = True
                    self._on_joined(driver)
                if message["call"] == "samples":
                    driver.take_samples(message)
                elif message["call"] != "beat":
                    answer = self._on_call(driver, message["call"], message)
                    driver.send({"id": message["id"], **answer})

    async def _ended(self, driver: DriverProcess) -> None:
        driver.close()
        with suppress(asyncio.CancelledError):
            await asyncio.to_thread(self._reap, driver)
        del self._drivers[driver.name]
        if driver.rack:
            self._in_rack[driver.rack] -= 1
        if self._stopping:
            return
        if not driver.joined:
            code = driver.process.returncode
            log.warning("driver ended before it joined", driver=driver.name, code=code)
        elif driver.last_beat is not None:  # otherwise it was declared lost earlier
            driver.last_beat = None
            self._on_left(driver)

    def _reap(self, driver: DriverProcess) -> None:
        try:
            driver.process.wait(1.0)
        except subprocess.TimeoutExpired:
            driver.kill()  # without its socket it cannot do any work
            driver.process.wait()


_LEASES_FROZEN = 2
"""Duration of a freeze, as a multiple of the lease. A driver is lost after one lease."""


class DriverFaults:
    """Faults of drivers, for mirror tests. They hit the driver with most source tasks of a flow."""

    def __init__(self, fleet: Fleet, store: TaskStore, lease_s: float) -> None:
        self._fleet, self._store, self._lease_s = fleet, store, lease_s

    def kill(self, flow: str) -> dict[str, Any]:
        """Kill the driver with SIGKILL."""
        victim, broken = self._victim(flow)
        victim.kill()
        return broken

    def freeze(self, flow: str) -> dict[str, Any]:
        """Freeze the driver until others have claimed its units.

        Raise ``InvalidSpec`` if there is no other driver.
        """
        victim, broken = self._victim(flow)
        if len(self._fleet.ready()) < 2:
            raise InvalidSpec(
                f"no driver can take the units of driver {victim.name} while it is frozen: the run "
                "has no other; set spec.drivers.replicas to 2 or more"
            )
        lasts_s = _LEASES_FROZEN * self._lease_s
        victim.freeze(lasts_s)
        return {**broken, "lastsSeconds": lasts_s}

    def _victim(self, flow: str) -> tuple[DriverProcess, dict[str, Any]]:
        alive = {driver.name: driver for driver in self._fleet.alive()}
        victim = alive[target_driver(self._store.of_flow(flow), alive, flow)]
        units = [
            task.metadata.name
            for task in self._store.of_flow(flow)
            if task.status.driver_name == victim.name
        ]
        return victim, {
            "driver": victim.name,
            "pid": victim.pid,
            "timeMs": int(time.time() * 1000),
            "units": sorted(units),
        }
