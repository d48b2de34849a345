"""Deployment of a flow's drivers."""

import hashlib
import json
from collections.abc import Iterable
from typing import Final

from headrace.api import (
    COMPONENT_LABEL,
    DRIVER_COMPONENT,
    FLOW_LABEL,
    AuditSchemas,
    ClusterSpec,
    Model,
    ReplicationFlow,
    ReplicationTask,
    desired_drivers,
    label_value,
    read_at_start,
)
from headrace.api.cluster import CONFIG_MAPS
from headrace.api.pods import EnvVar, PodMetadata, PodTemplate, PullPolicy
from headrace.api.quantities import Resources, quantity
from headrace.k8s import Object, owner_reference


class DriverDefaults(Model):
    """Defaults of ``spec.drivers`` of flows."""

    resources: Resources = Resources()
    """Requests and limits by name.

    A flow's value replaces the default of the same name. A default that contradicts the flow is
    omitted.
    """
    env: tuple[EnvVar, ...] = ()
    """Environment variables. A flow's variable replaces the default of the same name."""
    image_pull_policy: PullPolicy | None = None
    pod_template: PodTemplate = PodTemplate()
    """Default pod template. A flow replaces its fields, and adds labels and annotations."""


def with_defaults(flow: ReplicationFlow, defaults: DriverDefaults) -> ReplicationFlow:
    """Return the flow with the defaults filled into its spec."""
    drivers = flow.spec.drivers
    made = drivers.model_copy(
        update={
            "resources": _resources(defaults.resources, drivers.resources),
            "env": tuple({one.name: one for one in (*defaults.env, *drivers.env)}.values()),
            "image_pull_policy": drivers.image_pull_policy or defaults.image_pull_policy,
            "pod_template": template_with(drivers.pod_template, defaults.pod_template),
        }
    )
    return flow.model_copy(update={"spec": flow.spec.model_copy(update={"drivers": made})})


def template_with(template: PodTemplate, defaults: PodTemplate) -> PodTemplate:
    """Return ``template`` with its unset fields taken from ``defaults``."""
    own = {name: getattr(template, name) for name in template.model_fields_set - {"metadata"}}
    metadata = PodMetadata(
        labels=defaults.metadata.labels | template.metadata.labels,
        annotations=defaults.metadata.annotations | template.metadata.annotations,
    )
    return defaults.model_copy(update=own | {"metadata": metadata})


def _resources(wide: Resources, own: Resources) -> Resources:
    """Merge resources. A default that contradicts the flow is omitted.

    No pod may request more than its limit.
    """
    requests = {
        name: amount
        for name, amount in wide.requests.items()
        if name not in own.limits or quantity(amount) <= quantity(own.limits[name])
    }
    limits = {
        name: amount
        for name, amount in wide.limits.items()
        if name not in own.requests or quantity(own.requests[name]) <= quantity(amount)
    }
    return Resources(requests=requests | own.requests, limits=limits | own.limits)


POD_SECURITY: Object = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


SPREAD: list[Object] = [
    {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway"}
    for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
]
"""Spread over nodes and zones if possible. Otherwise pods are scheduled unevenly."""


def with_pod_template(
    template: PodTemplate,
    labels: dict[str, str],
    spec: Object,
    *,
    selector: dict[str, str] | None = None,
    spread: Iterable[Object] = (),
) -> Object:
    """Return a pod template with the fields of ``template``, ``labels`` and ``spec``.

    The result conforms to Pod Security's ``restricted``. ``spread`` contains the
    topologySpreadConstraints to use if ``template`` has none. A constraint without a labelSelector
    gets ``selector`` (default: ``labels``), because Kubernetes would otherwise count no pods.
    """
    metadata: Object = {"labels": {**template.metadata.labels, **labels}}
    if template.metadata.annotations:
        metadata["annotations"] = dict(template.metadata.annotations)
    wishes = template.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={"metadata"}
    )
    if constraints := wishes.get("topologySpreadConstraints") or list(spread):
        wishes["topologySpreadConstraints"] = [
            {"labelSelector": {"matchLabels": dict(selector or labels)}} | one
            for one in constraints
        ]
    grace = {key: wishes[key] for key in ("terminationGracePeriodSeconds",) if key in wishes}
    security = {"securityContext": {**wishes.get("securityContext", {}), **POD_SECURITY}}
    return {"metadata": metadata, "spec": {**wishes, **spec, **grace, **security}}


def from_field(name: str, path: str) -> Object:
    """Return an environment variable that the kubelet sets. ``args`` may use ``$(NAME)``."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


SECRETS_FOLDER = "/etc/headrace/secrets"


def secret_names(flow: ReplicationFlow) -> list[str]:
    """Return the folders of Secrets and ConfigMaps that the flow's clusters refer to, sorted."""
    return secrets_of(flow.spec.source, flow.spec.target)


def secrets_of(*users: ClusterSpec | AuditSchemas) -> list[str]:
    """Return the folders of Secrets and ConfigMaps that clusters and registries use, sorted."""
    return sorted({use.folder for user in users for use in user.uses()})


def build_volumes(folders: list[str]) -> list[Object]:
    """Return a volume for each folder.

    All volumes are optional. A driver starts without them, reports the missing object or key in its
    connector's status, and continues when the object appears.
    """
    return [_build_volume(number, folder) for number, folder in enumerate(folders)]


def build_mounts(folders: list[str]) -> list[Object]:
    """Return the mounts at ``SECRETS_FOLDER``.

    Volumes are mounted without subPath, because the kubelet does not update subPath mounts when a
    Secret changes.
    """
    return [
        {"name": f"secret-{number}", "mountPath": f"{SECRETS_FOLDER}/{folder}", "readOnly": True}
        for number, folder in enumerate(folders)
    ]


def _build_volume(number: int, folder: str) -> Object:
    volume = f"secret-{number}"
    if folder.startswith(f"{CONFIG_MAPS}/"):
        config_map = folder.removeprefix(f"{CONFIG_MAPS}/")
        return {"name": volume, "configMap": {"name": config_map, "optional": True}}
    return {"name": volume, "secret": {"secretName": folder, "optional": True}}


PINNED_TO: Final = "headrace.dev/pinned-to"
"""Annotation of a task, written together with a move that a user requested.

The task stays on that driver as long as the driver exists. The annotation survives a restart of the
operator.
"""
TEMPLATE: Final = "headrace.dev/template"
"""Label of a driver pod: hash of its pod template."""
POD_TEMPLATE_HASH: Final = "pod-template-hash"
"""Label that the Deployment controller sets on a pod and its ReplicaSet."""
ZONE: Final = "topology.kubernetes.io/zone"
"""Label with the zone of a pod's node, if the cluster sets it. Used as the driver's rack."""


def driver_selector(flow: str) -> dict[str, str]:
    """Return the labels that only the driver pods of a flow have.

    A Deployment's selector is immutable, so these labels must never change.
    """
    return {COMPONENT_LABEL: DRIVER_COMPONENT, FLOW_LABEL: label_value(flow)}


def flow_labels(flow: str) -> dict[str, str]:
    """Return the labels of everything that belongs to a flow."""
    return {
        "app.kubernetes.io/name": "headrace",
        "app.kubernetes.io/instance": label_value(flow),
        "app.kubernetes.io/managed-by": "headrace",
        FLOW_LABEL: label_value(flow),
    }


def driver_name(flow: ReplicationFlow) -> str:
    """Return the common name of a flow's Deployment, ServiceAccount, Role and other children."""
    return f"{flow.metadata.name}-driver"


def build_metadata(flow: ReplicationFlow, name: str) -> Object:
    """Return the metadata of a child.

    When the flow is deleted, the API server's garbage collector also deletes the child, even if the
    operator does not run.
    """
    return {
        "name": name,
        "namespace": flow.metadata.namespace,
        "labels": flow_labels(flow.metadata.name),
        "ownerReferences": [owner_reference(flow)],
    }


HTTP_PORT = 8080
"""Port of a driver's health checks and metrics."""
_GRACE_PERIOD_S = 30
"""Time between TERM and KILL, in seconds.

A driver needs about 5 s to release its units. The rest is for a target that responds slowly.
"""


def build_deployment(
    flow: ReplicationFlow,
    image: str,
    *,
    chaos: bool = False,
    tasks: Iterable[ReplicationTask] = (),
) -> Object:
    """Return a Deployment with the drivers that the flow and its ``tasks`` need.

    The drivers run ``image`` unless the flow sets another one. With ``chaos``, mirror tests may
    break them. maxUnavailable is 0, so that a pod of the newest template is ready before an old one
    stops, and every unit moves only once.
    """
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": build_metadata(flow, driver_name(flow)),
        "spec": {
            "replicas": desired_drivers(flow, tasks),
            "selector": {"matchLabels": driver_selector(flow.metadata.name)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"},
            },
            "template": build_pod_template(flow, image, chaos=chaos),
        },
    }


def build_pod_template(flow: ReplicationFlow, image: str, *, chaos: bool = False) -> Object:
    """Return the template of the pods. A label contains a hash of everything that determines them.

    The hash also covers the fields of the flow that a driver reads only at its start.
    """
    wanted = flow.spec.drivers.pod_template
    selector = driver_selector(flow.metadata.name)
    ours = {**flow_labels(flow.metadata.name), **selector}
    spec = _build_pod_spec(flow, image)
    if chaos:
        # An ephemeral container can then signal the driver. As process 1 of its own namespace, the
        # driver would ignore KILL and STOP.
        spec["shareProcessNamespace"] = True
    pod = with_pod_template(wanted, ours, spec, selector=selector, spread=SPREAD)
    labels = pod["metadata"]["labels"]
    parts = [pod["spec"], labels, wanted.metadata.annotations, read_at_start(flow.spec)]
    made_of = json.dumps(parts, sort_keys=True)
    labels[TEMPLATE] = hashlib.sha256(made_of.encode()).hexdigest()[:10]
    return pod


def template_hash(deployment: Object) -> str:
    """Return the template label of the pods of this Deployment."""
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
            # Empty if the pod has no such label. It is not an argument of the command, because a
            # pinned image may be older than the option.
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
        # The last lines of the log become part of the pod's status.
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
