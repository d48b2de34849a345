"""Nodes of MirrorMaker 2 during a comparison of mirrors."""

import signal
import subprocess
from collections.abc import Callable
from typing import Any

from support.patience import WITHIN_S

from headrace.cli.compare_experiments import WORKERS, MirrorMaker2
from headrace.sandbox import Sandbox


def test_restore_replaces_a_killed_node_and_ends_an_added_node(
    sandbox: Sandbox, wait_until: Callable[..., Any]
) -> None:
    earlier = {one.pid for one in sandbox.companions}

    def running() -> set[int]:
        return {one.pid for one in sandbox.companions} - earlier

    mirror = MirrorMaker2(sandbox)
    try:
        nodes, killed = running(), int(mirror.one_less[-1])
        with subprocess.Popen(["sleep", "600"]) as added:
            sandbox.adopt(added.pid, "added node")
            subprocess.run(mirror.one_less, check=True)
            wait_until(lambda: killed not in running())
            mirror.restore()
            assert added.wait(WITHIN_S) == -signal.SIGTERM
        assert nodes - running() == {killed}
        assert len(running()) == WORKERS
    finally:
        subprocess.run(mirror.signal_all("KILL"), check=True)
        wait_until(lambda: not running())
