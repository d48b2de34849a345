"""Full garbage collections at intervals, and what they free given back to the system.

A client of librdkafka has threads and buffers, and goes with the last reference to it. An error
refers to the frames that it came through, which may refer to the client and to the error: such a
cycle only a full collection frees. Python starts one when objects have grown by a quarter: it does
not count threads, and a driver that copies keeps few objects. glibc keeps what is freed between
other blocks: without the trim, a driver stays as large as its largest burst.
"""

import ctypes
import gc
import threading

_INTERVAL_S = 20.0


def collect_regularly(interval_s: float = _INTERVAL_S) -> None:
    """From now on, in a thread: freeing a client may wait for its brokers."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    gc.freeze()  # what the start has made stays: no collection visits it again

    def run() -> None:
        pause = threading.Event()
        while not pause.wait(interval_s):
            gc.collect()
            if trim is not None:
                trim(0)

    threading.Thread(target=run, name="garbage", daemon=True).start()
