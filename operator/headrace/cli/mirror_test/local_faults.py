"""Faults of a mirror test on this machine."""

import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial

from headrace.api import ChaosAction, ChaosStep, ClusterAccess, Side
from headrace.chaos import (
    LOCAL_ACTIONS,
    ByAction,
    Chaos,
    FaultInjector,
    Injection,
    LocalInjector,
    PauseFaults,
    Since,
)
from headrace.cli.mirror_test.faults import LoadFaults, RecoveryProbe
from headrace.control import control
from headrace.errors import GaveUp, HeadraceError, InvalidSpec
from headrace.mirror_test import MirrorTestRun
from headrace.sandbox import BrokerProcess, Sandbox, SandboxCluster


class BrokerFaults:
    """Stops and starts brokers of the run's clusters, for any mirror."""

    def __init__(self, run: MirrorTestRun, steps: Sequence[ChaosStep]) -> None:
        """Find the brokers of the steps.

        Raise ``InvalidSpec`` if a broker does not belong to a detached sandbox. A broker that
        another process started would end with that process.
        """
        self._arrivals = RecoveryProbe(run)
        access = {Side.SOURCE: run.source, Side.TARGET: run.target}
        self._brokers: dict[ChaosStep, BrokerProcess] = {
            step: _cluster(access[step.cluster]).broker(step.broker or 1)
            for step in steps
            if step.cluster is not None
        }
        self._down: dict[str, BrokerProcess] = {}
        """Brokers that were stopped and not started again."""

    def inject(self, step: ChaosStep) -> Injection:
        """Stop or start the broker of a step. Do not wait until a started broker is ready."""
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
        # A broker that is stopped in order still serves requests for a while.
        since_ms = at_ms if step.action is ChaosAction.START_BROKER else _now_ms()
        return Injection(at_ms, self._arrivals.since(since_ms), driver=str(broker))

    def restore(self) -> None:
        """Start the brokers that are still down."""
        for broker in self._down.values():
            broker.launch()


def _cluster(access: ClusterAccess) -> SandboxCluster:
    wanted = {address.strip() for address in access.bootstrap_servers.split(",")}
    for sandbox in Sandbox.all():
        for cluster in sandbox.clusters if sandbox.detached and sandbox.running else ():
            if wanted & _addresses(cluster):
                return cluster
    raise InvalidSpec(
        f"{access.alias} ({access.bootstrap_servers}) is no cluster of a sandbox that runs by "
        "itself: chaos ends only brokers that `headrace sandbox up` started"
    )


def _addresses(cluster: SandboxCluster) -> set[str]:
    lists = [cluster.bootstrap_servers]
    if all(broker.secure_ports for broker in cluster.brokers):
        lists += [cluster.sasl_servers, cluster.tls_servers]
    return {address for servers in lists for address in servers.split(",")}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


GRACE_PERIOD_S = 30.0
"""Time-out of a command, in seconds. The test observes nothing else during a command."""
_SHOWN = 200


def refused(steps: Sequence[ChaosStep]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield a field and a message for each RunCommand step, which requires ``--run-commands``."""
    for index, step in enumerate(steps):
        if step.action is ChaosAction.RUN_COMMAND:
            yield (
                ("spec", "chaos", index, "command"),
                f"spec.chaos[{index}].command: this test runs a program on this machine; if you "
                "trust it, add --run-commands",
            )


class CommandFaults:
    """Runs the commands of steps, and waits until they end."""

    def __init__(self, since: Since, patience_s: float = GRACE_PERIOD_S) -> None:
        self._since = since
        self._patience_s = patience_s

    def inject(self, step: ChaosStep) -> Injection:
        """Run the command of a step.

        The recovery time is measured from the start of the command. Only messages sent after its
        end show a recovery, because earlier ones may have arrived before the fault.
        """
        command, at_ms = list(step.command or ()), _now_ms()
        text = shlex.join(command)[:_SHOWN]
        # A file instead of a pipe, because a daemon that the command starts would keep a pipe open.
        with tempfile.TemporaryFile() as output:
            try:
                code = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=self._patience_s,
                    check=False,
                    start_new_session=True,
                ).returncode
            except OSError as error:
                raise InvalidSpec(f"{text} cannot be run: {error.strerror}") from error
            except subprocess.TimeoutExpired as error:
                raise GaveUp(f"{text} did not end within {self._patience_s:.0f} s") from error
            output.seek(0)
            lines = output.read().decode(errors="replace").strip().splitlines()
        if code != 0:
            words = f": {lines[-1][:_SHOWN]}" if lines else ""
            raise InvalidSpec(f"{text} ended with code {code}{words}")
        return Injection(at_ms, self._since(_now_ms()), driver=text)


class LocalFaults:
    """Injectors of all faults of one run on this machine."""

    def __init__(self, run: MirrorTestRun, steps: Sequence[ChaosStep]) -> None:
        flow = run.flow or ""  # without a flow, no step concerns drivers
        since = RecoveryProbe(run).since
        drivers = LocalInjector(partial(control.request, flow))
        self._brokers = BrokerFaults(run, steps)
        self._pauses = PauseFaults(drivers.set_state, since)
        by_action = injectors(
            drivers=drivers,
            brokers=self._brokers,
            load=LoadFaults(run),
            pauses=self._pauses,
            commands=CommandFaults(since),
        )
        self.chaos = Chaos(steps, ByAction(by_action), run.test.spec.settle_seconds)

    def restore(self) -> str | None:
        """Start the brokers that are down, and resume a paused flow.

        Return an error message if the flow could not be resumed, otherwise None.
        """
        self._brokers.restore()
        try:
            self._pauses.restore()
        except HeadraceError as error:
            return str(error)
        return None


def injectors(
    *,
    drivers: FaultInjector,
    brokers: FaultInjector,
    load: FaultInjector,
    pauses: FaultInjector,
    commands: FaultInjector,
) -> dict[ChaosAction, FaultInjector]:
    """Return the injector of each chaos action on one machine.

    ``chaos.refused`` rejects all other actions.
    """
    return {
        **dict.fromkeys(LOCAL_ACTIONS, drivers),
        **{action: brokers for action in ChaosAction if action.is_of_broker},
        **{action: load for action in ChaosAction if action.is_of_load},
        ChaosAction.PAUSE_FLOW: pauses,
        ChaosAction.RUN_COMMAND: commands,
    }
