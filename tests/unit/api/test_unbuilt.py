"""What is refused because it is not built."""

from typing import Any

import pytest

from headrace.api import MirrorTest, ReplicationFlow, unbuilt
from headrace.api.unbuilt import Unbuilt


def of_flow(**spec: Any) -> Unbuilt:
    source = {"alias": "east", "bootstrapServers": "east:9092"} | spec.pop("source", {})
    target = {"alias": "west", "bootstrapServers": "west:9092"}
    smallest = {"source": source, "target": target, "topics": {"include": ["orders"]}}
    return unbuilt(
        ReplicationFlow.model_validate({"metadata": {"name": "orders"}, "spec": smallest | spec})
    )


def of_test(**spec: Any) -> Unbuilt:
    document = {"metadata": {"name": "orders"}, "spec": {"flowName": "orders"} | spec}
    return unbuilt(MirrorTest.model_validate(document))


def test_a_flow_that_asks_for_nothing_that_is_missing() -> None:
    assert of_flow() == of_test() == Unbuilt(())


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"source": {"authentication": {"type": "OAuthBearer"}}},
            "spec.source.authentication.type: OAuthBearer is not built yet; "
            "use Plain or ScramSha256 or ScramSha512",
        ),
        (
            {"delivery": "ExactlyOnce"},
            "spec.delivery: ExactlyOnce is not built yet; use AtLeastOnce",
        ),
    ],
)
def test_what_a_flow_is_refused_for(spec: dict[str, Any], sentence: str) -> None:
    assert of_flow(**spec).refused == (sentence,)


@pytest.mark.parametrize(
    "spec",
    [
        {"policy": {"type": "Identity"}},
        {"batchVerification": "Full"},
        {"mover": "Batch"},
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


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {
                "flowName": None,
                "source": {"alias": "east", "bootstrapServers": "a:1", "tls": {}},
                "target": {
                    "alias": "west",
                    "bootstrapServers": "b:1",
                    "authentication": {"type": "OAuthBearer"},
                },
            },
            "spec.target.authentication.type: OAuthBearer is not built yet; "
            "use Plain or ScramSha256 or ScramSha512",
        ),
    ],
)
def test_what_a_test_is_refused_for(spec: dict[str, Any], sentence: str) -> None:
    assert of_test(**spec) == Unbuilt((sentence,))


def test_what_only_kubernetes_uses_is_accepted_in_a_test() -> None:
    spec = {
        "schedule": "@daily",
        "suspend": True,
        "spark": {"executors": 9},
        "chaos": [{"atSeconds": 2, "action": "RollDrivers"}],
    }
    assert of_test(**spec) == Unbuilt(())
