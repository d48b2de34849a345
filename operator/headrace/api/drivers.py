"""The driver processes of a flow: how many, and on Kubernetes what their pods are like."""

from typing import Annotated

from pydantic import Field

from headrace.api.extensions import FILLED_IN_BY_SERVER
from headrace.api.model import Model, Whole
from headrace.api.pod import PodTemplate, Resources


class Drivers(Model):
    """The processes that carry the data."""

    # The scale subresource reads it in the object, so it has to stand there.
    replicas: Annotated[Whole, Field(ge=0, le=1000), FILLED_IN_BY_SERVER] = 2
    """How many. The flows of one headrace run share its drivers: as many as the largest asks
    for."""
    lease_seconds: Annotated[Whole, Field(ge=3, le=3600)] = 6
    """A driver that was not heard of for so long loses its units; it reports three times as
    often."""
    resources: Resources = Resources()
    """What each driver's container asks for. Kubernetes only."""
    pod_template: PodTemplate = PodTemplate()
    """What is particular about their pods. Kubernetes only."""
