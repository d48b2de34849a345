"""Names of units."""

from headrace.assign import TaskId


def test_names_are_those_of_kubernetes_objects() -> None:
    assert TaskId("orders", "SourceTask", 3).name == "orders-source-task-3"
    assert TaskId("orders", "HeartbeatConnector", 0).name == "orders-heartbeat-connector-0"


def test_only_what_keeps_positions_is_stateful() -> None:
    kinds = ("Source", "Checkpoint", "Heartbeat")
    stateful = [kind for kind in kinds if TaskId("f", f"{kind}Task", 0).is_stateful]
    assert stateful == ["Source"]  # a checkpoint task reads two small topics and has no standby
    assert not any(TaskId("f", f"{kind}Connector", 0).is_stateful for kind in kinds)
