"""Component that another process can find."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.component import Daemon

from headrace.errors import Fatal

SAYS_AND_STAYS = "import os, signal; print(os.environ.get('LISTENER'), flush=True); signal.pause()"


def daemon(folder: Path, script: str = SAYS_AND_STAYS) -> Daemon:
    log = folder / "waiter.log"
    return Daemon(
        [sys.executable, "-c", script], log, lambda: log.exists() and bool(log.read_text())
    )


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Daemon]:
    started = daemon(tmp_path)
    started.start()
    yield started
    started.kill()


def test_one_object_ends_what_another_started(started: Daemon, tmp_path: Path) -> None:
    other = daemon(tmp_path)
    assert other.running
    other.freeze()
    assert other.running, "frozen is not ended"
    other.stop()
    assert not started.running


def test_a_start_leaves_what_runs(started: Daemon, tmp_path: Path) -> None:
    pid_file = started.log.with_suffix(".pid")
    before = pid_file.read_text()
    daemon(tmp_path).start()
    assert pid_file.read_text() == before


def test_a_later_process_of_the_same_pid_is_not_it(started: Daemon) -> None:
    pid_file = started.log.with_suffix(".pid")
    mine = pid_file.read_text()
    pid_file.write_text(f"{mine.split()[0]} 1")
    assert not started.running
    with pytest.raises(Fatal, match="waiter does not run"):
        started.freeze()
    pid_file.write_text(mine)


def test_its_last_words(tmp_path: Path) -> None:
    failing = daemon(tmp_path, "exit('no such flag')")
    failing.is_ready = lambda: False
    with pytest.raises(
        Fatal, match=r"(?s)waiter ended while it started: no such flag.*waiter\.log"
    ):
        failing.start()


def test_it_inherits_a_socket(tmp_path: Path) -> None:
    relay = daemon(tmp_path)
    relay.listen = ("127.0.0.1", 0)
    relay.start()
    relay.kill()
    assert int(relay.log.read_text()) > 2
