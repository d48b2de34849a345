"""``spec.spark`` of a MirrorTest: its Spark jobs, and the resources of their pods."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from headrace.api.model import Image, Model, Rule, RuleViolation, Whole
from headrace.api.pods import PullPolicy
from headrace.api.quantities import A_QUANTITY, NO_LIMIT_OF_0, Quantity, quantity

MIB = 1 << 20
_MIN_MEMORY = "1Gi"
_TOO_LITTLE = f"must be at least {_MIN_MEMORY}: 512Mi are for Python, the rest is the JVM's"
_ABOVE_LIMIT = "cpu must not be above the limit"
_TWO_SIZES = "must be as limits.memory: the JVM's heap is made for one size"


class SparkAmounts(Model):
    """Amounts of a pod's resources."""

    cpu: Quantity | None = None
    """CPU. Requests: default 500m for a Job's pod, 200m for an executor. Limits: no default. The
    limit of a Job's pod also applies to the pod of spec.chaos."""
    memory: Quantity | None = None
    """Memory. Limits: default 1Gi for a Job's pod, 2Gi for the pod of the comparison, and 1536Mi
    for an executor. Without executors, 256Mi are added for each producer. Requests: must equal the
    limit, or be absent."""

    rules = (
        Rule(  # OpenAPI's patterns apply only to text
            "!has(self.cpu) || quantity(string(self.cpu)).compareTo(quantity('0')) >= 0",
            A_QUANTITY,
            at="cpu",
        ),
    )


class SparkResources(Model):
    """Resources, in the form of a Kubernetes container."""

    requests: SparkAmounts = SparkAmounts()
    """Requested amounts."""
    limits: SparkAmounts = SparkAmounts()
    """Maximum amounts."""

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
        Rule(
            "!has(self.limits) || !has(self.limits.cpu)"
            " || quantity(string(self.limits.cpu)).compareTo(quantity('0')) > 0",
            f"cpu {NO_LIMIT_OF_0}",
            at="limits",
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
        if limit and not quantity(limit):
            yield RuleViolation(("limits",), f"cpu {NO_LIMIT_OF_0}")


class SparkPod(Model):
    """Pods of the Spark jobs."""

    resources: SparkResources = SparkResources()
    """Resources of the pods."""


class SparkSpec(Model):
    """Spark jobs of the test."""

    executors: Annotated[Whole, Field(ge=0, le=100)] = 2
    """Number of executor pods of each job. With 0, the Job's own pod does all work. Kubernetes
    only."""
    image: Image | None = None
    """Image of the pods. Default: the operator's --spark-image. Kubernetes only."""
    image_pull_policy: PullPolicy | None = None
    """Pull policy of the image. Default: IfNotPresent. Kubernetes only."""
    driver: SparkPod = SparkPod()
    """Pods of the Jobs. Kubernetes only."""
    executor: SparkPod = SparkPod()
    """Pods of the executors. Kubernetes only."""
