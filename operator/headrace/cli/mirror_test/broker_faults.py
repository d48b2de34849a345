"""Faults of a sandbox's brokers."""

import time
from collections.abc import Sequence

from headrace.api import ChaosAction, ChaosStep, ClusterAccess, Side
from headrace.chaos import Injection
from headrace.cli.mirror_test.arrivals import Arrivals
from headrace.errors import InvalidSpec
from headrace.mirror_test import Run
from headrace.sandbox import Broker, Cluster, Sandbox


class BrokerFaults:
    """Ends and starts brokers of the run's clusters, under anybody's mirror."""

    def __init__(self, run: Run, steps: Sequence[ChaosStep]) -> None:
        """Raises ``InvalidSpec`` when a step's broker is not of a sandbox that stays up by itself:
        a broker that another process started would end with this one."""
        self._arrivals = Arrivals(run)
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
        broker, at_ms = self._brokers[step], _now_ms()
        if step.action is ChaosAction.START_BROKER:
            broker.launch()
            self._down.pop(str(broker), None)
        elif broker.process is None:
            raise InvalidSpec(f"{broker} is down already")
        else:
            end = broker.kill if step.action is ChaosAction.KILL_BROKER else broker.stop
            end()
            self._down[str(broker)] = broker
        # A broker that is stopped in order serves for a while, and messages arrive meanwhile.
        since_ms = at_ms if step.action is ChaosAction.START_BROKER else _now_ms()
        return Injection(at_ms, self._arrivals.since(since_ms), driver=str(broker))

    def restore(self) -> None:
        """Start the brokers that are still down."""
        for broker in self._down.values():
            broker.launch()


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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
