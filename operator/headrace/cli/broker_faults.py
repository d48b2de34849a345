"""Faults of a sandbox's brokers, and how long a mirror takes to recover from them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from headrace.api import ChaosAction, ChaosStep, ClusterAccess, Side, TopicPartition
from headrace.chaos import FaultInjector, Injection
from headrace.errors import InvalidSpec
from headrace.kafka import Admin
from headrace.mirror_test import Run
from headrace.sandbox import Broker, Cluster, Sandbox

_ANSWER_S = 1.0
"""How long one question about the target may take: meanwhile nothing else is observed."""


class BrokerFaults:
    """Ends and starts brokers of the run's clusters. The mirror may be anybody's: it has recovered
    when each partition of the target has a message that was sent after the fault, since those
    before it come first."""

    def __init__(self, run: Run, steps: Sequence[ChaosStep]) -> None:
        """Raises ``InvalidSpec`` when a step's broker is not of a sandbox that stays up by itself:
        a broker that another process started would end with this one."""
        self._topics = tuple(run.topics.values())
        self._target = Admin(run.target, _ANSWER_S)
        access = {Side.SOURCE: run.source, Side.TARGET: run.target}
        self._brokers: dict[ChaosStep, Broker] = {
            step: _cluster(access[step.cluster]).broker(step.broker or 1)
            for step in steps
            if step.cluster is not None
        }
        self._down: dict[str, Broker] = {}
        """Those that were ended and not started since."""

    def inject(self, step: ChaosStep) -> Injection:
        """See ``FaultInjector``. A broker that is started is not waited for."""
        broker, at_ms = self._brokers[step], time.time_ns() // 1_000_000
        if step.action is ChaosAction.START_BROKER:
            broker.launch()
            self._down.pop(str(broker), None)
        elif broker.process is None:
            raise InvalidSpec(f"{broker} is down already")
        else:
            end = broker.kill if step.action is ChaosAction.KILL_BROKER else broker.stop
            end()
            self._down[str(broker)] = broker
        return Injection(at_ms, partial(self._has_arrived, at_ms), driver=str(broker))

    def restore(self) -> None:
        """Start the brokers that are still down."""
        for broker in self._down.values():
            broker.launch()

    def _has_arrived(self, since_ms: int) -> bool:
        """Whether each partition of the target has a message of that time, or later."""
        there = self._target.topics()
        partitions = [
            TopicPartition(name, number)
            for name in self._topics
            for number in range(there.get(name, 0))
        ]
        firsts = self._target.offsets_at(partitions, since_ms)
        return there.keys() >= set(self._topics) and all(at >= 0 for at in firsts.values())


@dataclass(frozen=True)
class LocalFaults:
    """Faults of drivers and of brokers, on one machine."""

    drivers: FaultInjector
    brokers: FaultInjector

    def inject(self, step: ChaosStep) -> Injection:
        """See ``FaultInjector``."""
        return (self.brokers if step.action.is_of_broker else self.drivers).inject(step)


def _cluster(access: ClusterAccess) -> Cluster:
    wanted = {address.strip() for address in access.bootstrap_servers.split(",")}
    for sandbox in Sandbox.all():
        for cluster in sandbox.clusters if sandbox.detached and sandbox.running else ():
            if wanted & _addresses(cluster):
                return cluster
    raise InvalidSpec(
        f"{access.alias} ({access.bootstrap_servers}) is no cluster of a sandbox that runs by "
        "itself: chaos ends only brokers that `headrace sandbox up` started"
    )


def _addresses(cluster: Cluster) -> set[str]:
    lists = [cluster.bootstrap_servers]
    if all(broker.secure_ports for broker in cluster.brokers):
        lists += [cluster.sasl_servers, cluster.tls_servers]
    return {address for servers in lists for address in servers.split(",")}
