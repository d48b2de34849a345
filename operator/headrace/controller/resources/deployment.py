"""The driver pods of a flow."""

import hashlib
import json

from headrace.api import FlowState, Model, ReplicationFlow, read_at_start
from headrace.api.pods import EnvVar
from headrace.controller.names import TEMPLATE, ZONE, driver_selector, flow_labels
from headrace.controller.resources.metadata import build_metadata, driver_name
from headrace.controller.resources.pods import (
    CONTAINER_SECURITY,
    SPREAD,
    as_wished,
    from_field,
)
from headrace.controller.resources.secrets import (
    SECRETS_FOLDER,
    build_mounts,
    build_volumes,
    secret_names,
)
from headrace.k8s import Object

HTTP_PORT = 8080
"""Health and metrics of a driver."""
_GRACE_PERIOD_S = 30
"""Between TERM and KILL. A driver needs about 5 s to hand over what it holds; the rest is for a
target that answers slowly."""


def build_deployment(flow: ReplicationFlow, image: str, *, chaos: bool = False) -> Object:
    """``spec.drivers.replicas`` drivers of ``image``, unless the flow pins another; none of a flow
    that is stopped. ``chaos``: mirror tests may break them.

    maxUnavailable 0: a pod of the newest template is ready before one of the old ones goes, so that
    every unit can move straight to where it will stay.
    """
    stopped = flow.spec.state is FlowState.STOPPED
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": build_metadata(flow, driver_name(flow)),
        "spec": {
            "replicas": 0 if stopped else flow.spec.drivers.replicas,
            "selector": {"matchLabels": driver_selector(flow.metadata.name)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"},
            },
            "template": build_pod_template(flow, image, chaos=chaos),
        },
    }


def build_pod_template(flow: ReplicationFlow, image: str, *, chaos: bool = False) -> Object:
    """Return the template of the pods, labelled with a hash of everything that determines them.

    The hash covers the fields of the flow that a driver reads only at its start.
    """
    wanted = flow.spec.drivers.pod_template
    selector = driver_selector(flow.metadata.name)
    ours = {**flow_labels(flow.metadata.name), **selector}
    spec = _build_pod_spec(flow, image)
    if chaos:
        # A container that joins for a moment can signal the driver: as process 1 of its own
        # processes it would ignore KILL and STOP.
        spec["shareProcessNamespace"] = True
    pod = as_wished(wanted, ours, spec, selector=selector, spread=SPREAD)
    labels = pod["metadata"]["labels"]
    parts = [pod["spec"], labels, wanted.metadata.annotations, read_at_start(flow.spec)]
    made_of = json.dumps(parts, sort_keys=True)
    labels[TEMPLATE] = hashlib.sha256(made_of.encode()).hexdigest()[:10]
    return pod


def template_hash(deployment: Object) -> str:
    """The label of pods that were made from the template of this Deployment."""
    labels: dict[str, str] = deployment["spec"]["template"]["metadata"]["labels"]
    return labels[TEMPLATE]


def _build_pod_spec(flow: ReplicationFlow, image: str) -> Object:
    secrets = secret_names(flow)
    return {
        "serviceAccountName": driver_name(flow),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_PERIOD_S,
        "containers": [_build_container(flow, flow.spec.drivers.image or image, secrets)],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            *build_volumes(secrets),
            *(_as_written(one) for one in flow.spec.drivers.volumes),
        ],
    }


def _build_container(flow: ReplicationFlow, image: str, secrets: list[str]) -> Object:
    pull_policy = flow.spec.drivers.image_pull_policy
    return {
        "name": "driver",
        "image": image,
        **({"imagePullPolicy": pull_policy} if pull_policy else {}),
        "command": ["headrace", "driver"],
        "args": [
            f"--flow={flow.metadata.name}",
            f"--namespace={flow.metadata.namespace}",
            "--name=$(POD_NAME)",
            "--pod-uid=$(POD_UID)",
            "--pod-ip=$(POD_IP)",
            f"--port={HTTP_PORT}",
            f"--secrets={SECRETS_FOLDER}",
        ],
        "env": [
            from_field("POD_NAME", "metadata.name"),
            from_field("POD_UID", "metadata.uid"),
            from_field("POD_IP", "status.podIP"),
            # Empty without that label. Not in args: a pinned image may be older than the option.
            from_field("HEADRACE_RACK", f"metadata.labels['{ZONE}']"),
            *map(_build_variable, flow.spec.drivers.env),
        ],
        "ports": [{"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "resources": flow.spec.drivers.resources.model_dump(
            mode="json", by_alias=True, exclude_defaults=True
        ),
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "http"},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "http"},
            "periodSeconds": 2,
            "timeoutSeconds": 2,
            "failureThreshold": 2,
        },
        # The last lines of its log, in the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            *build_mounts(secrets),
            *(_as_written(one) for one in flow.spec.drivers.volume_mounts),
        ],
    }


def _build_variable(variable: EnvVar) -> Object:
    if variable.value_from is not None:
        return _as_written(variable)
    return {"name": variable.name, "value": variable.value}


def _as_written(model: Model) -> Object:
    return model.model_dump(mode="json", by_alias=True, exclude_defaults=True)
