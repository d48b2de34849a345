"""The experiments of ``headrace test compare-mirrors``: kafka-mirror-tester's table, row by row.

Each is the load and the steps of chaos of one MirrorTest. The steps are only such as ``headrace
verify`` can do to anybody's mirror, so that both mirrors are treated, and judged, alike.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Step = dict[str, Any]
_FIRST_S = 10
"""Seconds of the load before the first fault."""
_LASTS_S = 10
_APART_S = 20
"""Between the faults of a load that has all of them."""
_AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]
_LOSS = ["INPUT", "-i", "lo", "-m", "statistic", "--mode", "random", "--probability", "0.1"]
"""Of iptables; netem would be the usual way, but few kernels of containers have it."""


class Workers(Protocol):
    """What experiments need to know of a mirror: the commands that break it."""

    @property
    def one_more(self) -> Sequence[str]:
        """Adds a worker."""
        ...

    @property
    def one_less(self) -> Sequence[str]:
        """Kills a worker."""
        ...

    def signal_all(self, signal: str) -> Sequence[str]:
        """Sends a signal to all workers."""
        ...


@dataclass(frozen=True)
class Experiment:
    """One row."""

    name: str
    title: str
    steps: Callable[[Workers], list[Step]]
    """Their times count from the first fault."""
    settle_s: int = 120
    is_of_machine: bool = False
    """Whether its fault affects everything on this machine."""


def chaos_of(experiments: Sequence[Experiment], workers: Workers) -> list[Step]:
    """The steps of these experiments, one after the other."""
    found, begins_s = [], _FIRST_S
    for experiment in experiments:
        steps = experiment.steps(workers)
        found += [step | {"atSeconds": begins_s + step["atSeconds"]} for step in steps]
        begins_s += _APART_S if steps else 0
    return found


def load_s(steps: Sequence[Step]) -> int:
    """How long the load must last."""
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
        "The target has a broker less, for good",
        _broker("Target", returns=False),
    ),
    Experiment(
        "kill-worker",
        "A worker is killed",
        lambda workers: [_command(0, *workers.one_less)],
        # MirrorMaker 2 waits five minutes for it (scheduled.rebalance.max.delay.ms).
        settle_s=420,
    ),
    Experiment(
        "packet-loss",
        "10 % of the packets are lost for 10 s",
        _lose_packets,
        is_of_machine=True,
    ),
)
