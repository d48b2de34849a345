"""Child processes that end with their parent, even if the parent is killed with -9.

``spawn`` runs this file as a script. The script requests a signal at the parent's death
(PR_SET_PDEATHSIG of prctl(2), which survives an exec), and then executes the command. The script
uses only the standard library, so it takes only about 20 ms.

The parent in prctl(2) is the *thread* that forked. The signal is sent when that thread ends, even
if its process continues. Therefore one thread, which lives as long as the process, forks all
children.
"""

import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def spawn(
    command: Sequence[str | Path],
    *,
    at_parents_death: signal.Signals | None = signal.SIGKILL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start ``command`` without input, in its own session, so that Ctrl-C does not reach it.

    Any thread may call this function.

    Args:
        command: Program and arguments. If the program cannot be executed, the child exits with code
            127, as in a shell, unless ``at_parents_death`` is None.
        at_parents_death: Signal that the child receives when this process ends for any reason. With
            None, the child outlives this process, and ``OSError`` is raised if the program cannot
            be executed.
        stdout: As for ``subprocess.Popen``.
        stderr: As for ``subprocess.Popen``.
        env: As for ``subprocess.Popen``.
        cwd: As for ``subprocess.Popen``.
        pass_fds: As for ``subprocess.Popen``.
    """
    argv = [os.fspath(part) for part in command]
    if at_parents_death is not None:
        launcher = [sys.executable, "-I", "-S", __file__, str(at_parents_death.value)]
        argv = [*launcher, str(os.getpid()), *argv]
    child: Future[subprocess.Popen[bytes]] = Future()

    def fork() -> None:
        try:
            child.set_result(
                subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env=env,
                    cwd=cwd,
                    pass_fds=pass_fds,
                    start_new_session=True,
                )
            )
        except OSError as error:
            child.set_exception(error)

    _forker(os.getpid()).put(fork)
    try:
        return child.result()
    except KeyboardInterrupt:
        child.add_done_callback(_kill)  # no other code has a reference to it
        raise


def _kill(child: "Future[subprocess.Popen[bytes]]") -> None:
    if not child.exception():
        child.result().kill()


@cache
def _forker(pid: int) -> "queue.SimpleQueue[Callable[[], None]]":
    """Return the queue of the thread that forks, a daemon thread that ends with the process.

    ``pid`` is the id of this process. It is the key of the cache: after a fork, the child needs a
    new queue and thread, because threads do not survive a fork.
    """
    work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run() -> None:
        while True:
            work.get()()

    threading.Thread(target=run, name=f"headrace-forker-{pid}", daemon=True).start()
    return work


def _become(death_signal: int, parent: int, command: list[str]) -> None:
    """Set the signal, check that the parent is alive, and execute ``command``."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit(
            f"process {parent} ended before it could set the parent-death signal of {command[0]}"
        )
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201 - a script here
        sys.exit(127)


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
