"""The driver processes of a flow: how many, and on Kubernetes what their pods are like."""

from typing import Annotated

from pydantic import Field, JsonValue

from headrace.api.model import Count, Model, Name, Unquoted, Whole

AsInKubernetes = dict[str, JsonValue]
"""A part of a pod as Kubernetes defines it, and its API server checks it."""


class Resources(Model):
    """What a container asks for (Kubernetes' ResourceRequirements)."""

    requests: dict[str, Unquoted] = Field(default_factory=dict)
    """What is set aside for it: cpu, memory."""
    limits: dict[str, Unquoted] = Field(default_factory=dict)
    """What it may use at most: cpu, memory."""


class PodMetadata(Model):
    """Labels and annotations of pods."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels to add."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations to add."""


class PodTemplate(Model):
    """What is particular about the pods of a flow's drivers."""

    metadata: PodMetadata = PodMetadata()
    """Labels and annotations to add."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have."""
    affinity: AsInKubernetes = Field(default_factory=dict)
    """Kubernetes' affinity."""
    tolerations: tuple[AsInKubernetes, ...] = ()
    """Kubernetes' tolerations."""
    topology_spread_constraints: tuple[AsInKubernetes, ...] = ()
    """Kubernetes' topologySpreadConstraints."""
    priority_class_name: Name | None = None
    """Kubernetes' priorityClassName."""
    image_pull_secrets: tuple[AsInKubernetes, ...] = ()
    """Kubernetes' imagePullSecrets."""


class Drivers(Model):
    """The processes that carry the data."""

    replicas: Count = 2
    """How many. The flows of one headrace run share its drivers: as many as the largest asks
    for."""
    lease_seconds: Annotated[Whole, Field(ge=3, le=3600)] = 6
    """A driver that was not heard of for so long loses its units; it reports three times as
    often."""
    resources: Resources = Resources()
    """What each driver's container asks for. Kubernetes only."""
    pod_template: PodTemplate = PodTemplate()
    """What is particular about their pods. Kubernetes only."""
