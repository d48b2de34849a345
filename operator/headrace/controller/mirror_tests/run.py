"""Run of a MirrorTest, and the operator's defaults for all tests."""

from dataclasses import dataclass, field
from typing import TypeVar

from headrace.api import MIRROR_TEST_LABEL, ChaosStep, MirrorTest, Model, Rehearsal, label_value
from headrace.api.pods import PodTemplate, PullPolicy
from headrace.api.spark import SparkPod
from headrace.controller.resources import FixedRole, template_with
from headrace.k8s import Object, owner_reference
from headrace.logs import FORMAT_VARIABLE, FORMATS
from headrace.mirror_test import Stage, documents

_Model = TypeVar("_Model", bound=Model)


class SparkDefaults(Model):
    """Defaults of ``spec.spark`` and ``spec.podTemplate`` of tests."""

    image_pull_policy: PullPolicy | None = None
    driver: SparkPod = SparkPod()
    """Defaults of drivers, merged field by field."""
    executor: SparkPod = SparkPod()
    """Defaults of executors, merged field by field."""
    pod_template: PodTemplate = PodTemplate()
    """Default pod template.

    Fields of a test replace its fields. Labels and annotations are added.
    """


def with_spark_defaults(test: MirrorTest, defaults: SparkDefaults) -> MirrorTest:
    """Return the test with the defaults filled into its spec."""
    spark = test.spec.spark
    made = spark.model_copy(
        update={
            "image_pull_policy": spark.image_pull_policy or defaults.image_pull_policy,
            "driver": _merged(defaults.driver, spark.driver),
            "executor": _merged(defaults.executor, spark.executor),
        }
    )
    template = template_with(test.spec.pod_template, defaults.pod_template)
    spec = test.spec.model_copy(update={"spark": made, "pod_template": template})
    return test.model_copy(update={"spec": spec})


def _merged(default: _Model, own: _Model) -> _Model:
    """Return ``own`` with its unset fields taken from ``default``, at every level."""
    update: dict[str, object] = {}
    for name in own.model_fields_set:
        value, other = getattr(own, name), getattr(default, name)
        nested = isinstance(value, Model) and isinstance(other, Model)
        update[name] = _merged(other, value) if nested else value
    return default.model_copy(update=update)


STAGE_LABEL = "headrace.dev/stage"
RUN_FOLDER = "/etc/headrace/run"
TEST_FILE = f"{RUN_FOLDER}/{documents.TEST}"
PLAN_FILE = f"{RUN_FOLDER}/{documents.FAULTS}"
REHEARSAL_FILE = f"{RUN_FOLDER}/{documents.REHEARSAL}"
WRITABLE = "/tmp"


@dataclass(frozen=True)
class Images:
    """Images of the pods."""

    spark: str
    chaos: str = "headrace"
    """Image of the Jobs for ``spec.chaos`` and ``spec.rehearsal``, which is the drivers' image."""
    chaos_pull_policy: PullPolicy = "IfNotPresent"


@dataclass(frozen=True)
class TestSettings:
    """Settings of the operator that concern tests."""

    __test__ = False  # not a pytest class

    images: Images
    role: FixedRole | None = None
    """Role of the Jobs for ``spec.chaos``. If None, tests with ``spec.chaos`` are rejected."""
    rehearsal_role: FixedRole | None = None
    """Role of the Jobs for ``spec.rehearsal``. If None, tests with ``spec.rehearsal`` are
    rejected."""
    executor_role: FixedRole | None = None
    """Role of the accounts that create executors.

    If None, the operator grants its own permissions.
    """
    custom_images: bool = True
    """True if a test may set the image of its Spark jobs."""
    defaults: SparkDefaults = field(default_factory=SparkDefaults)
    network_policy: bool = False
    """True if a network policy restricts access to the Spark pods of a test."""
    log_format: str = FORMATS[0]
    """Format of the logs of all pods of a test."""
    refused_namespace: str | None = None
    """Namespace of the operator, where tests are refused.

    A pod of a test in that namespace could use the operator's token.
    """

    def refusal(self, test: MirrorTest) -> str:
        """Return the reason why a test is refused, or an empty string."""
        if test.metadata.namespace == self.refused_namespace:
            return (
                f"mirror tests are refused in namespace {self.refused_namespace}, which is the "
                "operator's own: a pod of a test there could use the operator's token"
            )
        if test.spec.spark.image and not self.custom_images:
            return (
                "spec.spark.image: this operator allows no image but its own "
                "(spark.allowCustomImage of the chart)"
            )
        return ""


@dataclass(frozen=True)
class TestRun:
    """A test whose clusters are resolved, with the settings of its Jobs."""

    __test__ = False  # not a pytest class

    test: MirrorTest
    images: Images
    steps: tuple[ChaosStep, ...] = ()
    """Steps of ``spec.chaos``. The resolved ``test`` contains no steps, because it names no
    flow."""
    role: FixedRole | None = None
    """Role of the chaos Job. If None, tests with steps may not begin."""
    rehearsal: Rehearsal | None = None
    """``spec.rehearsal`` of the test. The resolved ``test`` contains no rehearsal."""
    rehearsal_role: FixedRole | None = None
    """Role of the rehearsal Job. If None, tests with a rehearsal may not begin."""
    executor_role: FixedRole | None = None
    network_policy: bool = False
    """True if the run has a network policy."""
    log_format: str = FORMATS[0]
    """Format of the logs of all pods."""

    @property
    def name(self) -> str:
        """Name of the run, at most 20 characters. All operators derive the same name."""
        metadata = self.test.metadata
        made = metadata.creation_timestamp
        return f"{made:%y%m%d-%H%M%S}-{(metadata.uid or '')[:4]}" if made else metadata.name[:20]

    @property
    def image(self) -> str:
        """Image of the Spark drivers and executors."""
        return self.test.spec.spark.image or self.images.spark

    @property
    def pull_policy(self) -> PullPolicy:
        """Pull policy of ``image``."""
        return self.test.spec.spark.image_pull_policy or "IfNotPresent"

    @property
    def has_executors(self) -> bool:
        """True if the Spark drivers create executor pods."""
        return self.test.spec.spark.executors > 0

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Stages of the run. Chaos and rehearsal are included only if the test has them."""
        if self.test.spec.audit is not None:
            return (Stage.VERIFY,)
        without = {Stage.CHAOS: not self.steps, Stage.REHEARSAL: self.rehearsal is None}
        return tuple(stage for stage in Stage if not without.get(stage))

    @property
    def log_variables(self) -> list[Object]:
        """Variable that sets the format of the logs, if it is not the default."""
        is_default = self.log_format == FORMATS[0]
        return [] if is_default else [{"name": FORMAT_VARIABLE, "value": self.log_format}]

    def part(self, name: str) -> str:
        """Return the name of an object that belongs to the test."""
        return f"{self.test.metadata.name}-{name}"


def report_name(test: MirrorTest) -> str:
    """Return the name of the ConfigMap into which the verifier writes ``report.json``."""
    return f"{test.metadata.name}-report"


def labels(run: TestRun) -> dict[str, str]:
    """Return the labels of all objects of a run."""
    name = label_value(run.test.metadata.name)
    return {
        "app.kubernetes.io/name": "headrace",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": "headrace",
        "app.kubernetes.io/component": "mirror-test",
        MIRROR_TEST_LABEL: name,
    }


def metadata(run: TestRun, name: str) -> Object:
    """Return the metadata of an object that the garbage collector deletes with its test.

    Deleting a test therefore cancels its run.
    """
    test = run.test
    return {
        "name": name,
        "namespace": test.metadata.namespace,
        "labels": labels(run),
        "ownerReferences": [owner_reference(test)],
    }


def ready_by(file: str) -> Object:
    """Return a readiness probe that succeeds once ``file`` exists: the load may then start."""
    return {"exec": {"command": ["test", "-f", file]}, "periodSeconds": 1}


def build_limits(memory: str, cpu: str | None) -> Object:
    """Return the limits of a Job's container. ``cpu`` is None for no CPU limit."""
    return {"memory": memory, **({"cpu": cpu} if cpu else {})}
