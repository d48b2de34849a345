"""The driver processes of a flow: how many, and on Kubernetes what their pods are like."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from headrace.api.extensions import BY_NAME, FILLED_IN_BY_SERVER, Rule
from headrace.api.model import Breach, Model, Text, Whole
from headrace.api.pod import (
    EnvVar,
    PodDisruptionBudget,
    PodTemplate,
    PullPolicy,
    Resources,
    ServiceAccount,
    Volume,
    VolumeMount,
)

_UNKNOWN_VOLUME = "must be the name of a volume in spec.drivers.volumes"


class Drivers(Model):
    """The processes that copy the data."""

    # The scale subresource reads it in the object, so it has to stand there.
    replicas: Annotated[Whole, Field(ge=0, le=1000), FILLED_IN_BY_SERVER] = 2
    """Number of drivers. The flows of one headrace run share its drivers: the largest number
    counts."""
    lease_seconds: Annotated[Whole, Field(ge=3, le=3600)] = 6
    """A driver that sends no heartbeat for this time loses its units; it sends one three
    times as often."""
    image: Annotated[Text, Field(min_length=1)] | None = None
    """Image of the drivers. Absent: the operator's, so that its upgrade rolls them out; a pinned
    one stays until you change it. Kubernetes only."""
    image_pull_policy: PullPolicy | None = None
    """When the drivers' pods pull it; absent: as Kubernetes does, Always for the tag latest, else
    IfNotPresent. Kubernetes only."""
    rollout_priority: Annotated[Whole, Field(ge=-1000000, le=1000000)] = 0
    """Where the operator limits how many flows roll out at a time: those with a higher one come
    first, then by namespace and name. Kubernetes only."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] | None = None
    """Lowest level that the drivers log; absent: that of HEADRACE_LOG_LEVEL in their environment,
    else INFO. A change takes effect without a restart. Kubernetes only."""
    log_format: Literal["logfmt", "json"] | None = None
    """Format of the lines of their logs; absent: that of HEADRACE_LOG_FORMAT in their environment,
    else logfmt. A change takes effect without a restart. Kubernetes only."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=100), BY_NAME] = ()
    """Environment variables of each driver's container. Kubernetes only."""
    resources: Resources = Resources()
    """Resources of each driver's container. Kubernetes only."""
    volumes: Annotated[tuple[Volume, ...], Field(max_length=20), BY_NAME] = ()
    """Volumes of each driver's pod, besides the Secrets that the flow names. Kubernetes only."""
    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(max_length=20)] = ()
    """Where each driver's container finds these volumes. Kubernetes only."""
    service_account: ServiceAccount = ServiceAccount()
    """Settings of the drivers' ServiceAccount. Kubernetes only."""
    pod_disruption_budget: PodDisruptionBudget = PodDisruptionBudget()
    """How many drivers a drain may evict at a time. Kubernetes only."""
    pod_template: PodTemplate = PodTemplate()
    """Settings of their pods. Kubernetes only."""

    rules = (
        Rule(
            "!has(self.volumeMounts) || self.volumeMounts.all(mount, "
            "has(self.volumes) && self.volumes.exists(one, one.name == mount.name))",
            _UNKNOWN_VOLUME,
            at="volumeMounts",
        ),
    )

    def _breaches(self) -> Iterator[Breach]:
        known = {one.name for one in self.volumes}
        for place, mount in enumerate(self.volume_mounts):
            if mount.name not in known:
                yield Breach(("volumeMounts", place, "name"), _UNKNOWN_VOLUME)
