"""What all pods that the operator has made have in common: Pod Security's ``restricted``."""

from collections.abc import Iterable

from headrace.api.pods import PodTemplate
from headrace.k8s import Object

_POD_SECURITY: Object = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


SPREAD: list[Object] = [
    {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway"}
    for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
]
"""Over nodes and zones where that is possible. A replacement is scheduled all the same."""


def as_wished(
    template: PodTemplate,
    labels: dict[str, str],
    spec: Object,
    *,
    selector: dict[str, str] | None = None,
    spread: Iterable[Object] = (),
) -> Object:
    """A pod of these ``labels`` and this ``spec``, with what ``template`` says beside them, under
    Pod Security's ``restricted``.

    ``spread`` are the topologySpreadConstraints without any in ``template``. One without a
    labelSelector gets ``selector`` (absent: ``labels``): Kubernetes would count no pods at all.
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
    security = {"securityContext": {**wishes.get("securityContext", {}), **_POD_SECURITY}}
    return {"metadata": metadata, "spec": {**wishes, **spec, **grace, **security}}


def from_field(name: str, path: str) -> Object:
    """An environment variable that the kubelet fills in; ``$(NAME)`` in ``args`` names it."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
