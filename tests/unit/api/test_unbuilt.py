"""What is refused because it is not built."""

from importlib import import_module
from typing import Any

import pytest

from headrace.api import ReplicationFlow, unbuilt
from headrace.api.flow import Delivery, Mover
from headrace.api.unbuilt import Part, Unbuilt, When


def of_flow(**spec: Any) -> Unbuilt:
    source = {"alias": "east", "bootstrapServers": "east:9092"}
    target = {"alias": "west", "bootstrapServers": "west:9092"}
    smallest = {"source": source, "target": target, "topics": {"include": ["orders"]}}
    return unbuilt(
        ReplicationFlow.model_validate({"metadata": {"name": "orders"}, "spec": smallest | spec})
    )


def test_a_flow_that_asks_for_nothing_that_is_missing() -> None:
    assert of_flow() == Unbuilt(())


def test_a_value_that_is_not_built_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    when = When("mover: Record", "self.mover == 'Record'", lambda spec: spec.mover is Mover.RECORD)
    part = Part("delivery", built=(Delivery.AT_LEAST_ONCE,), when=when)
    monkeypatch.setattr(import_module("headrace.api.unbuilt"), "FLOW", (part,))
    assert of_flow(delivery="ExactlyOnce", mover="Record").refused == (
        "spec.delivery: ExactlyOnce is not built yet with mover: Record; use AtLeastOnce",
    )
    assert of_flow(delivery="ExactlyOnce").refused == of_flow(mover="Record").refused == ()


@pytest.mark.parametrize(
    "spec",
    [
        {"policy": {"type": "Identity"}},
        {"batchVerification": "Full"},
        {"mover": "Batch"},
        {"delivery": "ExactlyOnce"},
        {"delivery": "ExactlyOnce", "mover": "Batch", "commitIntervalMs": 100},
        {"delivery": "ExactlyOnce", "mover": "Record"},
        {"delivery": "ExactlyOnce", "recordFilter": {"headers": {"include": [{"name": "a"}]}}},
        {"startFrom": "Timestamp", "startTimestamp": "2026-01-31T12:00:00Z"},
        {"tasks": {"max": 3, "standbys": 1, "assignor": "cooperative", "movementBudget": 0.5}},
        {"discovery": {"topicsSeconds": 1, "groupsSeconds": 1}},
        {"state": "Stopped", "pausedPartitions": [{"topic": "orders"}]},
        {"heartbeats": {"enabled": False, "intervalSeconds": 5, "onSource": False}},
        {"topicConfigs": {"sync": True, "intervalSeconds": 5, "exclude": ["a"]}},
        {"acls": {"sync": True, "intervalSeconds": 5}},
        {
            "checkpoints": {"enabled": True, "intervalSeconds": 5, "applyToGroups": True},
            "groups": {"include": ["a"]},
            "offsetSyncs": {"location": "Source"},
        },
        {
            "drivers": {
                "replicas": 5,
                "leaseSeconds": 9,
                "resources": {"limits": {"cpu": 1}},
                "podTemplate": {"priorityClassName": "high"},
            }
        },
    ],
)
def test_what_a_flow_is_not_refused_for(spec: dict[str, Any]) -> None:
    assert of_flow(**spec).refused == ()
