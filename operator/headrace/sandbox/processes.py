"""Processes of a sandbox, and the ports that they listen on."""

import errno
import random
import signal
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

from headrace.errors import Fatal, InvalidSpec
from headrace.host import write_whole

KILL_GRACE_PERIOD_S = 10
"""Time in seconds for a killed process to end. It ends at once unless the kernel waits for a
disk."""


class ProcessRecord(BaseModel):
    """Process id and start time, which identify a process uniquely."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    pid: int
    started: str
    """Id of the boot, and the start in clock ticks since the boot.

    Changes of the wall clock do not affect it.
    """

    @classmethod
    def of(cls, pid: int, label: str) -> "ProcessRecord":
        """Return the record of a running process. Raise ``Fatal`` if it has ended."""
        started = _started(pid)
        if started is None:
            raise Fatal(f"{label}: process {pid} has ended")
        return cls(label=label, pid=pid, started=started)

    @classmethod
    def read(cls, path: Path) -> "ProcessRecord | None":
        """Return the record in ``path``, or None if there is no such file."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None

    def write(self, path: Path) -> None:
        """Store the record in ``path``."""
        write_whole(path, self.model_dump_json().encode())

    def find(self) -> psutil.Process | None:
        """Return the process if it still runs, or None.

        Another process with the same id is not returned.
        """
        try:
            process = psutil.Process(self.pid)
        except psutil.NoSuchProcess:
            return None
        return process if _started(self.pid) == self.started and not _is_over(process) else None


def _started(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc_pid_stat(5): starttime is field 22. Field 2, the name, may contain spaces and brackets.
    ticks = stat.rpartition(")")[2].split()[19]
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}:{ticks}"


def end(processes: Iterable[psutil.Process], how: signal.Signals, grace_s: float) -> None:
    """Send a signal to all processes and wait. Kill processes that still run after ``grace_s``.

    Raise ``Fatal`` if a killed process does not end.
    """
    left = list(processes)
    for signal_number, patience_s in ((how, grace_s), (signal.SIGKILL, KILL_GRACE_PERIOD_S)):
        for process in left:
            with suppress(psutil.NoSuchProcess):  # the process may have ended
                process.send_signal(signal_number)
                process.send_signal(signal.SIGCONT)  # a suspended process does not end
        deadline = time.monotonic() + patience_s
        while (left := [p for p in left if not _ended(p)]) and time.monotonic() < deadline:
            time.sleep(0.02)
    if left:
        raise Fatal(f"kill -9 did not end process {', '.join(str(p.pid) for p in left)}")


def _ended(process: psutil.Process) -> bool:
    ended = _is_over(process)
    with suppress(psutil.TimeoutExpired):
        process.wait(timeout=0)  # collects the exit code if it is a child of this process
    return ended


def _is_over(process: psutil.Process) -> bool:
    """Return True if a process has ended, even if its parent has not waited for it yet.

    A killed JVM becomes a zombie when its main thread ends, while other threads may still write. A
    zombie with several threads therefore counts as running.
    """
    try:
        threads = list(Path(f"/proc/{process.pid}/task").iterdir())
        return len(threads) == 1 and process.status() == psutil.STATUS_ZOMBIE
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return True


HOST = "127.0.0.1"
LOWEST = 10_000


@contextmanager
def held_ports(given: list[int | None]) -> Iterator[list[int]]:
    """Yield the given ports, and a free port for each None.

    Raise ``InvalidSpec``, with the port, if a given port is in use. The ports are held during the
    ``with`` block. Other processes that choose ports in the same way do not get them. The sandbox's
    brokers can use them, because sockets with SO_REUSEADDR share a port as long as one of them
    listens.
    """
    with ExitStack() as held:
        ports = dict[int, int]()
        for index, port in enumerate(given):
            if port is not None:
                if port in ports.values():
                    raise InvalidSpec(
                        f"port {port} is requested twice: give each broker its own port"
                    )
                ports[index] = _hold_given(port, held)
        for index, port in enumerate(given):
            if port is None:
                ports[index] = _hold_any(held)
        yield [ports[index] for index in range(len(given))]


def _hold_given(port: int, stack: ExitStack) -> int:
    holder = stack.enter_context(socket.socket())
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((HOST, port))
    except OSError as error:
        why = (
            "is in use"
            if error.errno == errno.EADDRINUSE
            else f"is not available: {error.strerror}"
        )
        raise InvalidSpec(
            f"port {port} on {HOST} {why}. Set another port, or none to use free ports"
        ) from error
    return port


def _hold_any(stack: ExitStack) -> int:
    """Return a free port below the range that the kernel uses for outgoing connections.

    The kernel could give a port of that range to a client while the port's broker does not run. The
    broker could then not be started again.
    """
    lowest_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    below = range(LOWEST, lowest_ephemeral) or range(LOWEST, 65536)
    for port in random.sample(below, k=len(below)):
        holder = socket.socket()
        try:
            holder.bind((HOST, port))  # without SO_REUSEADDR, to detect other holders
        except OSError:
            holder.close()
            continue
        stack.enter_context(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return port
    raise Fatal(f"no port between {LOWEST} and {lowest_ephemeral} on {HOST} is free")
