"""Driver process of ``headrace run``: main loop and garbage collection."""

import ctypes
import gc
import json
import os
import queue
import signal
import socket
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from headrace import logs
from headrace.api import ReplicationFlow, ReplicationTask
from headrace.connect import DriverIdentity, Worker
from headrace.driver.herder_link import HerderLink
from headrace.driver.metrics import unit_samples
from headrace.errors import Retriable
from headrace.logs import get_logger

# Full garbage collections at intervals. An error refers to the frames that it passed, which may
# refer to the error and to a librdkafka client with its threads and buffers. Only a full collection
# frees such a cycle. Python starts one only when the number of objects has grown by a quarter, and
# a driver that copies keeps few objects. glibc keeps freed memory between used blocks. Without the
# trim, a driver stays as large as at its peak.

_INTERVAL_S = 20.0


def collect_regularly(interval_s: float = _INTERVAL_S) -> None:
    """Start a thread that collects garbage at intervals.

    A thread is needed because freeing a client may wait for its brokers.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only in glibc
    gc.freeze()  # collections skip the objects that exist now

    def run() -> None:
        pause = threading.Event()
        while not pause.wait(interval_s):
            gc.collect()
            if trim is not None:
                trim(0)

    threading.Thread(target=run, name="garbage", daemon=True).start()


_STOP_TIMEOUT_S = 4.0
"""Time limit for stopping the Workers, in seconds. The herder kills the process after 4.5 s."""

_MALLOC = {
    "MALLOC_TRIM_THRESHOLD_": (-1, 1 << 20),
    "MALLOC_MMAP_THRESHOLD_": (-3, 1 << 20),
    "MALLOC_ARENA_MAX": (-8, 2),
}
"""Parameter and value of mallopt(3), by the environment variable that sets it."""

log = get_logger(__name__)

_Event = dict[str, Any]
_CLOSED: _Event = {"event": "closed"}
_STOP: _Event = {"event": "stop"}


@dataclass(frozen=True)
class DriverSettings:
    """Settings that a run passes to a driver at its start."""

    name: str
    incarnation: str
    lease_s: float
    log_format: str
    rack: str = ""
    secrets: str | None = None
    """Folder of Secrets, ``<name>/<key>``."""

    def to_json(self) -> str:
        """Return these settings as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the settings that ``to_json`` has written."""
        return cls(**json.loads(text))


def run_driver(settings: str, link: int) -> int:
    """Serve the herder at the other end of ``link`` until it sends ``stop`` or has ended.

    Args:
        settings: ``DriverSettings`` as JSON.
        link: File descriptor of the socket.

    Returns:
        The exit code after an error. Without an error, the process ends before the return.
    """
    start = DriverSettings.from_json(settings)
    logs.configure(format=start.log_format)
    logs.follow_signals()
    _limit_memory()
    collect_regularly()
    with socket.socket(fileno=link) as line:
        _serve(line, start)
    return 1


def _limit_memory() -> None:
    """Set the malloc parameters that the image sets by environment variables.

    Variables that a user has set take precedence. Clients start and stop threads, and with a glibc
    arena for each thread, memory only grows. Response buffers are mapped individually, so that
    freed buffers return to the system. By default, glibc raises the threshold for mapping when the
    first mapped buffer is freed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only in glibc
    for variable, (parameter, value) in _MALLOC.items():
        if mallopt is not None and variable not in os.environ:
            mallopt(parameter, value)


def _serve(line: socket.socket, start: DriverSettings) -> None:
    events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
    signal.signal(signal.SIGTERM, lambda *_: events.put(_STOP))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the herder handles Ctrl-C
    link = HerderLink(line, on_event=events.put, on_closed=lambda: events.put(_CLOSED))
    _beat(link, start.lease_s / 6)

    identity = DriverIdentity(start.name, start.incarnation, start.rack)
    secrets = Path(start.secrets) if start.secrets else None
    workers: dict[str, Worker] = {}
    while True:
        event = events.get()
        match event["event"]:
            case "flows":
                for document in event["flows"]:
                    flow = ReplicationFlow.model_validate(document)
                    if (worker := workers.get(flow.metadata.name)) is None:
                        workers[flow.metadata.name] = Worker(flow, link, identity, secrets)
                    else:
                        worker.change_flow(flow)
            case "tasks":
                _update_workers(event["tasks"], workers)
            case "restart":
                for worker in workers.values():
                    worker.restart(event["task"])
            case "samples":
                _answer_samples(link, event["id"], workers)
            case "log-level":
                logs.set_level(event["level"])
            case "stop":
                break
            case "closed":
                log.warning("the herder has ended: stopping", driver=identity.name)
                break
    _stop(workers)


def _beat(link: HerderLink, interval_s: float) -> None:
    """Send heartbeats from a separate thread.

    They show that the process lives, not that it copies.
    """
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(interval_s):
            try:
                link.beat()
            except Retriable:
                return  # the reader reports that the line is closed

    link.beat()
    threading.Thread(target=beat, name="heartbeat", daemon=True).start()


def _update_workers(documents: list[_Event], workers: dict[str, Worker]) -> None:
    by_flow: dict[str, list[ReplicationTask]] = defaultdict(list)
    for document in documents:
        task = ReplicationTask.model_validate(document)
        by_flow[task.spec.flow_name].append(task)
    for name, worker in workers.items():
        worker.update(by_flow[name])


def _answer_samples(link: HerderLink, request: int, workers: dict[str, Worker]) -> None:
    samples = [
        (metric.name, labels, value)
        for name, worker in workers.items()
        for metric, labels, value in unit_samples(worker.namespace, name, worker.figures())
    ]
    with suppress(Retriable):  # the reader reports that the line is closed
        link.send_samples(request, samples)


def _stop(workers: dict[str, Worker]) -> None:
    threads = [
        threading.Thread(target=worker.stop, args=(_STOP_TIMEOUT_S,), daemon=True)
        for worker in workers.values()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_STOP_TIMEOUT_S + 0.5)
    # Threads of librdkafka that wait for a broker must not prevent the end of the process.
    os._exit(0)
