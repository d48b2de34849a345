"""``spec.spark`` of a MirrorTest: its Spark jobs, and the resources of their pods."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from headrace.api.model import Image, Model, Rule, RuleViolation, Whole
from headrace.api.pods import PullPolicy
from headrace.api.quantities import A_QUANTITY, Quantity, quantity

MIB = 1 << 20
_MIN_MEMORY = "1Gi"
_TOO_LITTLE = f"must be at least {_MIN_MEMORY}: 512Mi are for Python, the rest is the JVM's"
_ABOVE_LIMIT = "cpu must not be above the limit"
_TWO_SIZES = "must be as limits.memory: the JVM's heap is made for one size"


class SparkAmounts(Model):
    """Amounts of a pod's resources."""

    cpu: Quantity | None = None
    """Processors. Requests: set aside; absent: 500m for a Job's pod, 200m for an executor. Limits:
    never exceeded, of a Job's nor by the pod of spec.chaos; absent: no limit."""
    memory: Quantity | None = None
    """Memory. Limits: reserved and never exceeded; absent: 1Gi for a Job's pod, 2Gi for the
    comparison's, and 1536Mi for an executor. Without executors, 256Mi are added for each producer.
    Requests: the same amount, or absent.
    """

    rules = (
        Rule(  # a number has no pattern
            "!has(self.cpu) || quantity(string(self.cpu)).compareTo(quantity('0')) >= 0",
            A_QUANTITY,
            at="cpu",
        ),
    )


class SparkResources(Model):
    """Resources as of a container in Kubernetes."""

    requests: SparkAmounts = SparkAmounts()
    """Reserved amounts."""
    limits: SparkAmounts = SparkAmounts()
    """Amounts that are never exceeded."""

    rules = (
        Rule(
            "!has(self.requests) || !has(self.requests.memory) || (has(self.limits)"
            " && has(self.limits.memory) && self.limits.memory == self.requests.memory)",
            _TWO_SIZES,
            at="requests",
        ),
        Rule(
            "!has(self.limits) || !has(self.limits.memory)"
            f" || quantity(string(self.limits.memory)).compareTo(quantity('{_MIN_MEMORY}')) >= 0",
            f"memory {_TOO_LITTLE}",
            at="limits",
        ),
        Rule(
            "!has(self.requests) || !has(self.requests.cpu) || !has(self.limits)"
            " || !has(self.limits.cpu) || quantity(string(self.requests.cpu))"
            ".compareTo(quantity(string(self.limits.cpu))) <= 0",
            _ABOVE_LIMIT,
            at="requests",
        ),
    )

    @property
    def memory_mib(self) -> int | None:
        """``limits.memory`` in MiB."""
        memory = self.limits.memory
        return None if memory is None else int(quantity(memory) // MIB)

    def _breaches(self) -> Iterator[RuleViolation]:
        if self.requests.memory not in (None, self.limits.memory):
            yield RuleViolation(("requests", "memory"), _TWO_SIZES)
        if self.limits.memory and quantity(self.limits.memory) < quantity(_MIN_MEMORY):
            yield RuleViolation(("limits", "memory"), _TOO_LITTLE)
        requested, limit = self.requests.cpu, self.limits.cpu
        if requested and limit and quantity(requested) > quantity(limit):
            yield RuleViolation(("requests",), _ABOVE_LIMIT)


class SparkPod(Model):
    """Pods of the Spark jobs."""

    resources: SparkResources = SparkResources()
    """Their resources."""


class SparkSpec(Model):
    """The test's Spark jobs."""

    executors: Annotated[Whole, Field(ge=0, le=100)] = 2
    """Executors of each job, pods of their own; 0: all work is done in the Job's own pod.
    Kubernetes only."""
    image: Image | None = None
    """Image of the pods; absent: the operator's --spark-image. Kubernetes only."""
    image_pull_policy: PullPolicy | None = None
    """When the pods pull it; absent: IfNotPresent. Kubernetes only."""
    driver: SparkPod = SparkPod()
    """The pods of the Jobs. Kubernetes only."""
    executor: SparkPod = SparkPod()
    """The pods of the executors. Kubernetes only."""
