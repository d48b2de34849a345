"""What all pods that the operator has made have in common: Pod Security's ``restricted``."""

from headrace.api.pod import PodTemplate
from headrace.k8s import Object

POD_SECURITY: Object = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def as_wished(template: PodTemplate, labels: dict[str, str], spec: Object) -> Object:
    """A pod of these ``labels`` and this ``spec``, with what ``template`` says beside them."""
    metadata: Object = {"labels": {**template.metadata.labels, **labels}}
    if template.metadata.annotations:
        metadata["annotations"] = dict(template.metadata.annotations)
    wishes = template.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={"metadata"}
    )
    return {"metadata": metadata, "spec": {**wishes, **spec}}


def from_field(name: str, path: str) -> Object:
    """An environment variable that the kubelet fills in; ``$(NAME)`` in ``args`` names it."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
