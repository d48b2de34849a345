"""Experiments and mirrors of ``headrace test compare-mirrors``."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import psutil
import yaml

from headrace import __version__
from headrace.cli.sandbox import flow_document
from headrace.control import control
from headrace.errors import GaveUp
from headrace.host import spawn
from headrace.sandbox import Sandbox, start_mirror_maker
from headrace.sandbox.processes import held_ports

# The experiments are the rows of kafka-mirror-tester's table. Each consists of the load and the
# chaos steps of one MirrorTest. Only steps that ``headrace verify`` can apply to any mirror are
# used, so that both mirrors are treated and judged alike.

Step = dict[str, Any]
_FIRST_S = 10
"""Time from the start of the load to the first fault, in seconds."""
_LASTS_S = 10
_APART_S = 20
"""Time in seconds between the first faults of two experiments that share one load."""
_AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]
_LOSS = ["INPUT", "-i", "lo", "-m", "statistic", "--mode", "random", "--probability", "0.1"]
"""Arguments of iptables for packet loss. Few container kernels support the more usual netem."""


class Workers(Protocol):
    """Commands with which experiments break a mirror."""

    @property
    def one_more(self) -> Sequence[str]:
        """Command that adds a worker."""
        ...

    @property
    def one_less(self) -> Sequence[str]:
        """Command that kills a worker."""
        ...

    def signal_all(self, signal: str) -> Sequence[str]:
        """Return the command that sends a signal to all workers."""
        ...


@dataclass(frozen=True)
class Experiment:
    """One experiment, which is a row of the table."""

    name: str
    title: str
    steps: Callable[[Workers], list[Step]]
    """Chaos steps. Their times are relative to the first fault."""
    settle_s: int = 120
    is_of_machine: bool = False
    """True if the fault affects everything on this machine."""


def chaos_of(experiments: Sequence[Experiment], workers: Workers) -> list[Step]:
    """Return the steps of these experiments in sequence."""
    found, begins_s = [], _FIRST_S
    for experiment in experiments:
        steps = experiment.steps(workers)
        found += [step | {"atSeconds": begins_s + step["atSeconds"]} for step in steps]
        begins_s += _APART_S if steps else 0
    return found


def load_s(steps: Sequence[Step]) -> int:
    """Return the required duration of the load, in seconds."""
    return max((step["atSeconds"] for step in steps), default=0) + 2 * _LASTS_S


def _broker(cluster: str, *, returns: bool) -> Callable[[Workers], list[Step]]:
    def steps(_: Workers) -> list[Step]:
        about = {"cluster": cluster, "broker": 2}
        end = "KillBroker" if returns else "StopBroker"
        found = [{"atSeconds": 0, "action": end, **about}]
        if returns:
            found.append({"atSeconds": _LASTS_S, "action": "StartBroker", **about})
        return found

    return steps


def _command(at_s: int, *command: str) -> Step:
    return {"atSeconds": at_s, "action": "RunCommand", "command": list(command)}


def _freeze_all(workers: Workers) -> list[Step]:
    return [
        _command(0, *workers.signal_all("STOP")),
        _command(_LASTS_S, *workers.signal_all("CONT")),
    ]


def _lose_packets(_: Workers) -> list[Step]:
    command = [*_AS_ROOT, "iptables", "-w"]
    return [
        _command(0, *command, "-A", *_LOSS, "-j", "DROP"),
        _command(_LASTS_S, *command, "-D", *_LOSS, "-j", "DROP"),
    ]


EXPERIMENTS = (
    Experiment("steady", "Nothing is broken; records have headers", lambda _: []),
    Experiment(
        "kill-source-broker",
        "A broker of the source is killed, and back 10 s later",
        _broker("Source", returns=True),
    ),
    Experiment(
        "kill-target-broker",
        "A broker of the target is killed, and back 10 s later",
        _broker("Target", returns=True),
    ),
    Experiment(
        "add-worker",
        "A third worker is added",
        lambda workers: [_command(0, *workers.one_more)],
    ),
    Experiment("new-topic", "A topic is added", lambda _: [{"atSeconds": 0, "action": "AddTopic"}]),
    Experiment(
        "more-partitions",
        "Partitions are added",
        lambda _: [{"atSeconds": 0, "action": "AddPartitions", "partitions": 2}],
    ),
    Experiment(
        "under-capacity", "All workers are frozen for 10 s: too few, then enough", _freeze_all
    ),
    Experiment(
        "lose-target-broker",
        "The target loses a broker permanently",
        _broker("Target", returns=False),
    ),
    Experiment(
        "kill-worker",
        "A worker is killed",
        lambda workers: [_command(0, *workers.one_less)],
        # MirrorMaker 2 waits five minutes for a lost worker (scheduled.rebalance.max.delay.ms).
        settle_s=420,
    ),
    Experiment(
        "packet-loss",
        "10 % of the packets are lost for 10 s",
        _lose_packets,
        is_of_machine=True,
    ),
)


TOPICS = r"compared-.*"
WORKERS = 2
_READY_S = 90.0
_HEADRACE = [sys.executable, "-m", "headrace"]


def scale_words(flow: str) -> list[str]:
    """Return the arguments of the command that adds a driver."""
    return ["flow", "scale", str(WORKERS + 1), flow]


def node_words(sandbox: str, settings: Mapping[str, str]) -> list[str]:
    """Return the arguments of the command that adds a MirrorMaker 2 node."""
    sets = [f"--set={key}={value}" for key, value in settings.items()]
    return ["sandbox", "mirror-maker", TOPICS, *sets, "--sandbox", sandbox]


class Flow:
    """``headrace run`` with ``WORKERS`` drivers, as the mirror of an experiment."""

    name = "headrace"

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._flow = f"compared-{sandbox.name}"
        document = flow_document(sandbox, [TOPICS], self._flow)
        document["spec"]["drivers"] = {"replicas": WORKERS}
        file = sandbox.folder / "flow.yaml"
        file.write_text(yaml.safe_dump(document))
        command = [*_HEADRACE, "run", str(file), "--metrics-port", "0"]
        with (sandbox.folder / "flow.log").open("wb") as log:
            self._run = spawn(command, at_parents_death=signal.SIGTERM, stdout=log, stderr=log)
        sandbox.adopt(self._run.pid, "the flow (headrace run)")
        _wait(lambda: self._flow in control.running_flows(), "the flow runs")

    @property
    def version(self) -> str:
        return __version__

    @property
    def one_less(self) -> Sequence[str]:
        """Command that kills the driver that was started last."""
        return ["pkill", "-KILL", "-n", "-P", str(self._server.pid)]

    def signal_all(self, signal: str) -> Sequence[str]:
        return ["pkill", f"-{signal}", "-P", str(self._server.pid)]

    @property
    def _server(self) -> psutil.Process:
        """Process whose children are the drivers."""
        (server,) = psutil.Process(self._run.pid).children()
        return server

    @property
    def _drivers(self) -> Sequence[int]:
        return sorted(driver.pid for driver in self._server.children())

    @property
    def one_more(self) -> Sequence[str]:
        return [*_HEADRACE, *scale_words(self._flow)]

    def restore(self) -> None:
        """Restore the number of drivers. The run itself replaces killed drivers."""
        control.request(self._flow, "scale", drivers=WORKERS)
        _wait(lambda: len(self._drivers) == WORKERS, f"the flow has {WORKERS} drivers")


class MirrorMaker2:
    """MirrorMaker 2 in dedicated mode with ``WORKERS`` nodes (KIP-710) and as many tasks.

    It uses its default settings, except that it looks for new topics every 10 seconds, as headrace
    does, instead of every 10 minutes.
    """

    name = "MirrorMaker 2"

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._nodes = [self._start() for _ in range(WORKERS)]

    @property
    def version(self) -> str:
        """Version according to the name of its jar, or ``?``."""
        (process, *_) = self._nodes
        classpath = " ".join(psutil.Process(process.pid).cmdline())
        found = re.search(r"connect-mirror-([0-9.]+)\.jar", classpath)
        return found[1] if found else "?"

    @property
    def one_less(self) -> Sequence[str]:
        return ["kill", "-KILL", str(self._nodes[-1].pid)]

    def signal_all(self, signal: str) -> Sequence[str]:
        """Return the command that sends a signal to all nodes. It ignores nodes that have died."""
        pids = " ".join(str(node.pid) for node in self._nodes)
        return ["sh", "-c", f"kill -{signal} {pids}; true"]

    @property
    def one_more(self) -> Sequence[str]:
        """Command that adds a node. The node ends with the sandbox or in ``restore``."""
        return [*_HEADRACE, *node_words(self._sandbox.name, self._settings())]

    def restore(self) -> None:
        """Restore the number of nodes."""
        own = {node.pid for node in self._nodes}
        for other in self._sandbox.companions:
            if other.pid not in own:
                with suppress(psutil.NoSuchProcess):
                    psutil.Process(other.pid).terminate()
        self._nodes = [node for node in self._nodes if node.poll() is None]
        while len(self._nodes) < WORKERS:
            self._nodes.append(self._start())

    def _start(self) -> "subprocess.Popen[bytes]":
        source, target = self._sandbox.clusters
        process, _ = start_mirror_maker(self._sandbox, source, target, TOPICS, self._settings())
        return process

    def _settings(self) -> dict[str, str]:
        with held_ports([None]) as (port,):
            pass
        return {
            "refresh.topics.interval.seconds": "10",
            "tasks.max": str(WORKERS),
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{port}",
        }


def _wait(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _READY_S
    while not holds():
        if time.monotonic() > deadline:
            raise GaveUp(f"it did not happen within {_READY_S:.0f} s that {what}")
        time.sleep(0.2)
