"""Settings of driver pods that are rejected, with the error messages."""

from typing import Any

import pytest
from support.manifests import EAST, WEST, Say

TOKEN = {"name": "token", "secret": {"secretName": "token"}}


def flow(**drivers: Any) -> dict[str, Any]:
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": {"name": "orders"},
        "spec": {
            "source": EAST,
            "target": WEST,
            "topics": {"include": ["orders"]},
            "drivers": drivers,
        },
    }


@pytest.mark.parametrize(
    ("drivers", "field", "sentence"),
    [
        (
            {"volumes": [{"name": "a"}]},
            "volumes[0]",
            "must have exactly one of secret, configMap, projected, csi, persistentVolumeClaim, "
            "emptyDir",
        ),
        (
            {"volumes": [{"name": "a", "emptyDir": {}, "secret": {"secretName": "b"}}]},
            "volumes[0]",
            "must have exactly one of secret, configMap, projected, csi, persistentVolumeClaim, "
            "emptyDir",
        ),
        (
            {"volumes": [{"name": "secret-0", "emptyDir": {}}]},
            "volumes[0].name",
            "must not be tmp or begin with secret-: headrace's own volumes have these names",
        ),
        (
            {"volumeMounts": [{"name": "other", "mountPath": "/token"}], "volumes": [TOKEN]},
            "volumeMounts[0].name",
            "must be the name of a volume in spec.drivers.volumes",
        ),
        (
            {"volumeMounts": [{"name": "token", "mountPath": "/tmp/a"}], "volumes": [TOKEN]},
            "volumeMounts[0].mountPath",
            "must be an absolute path outside of /tmp and /etc/headrace, which headrace mounts",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {}}]},
            "env[0].valueFrom",
            "must have exactly one of secretKeyRef and configMapKeyRef",
        ),
        (
            {
                "env": [
                    {
                        "name": "A",
                        "value": "b",
                        "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}},
                    }
                ]
            },
            "env[0].valueFrom",
            "must not be set beside value",
        ),
        (
            {"podDisruptionBudget": {"maxUnavailable": 1, "minAvailable": "50%"}},
            "podDisruptionBudget.minAvailable",
            "must not be set beside maxUnavailable",
        ),
        (
            {"podDisruptionBudget": {"maxUnavailable": "101%"}},
            "podDisruptionBudget.maxUnavailable",
            "must be a number of pods, or a share such as 25%",
        ),
    ],
)
def test_settings_of_pods_that_are_refused(
    say: Say, drivers: dict[str, Any], field: str, sentence: str
) -> None:
    (message,) = say(flow(**drivers))
    assert f"spec.drivers.{field}: " in message
    assert message.endswith(sentence)
