"""The faults of ``spec.chaos`` on this machine: who injects each, and what the test restores."""

from collections.abc import Sequence
from functools import partial

from headrace.api import ChaosAction, ChaosStep
from headrace.chaos import (
    LOCAL_ACTIONS,
    ByAction,
    Chaos,
    FaultInjector,
    LocalInjector,
    PauseFaults,
)
from headrace.cli.mirror_test.arrivals import Arrivals
from headrace.cli.mirror_test.broker_faults import BrokerFaults
from headrace.cli.mirror_test.command_faults import CommandFaults
from headrace.cli.mirror_test.load_faults import LoadFaults
from headrace.control import control
from headrace.errors import HeadraceError
from headrace.mirror_test import Run


class LocalFaults:
    """Of one run."""

    def __init__(self, run: Run, steps: Sequence[ChaosStep]) -> None:
        flow = run.flow or ""  # without a flow there are no steps about it
        since = Arrivals(run).since
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
        """Start the brokers that are down, and resume a paused flow; why it is still paused."""
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
    """Who does which step of chaos on one machine: all but those that ``chaos.refused`` refuses."""
    return {
        **dict.fromkeys(LOCAL_ACTIONS, drivers),
        **{action: brokers for action in ChaosAction if action.is_of_broker},
        **{action: load for action in ChaosAction if action.is_of_load},
        ChaosAction.PAUSE_FLOW: pauses,
        ChaosAction.RUN_COMMAND: commands,
    }
