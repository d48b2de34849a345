"""One driver process of a run, and the socket to it."""

import asyncio
import itertools
import signal
from collections.abc import Mapping
from functools import partial
from typing import Any

from headrace.driver.herder_link import encode
from headrace.host import ForkedProcess

Samples = list[tuple[str, list[str], float]]
"""Name of a metric, the values of its labels, the value."""


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
        """Where it runs, such as a zone; empty: unknown."""
        self.incarnation = incarnation
        self.process = process
        self.leaving = False
        """Whether it is to leave: it gets no unit, and is stopped when it holds none."""
        self.last_beat: float | None = None
        """Monotonic seconds; ``None`` before the first heartbeat, and when it is taken for lost."""
        self.joined = False
        """Whether it ever sent a heartbeat."""
        self._writer = writer
        self._requests = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Samples]] = {}

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message; a line that is closed shows by its end, not here."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def samples(self, timeout_s: float) -> Samples:
        """What its units measure now; none when it does not answer in time."""
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
        """Its answer to that."""
        asked = self._asked.get(message["request"])
        if asked is not None and not asked.done():
            asked.set_result(message["samples"])

    def kill(self) -> None:
        """Kill -9."""
        self.process.kill()

    def freeze(self, lasts_s: float) -> None:
        """Stop it in the middle of what it does, for so many seconds."""
        self.process.send_signal(signal.SIGSTOP)
        thaw = partial(self.process.send_signal, signal.SIGCONT)
        asyncio.get_running_loop().call_later(lasts_s, thaw)

    def close(self) -> None:
        """Close the socket: the driver stops."""
        self._writer.close()
