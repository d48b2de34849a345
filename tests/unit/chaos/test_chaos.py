"""Steps of chaos against a scripted flow."""

from collections.abc import Callable
from typing import Any

import pytest
from support.fake_kafka import FakeClock

from headrace.api import ChaosAction, ChaosStep, FlowState, Side
from headrace.chaos import Chaos, Injection, LocalInjector, PauseFaults, refused
from headrace.errors import InvalidSpec, Retriable
from headrace.mirror_test import LoadProgress


class Flow:
    """Flow with units on drivers."""

    def __init__(self) -> None:
        self.units = {"task-0": "driver-1", "task-1": "driver-1", "task-2": "driver-2"}
        self.running = True
        self.killed = 0

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        if command == "status":
            phase = "Running" if self.running else "Restoring"
            return {
                "units": [
                    {"name": name, "phase": phase, "driverName": driver}
                    for name, driver in self.units.items()
                ]
            }
        assert command == "kill-driver"
        self.killed += 1
        held = [name for name, driver in self.units.items() if driver == "driver-1"]
        return {"driver": "driver-1", "pid": 7, "timeMs": 5_000, "units": held}


def steps(*percents: int) -> list[ChaosStep]:
    return [ChaosStep(action=ChaosAction.KILL_DRIVER, at_percent=p) for p in percents]


def at(percent: float, elapsed_s: float = 0) -> LoadProgress:
    return LoadProgress(int(10 * percent), percent, elapsed_s)


def test_a_step_is_done_once_when_it_is_due_and_its_recovery_timed() -> None:
    flow = Flow()
    chaos = Chaos(steps(50), LocalInjector(flow.ask), patience_s=30)
    assert chaos.advance(at(49.9), 100.0) is None
    done = chaos.advance(at(51.2), 101.0)
    assert done is not None
    assert (done.acknowledged, done.percent, done.at_ms) == (512, 51.2, 5_000)
    assert (done.driver, done.units) == ("driver-1", ("task-0", "task-1"))

    chaos.advance(at(60), 101.5)  # the status does not show the death yet
    flow.units["task-0"] = "driver-3"
    chaos.advance(at(61), 102.0)
    assert chaos.recovering, "one unit is still missing"
    flow.units["task-1"], flow.running = "driver-2", False
    chaos.advance(at(62), 102.5)
    assert chaos.recovering, "they do not run yet"
    flow.running = True
    chaos.advance(at(63), 103.5)
    assert not chaos.recovering
    assert chaos.faults[0].recovery_seconds == pytest.approx(2.5)
    assert flow.killed == 1


def test_a_unit_that_is_gone_need_not_come_back() -> None:
    flow = Flow()
    chaos = Chaos(steps(0), LocalInjector(flow.ask), patience_s=30)
    chaos.advance(at(1), 100.0)
    flow.units = {"task-0": "driver-2"}
    chaos.advance(at(2), 101.0)
    assert chaos.faults[0].recovery_seconds == 1


def test_a_step_waits_until_the_flow_has_recovered_from_the_one_before() -> None:
    flow = Flow()
    chaos = Chaos(steps(10, 20), LocalInjector(flow.ask), patience_s=30)
    chaos.advance(at(10), 100.0)
    chaos.advance(at(25), 101.0)
    assert flow.killed == 1
    flow.units = {"task-0": "driver-2", "task-1": "driver-2", "task-2": "driver-1"}
    chaos.advance(at(30), 102.0)
    assert flow.killed == 2


def test_a_step_can_be_timed_by_the_clock() -> None:
    flow = Flow()
    step = ChaosStep(action=ChaosAction.KILL_DRIVER, at_seconds=5)
    chaos = Chaos([step], LocalInjector(flow.ask), patience_s=30)
    assert chaos.advance(at(99, elapsed_s=4.9), 100.0) is None
    assert chaos.advance(at(99, elapsed_s=5.0), 100.1) is not None


def test_a_recovery_that_is_not_seen_is_given_up() -> None:
    chaos = Chaos(steps(0), LocalInjector(Flow().ask), patience_s=30)
    chaos.advance(at(1), 100.0)
    chaos.advance(at(2), 131.0)
    assert not chaos.recovering
    assert chaos.faults[0].recovery_seconds is None
    assert chaos.faults[0].error == "it did not recover within 30 s"
    assert chaos.faults[0].watched


def test_a_flow_that_does_not_answer_for_a_moment_is_asked_again() -> None:
    flow = Flow()
    silent = False

    def ask(command: str, **_: Any) -> dict[str, Any]:
        if silent:
            raise Retriable("no answer")
        return flow.ask(command)

    chaos = Chaos(steps(0), LocalInjector(ask), patience_s=30)
    chaos.advance(at(1), 100.0)
    silent = True
    chaos.advance(at(2), 101.0)
    assert chaos.recovering
    flow.units = dict.fromkeys(flow.units, "driver-2")
    silent = False
    chaos.advance(at(3), 102.0)
    assert chaos.faults[0].recovery_seconds == 2


def test_a_recovery_that_could_not_be_polled_was_not_watched() -> None:
    flow = Flow()
    answers = iter([flow.ask])

    def ask(command: str, **_: Any) -> dict[str, Any]:
        for answer in answers:
            return answer(command)
        raise Retriable("no answer")

    chaos = Chaos(steps(0), LocalInjector(ask), patience_s=30)
    chaos.advance(at(1), 100.0)
    chaos.advance(at(2), 131.0)
    assert (chaos.faults[0].error, chaos.faults[0].watched) == ("no answer", False)


def test_what_was_not_done_says_why() -> None:
    def refuses(_: str, **arguments: Any) -> dict[str, Any]:
        raise InvalidSpec("no driver holds a source task")

    chaos = Chaos(steps(10, 90), LocalInjector(refuses), patience_s=30)
    chaos.advance(at(20), 100.0)
    chaos.end()
    assert [fault.error for fault in chaos.faults] == [
        "no driver holds a source task",
        "the load ended before it was due",
    ]
    assert all(fault.at_ms is None for fault in chaos.faults)


class Slow:
    """Injector that breaks the flow two seconds after its call, for ten seconds."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.done: list[ChaosStep] = []

    def inject(self, step: ChaosStep) -> Injection:
        self.done.append(step)
        at_ms = int(self._clock.time() * 1000) + 2_000
        return Injection(at_ms, recovered=lambda: True, lasts_s=10.0)


def test_a_recovery_counts_from_when_it_broke_and_the_next_step_waits_until_it_is_over() -> None:
    clock = FakeClock()
    flow = Slow(clock)
    chaos = Chaos(steps(0, 0), flow, patience_s=30, clock=clock)
    chaos.advance(at(1), 100.0)
    chaos.advance(at(2), 105.0)
    assert chaos.faults[0].recovery_seconds == 3
    chaos.advance(at(3), 111.9)
    assert len(flow.done) == 1
    chaos.advance(at(4), 112.0)
    assert len(flow.done) == 2


class Fleet:
    """Flow whose drivers are scaled, rolled or frozen. Units move only when a test moves them."""

    def __init__(self) -> None:
        self.alive = ["driver-1", "driver-2"]
        self.on = dict.fromkeys(("task-0", "task-1"), "driver-1")
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        if command == "status":
            return {
                "units": [
                    {"name": name, "phase": "Running", "driverName": driver, "assignedTo": driver}
                    for name, driver in self.on.items()
                ]
            }
        if command == "drivers":
            return {"alive": self.alive}
        self.asked.append((command, arguments))
        about = {"timeMs": 5_000, "size": arguments.get("drivers", 2), "drivers": [*self.alive]}
        broken = {"driver": "driver-1", "units": [*self.on], "lastsSeconds": 12.0}
        return {**about, **broken} if command == "freeze-driver" else about


def test_drivers_are_scaled_and_the_flow_settles_on_as_many() -> None:
    flow = Fleet()
    step = ChaosStep(action=ChaosAction.SCALE_DRIVERS, at_percent=0, drivers=3)
    chaos = Chaos([step], LocalInjector(flow.ask), patience_s=30)
    chaos.advance(at(1), 100.0)
    assert flow.asked == [("scale", {"drivers": 3})]
    chaos.advance(at(2), 101.0)
    assert chaos.recovering, "the third is not there yet"
    flow.alive.append("driver-3")
    chaos.advance(at(3), 102.0)
    assert chaos.faults[0].recovery_seconds == 2


def test_rolled_drivers_are_replaced_by_others() -> None:
    flow = Fleet()
    step = ChaosStep(action=ChaosAction.ROLL_DRIVERS, at_percent=0)
    chaos = Chaos([step], LocalInjector(flow.ask), patience_s=30)
    chaos.advance(at(1), 100.0)
    flow.alive = ["driver-2", "driver-3"]
    chaos.advance(at(2), 101.0)
    assert chaos.recovering, "driver-2 is an old one"
    flow.alive = ["driver-3", "driver-4"]
    chaos.advance(at(3), 102.0)
    assert chaos.recovering, "the units are still on one that is gone"
    flow.on = dict.fromkeys(flow.on, "driver-4")
    chaos.advance(at(4), 103.0)
    assert chaos.faults[0].recovery_seconds == 3


def test_the_next_step_waits_until_a_frozen_driver_is_thawed() -> None:
    flow = Fleet()
    frozen = ChaosStep(action=ChaosAction.FREEZE_DRIVER, at_percent=0)
    scaled = ChaosStep(action=ChaosAction.SCALE_DRIVERS, at_percent=0, drivers=2)
    chaos = Chaos([frozen, scaled], LocalInjector(flow.ask), patience_s=30)
    chaos.advance(at(1), 100.0)
    flow.on = dict.fromkeys(flow.on, "driver-2")
    chaos.advance(at(2), 107.0)
    assert (chaos.faults[0].driver, chaos.faults[0].recovery_seconds) == ("driver-1", 7)
    assert len(flow.asked) == 1
    chaos.advance(at(3), 113.0)
    assert [command for command, _ in flow.asked] == ["freeze-driver", "scale"]


def test_a_broker_is_started_though_the_flow_has_not_recovered_from_its_end() -> None:
    """Otherwise the recovery would wait for the start, and the start for the recovery."""

    class Brokers:
        up = True

        def inject(self, step: ChaosStep) -> Injection:
            self.up = step.action is ChaosAction.START_BROKER
            return Injection(at_ms=0, recovered=lambda: self.up)

    target = {"cluster": Side.TARGET}
    killed = ChaosStep(action=ChaosAction.KILL_BROKER, at_seconds=1, **target)
    started = ChaosStep(action=ChaosAction.START_BROKER, at_seconds=5, **target)
    chaos = Chaos([killed, started, *steps(0)], Brokers(), patience_s=30)
    chaos.advance(at(1, elapsed_s=1), 101.0)
    chaos.advance(at(1, elapsed_s=2), 102.0)
    assert len(chaos.faults) == 1
    chaos.advance(at(1, elapsed_s=5), 105.0)
    assert len(chaos.faults) == 2
    assert chaos.recovering
    chaos.advance(at(1, elapsed_s=7), 107.0)
    assert [fault.recovery_seconds for fault in chaos.faults[:2]] == [6, 2]


def test_a_recovery_from_a_pause_is_timed_from_its_end() -> None:
    class Paused:
        arrived = False

        def inject(self, _: ChaosStep) -> Injection:
            return Injection(0, lambda: self.arrived, lasts_s=20, recovers_after=True)

    flow = Paused()
    pause = ChaosStep(action=ChaosAction.PAUSE_FLOW, at_seconds=1, seconds=20)
    chaos = Chaos([pause, *steps(0)], flow, patience_s=10)
    chaos.advance(at(1, elapsed_s=1), 100.0)
    chaos.advance(at(1, elapsed_s=18), 117.0)
    assert chaos.faults[0].error is None, "more than the patience, and still paused"
    flow.arrived = True
    chaos.advance(at(1, elapsed_s=24), 123.0)
    assert (len(chaos.faults), chaos.faults[0].recovery_seconds) == (2, 3)


def test_a_flow_is_resumed_when_the_pause_is_over_or_the_test() -> None:
    states: list[FlowState] = []
    since: list[int] = []

    def set_state(state: FlowState) -> bool:
        states.append(state)
        return states[-2:] != [state] * 2

    def arrived_since(time_ms: int) -> Callable[[], bool]:
        since.append(time_ms)
        return lambda: True

    pauses = PauseFaults(set_state, arrived_since)
    pause = ChaosStep(action=ChaosAction.PAUSE_FLOW, at_seconds=1, seconds=3600)
    long = pauses.inject(pause)
    assert not long.recovered()
    with pytest.raises(InvalidSpec, match="paused already"):
        pauses.inject(pause)
    pauses.restore()
    pauses.restore()
    assert states == [FlowState.PAUSED, FlowState.PAUSED, FlowState.RUNNING]
    short = pauses.inject(pause.model_copy(update={"seconds": 0}))
    assert short.recovered()
    assert states[-1] is FlowState.RUNNING
    assert since[0] >= short.at_ms


def test_what_needs_pods_is_refused_where_there_are_none() -> None:
    wanted = [*steps(10), ChaosStep(action=ChaosAction.KILL_OPERATOR, at_percent=20)]
    assert [sentence for _, sentence in refused(wanted)] == [
        "spec.chaos[1].action: KillOperator needs a mirror that runs in pods; use another, or "
        "apply the test to the mirror's cluster with kubectl"
    ]
