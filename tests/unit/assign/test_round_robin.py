"""Connect's eager assignor."""

from headrace.assign import ApplicationState, DriverState, RoundRobinAssignor, TaskId, weigh

CONNECTORS = [TaskId("orders", f"{kind}Connector", 0) for kind in ("Heartbeat", "Source")]
TASKS = [TaskId("orders", "SourceTask", n) for n in range(5)]


def assign(drivers: str) -> dict[TaskId, str]:
    state = ApplicationState.of(
        weigh(dict.fromkeys([*TASKS, *CONNECTORS])).values(), map(DriverState, drivers)
    )
    return RoundRobinAssignor().assign(state).owners


def test_one_turn_deals_connectors_and_goes_on_with_tasks() -> None:
    assigned = assign("bca")
    assert [assigned[unit] for unit in [*CONNECTORS, *TASKS]] == list("abcabca")


def test_without_drivers_all_wait() -> None:
    state = ApplicationState.of(weigh(dict.fromkeys(TASKS)).values(), [])
    assert RoundRobinAssignor().assign(state).waiting == set(TASKS)
