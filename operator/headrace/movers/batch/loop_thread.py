"""The one thread of a process in which all batch lanes read, send and receive."""

import os
import threading

from headrace.kafka.wire import Buffers, EventLoop, Scanner
from headrace.logs import get_logger
from headrace.movers.batch.joining import Joiner
from headrace.movers.batch.memory import Memory

log = get_logger(__name__)

_KEPT_BYTES = 40 << 20
"""Maximum size of kept buffers, including buffers in use: more than lanes may hold."""
_TRIM_S = 10.0


class LoopThread:
    """A loop that runs until the process ends, and what its lanes share."""

    def __init__(self) -> None:
        self.loop = EventLoop()
        self.buffers = Buffers(_KEPT_BYTES)
        self.memory = Memory()
        self.joiner = Joiner(self.buffers, self.memory, self.loop.now_s)
        self.scanner = Scanner()
        threading.Thread(target=self._run, name="headrace-batches", daemon=True).start()

    def _trim(self) -> None:
        self.buffers.trim()
        self.loop.call_later(_TRIM_S, self._trim)

    def _run(self) -> None:
        try:
            self._trim()
            while True:
                self.loop.run_once(60.0)
        except Exception:
            # Lanes without a loop would look alive. The driver must end visibly.
            log.exception("internal error, the driver ends: please report it")
            os._exit(1)


_making = threading.Lock()
_shared: list[LoopThread] = []


def shared_loop() -> LoopThread:
    """Return the thread of this process; the first lane starts it."""
    with _making:
        if not _shared:
            _shared.append(LoopThread())
        return _shared[0]
