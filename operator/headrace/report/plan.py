"""What one run of a MirrorTest will do, with everything resolved: handed to each of its jobs."""

from typing import Annotated

from pydantic import Field

from headrace.api import ClusterSpec, Delivery, MirrorTest
from headrace.api.model import Model


class PlannedTopic(Model):
    """A topic that the load writes."""

    source: str
    """Its name on the source."""
    target: str
    """Its name on the target, as the mirror under test names it."""
    partitions: Annotated[int, Field(ge=1)]
    """Partitions on the source."""
    keys: Annotated[int, Field(ge=1)]
    """Different keys: enough to reach every partition of the source and of the target."""
    start_offsets: tuple[int, ...]
    """End of each partition of the source before the load: what lies below is not of this run."""
    target_start_offsets: tuple[int, ...]
    """The same on the target; empty when the topic was not there yet."""


class Plan(Model):
    """One run, as ``plan.json`` in the report's folder."""

    run: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,20}$")]
    """Identity of the run: the start of its producers' ids."""
    test: MirrorTest
    """What was asked for."""
    source: ClusterSpec
    """Where the load is written."""
    target: ClusterSpec
    """Where the mirror is expected to carry it."""
    topics: Annotated[tuple[PlannedTopic, ...], Field(min_length=1)]
    """Where the load goes."""
    delivery: Delivery
    """What the mirror promises about repetitions."""
    flow: str | None = None
    """Name of the flow under test; absent: a mirror that someone else runs."""
    warnings: tuple[str, ...] = ()
    """What a reader of the report should know, in sentences."""
