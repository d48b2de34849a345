"""The files of examples/autoscaling name existing objects and agree with each other."""

from pathlib import Path
from typing import Any

import yaml

from headrace.api import API_VERSION, ReplicationFlow
from headrace.telemetry.metrics import FLOW_LAG_RECORDS

FOLDER = Path(__file__).parents[2] / "examples" / "autoscaling"


def example(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text())


def test_the_autoscaler_is_told_a_metric_that_the_operator_serves() -> None:
    spec = example("hpa.yaml")["spec"]
    (metric,) = (one["external"]["metric"] for one in spec["metrics"])
    assert metric["name"] == FLOW_LAG_RECORDS.name
    assert metric["selector"]["matchLabels"].keys() <= set(FLOW_LAG_RECORDS.labels)
    assert spec["scaleTargetRef"] == {
        "apiVersion": API_VERSION,
        "kind": ReplicationFlow.__name__,
        "name": metric["selector"]["matchLabels"]["flow"],
    }


def test_the_adapters_rule_is_for_that_metric() -> None:
    (rule,) = example("prometheus-adapter.yaml")["rules"]["external"]
    assert rule["seriesQuery"] == FLOW_LAG_RECORDS.name
    assert f"{FLOW_LAG_RECORDS.name}{{<<.LabelMatchers>>}}" in rule["metricsQuery"]


def test_keda_does_the_same() -> None:
    ours, keda = example("hpa.yaml")["spec"], example("keda.yaml")["spec"]
    assert keda["scaleTargetRef"] == ours["scaleTargetRef"]
    assert keda["minReplicaCount"] == ours["minReplicas"]
    assert keda["maxReplicaCount"] == ours["maxReplicas"]
    behavior = keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior == ours["behavior"]
    (trigger,) = keda["triggers"]
    assert trigger["metricType"] == "AverageValue"
    assert f"{FLOW_LAG_RECORDS.name}{{" in trigger["metadata"]["query"]
    (target,) = (one["external"]["target"] for one in ours["metrics"])
    assert target["averageValue"] == trigger["metadata"]["threshold"].removesuffix("000") + "k"


def test_no_driver_is_asked_for_that_would_have_no_task() -> None:
    flow = ReplicationFlow.model_validate(
        {
            "metadata": {"name": "orders"},
            "spec": {
                "source": {"alias": "east", "bootstrapServers": "east:1"},
                "target": {"alias": "west", "bootstrapServers": "west:1"},
                "topics": {"include": ["orders"]},
            },
        }
    )
    assert example("hpa.yaml")["spec"]["maxReplicas"] <= flow.spec.tasks.max
