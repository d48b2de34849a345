"""What the pods of all mirror tests have unless a test says otherwise."""

from typing import TypeVar

from headrace.api import MirrorTest, Model
from headrace.api.pods import PodTemplate, PullPolicy
from headrace.api.spark import SparkPod
from headrace.controller.resources import template_with

_Model = TypeVar("_Model", bound=Model)


class SparkDefaults(Model):
    """As in ``spec.spark`` of a test, and its ``spec.podTemplate``."""

    image_pull_policy: PullPolicy | None = None
    driver: SparkPod = SparkPod()
    """Field by field."""
    executor: SparkPod = SparkPod()
    """Field by field."""
    pod_template: PodTemplate = PodTemplate()
    """A field that a test sets replaces the one here; labels and annotations are added."""


def with_spark_defaults(test: MirrorTest, defaults: SparkDefaults) -> MirrorTest:
    """The test as if all of it stood in its spec."""
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
    """``own``, with what it does not set as in ``default``, at every level."""
    update: dict[str, object] = {}
    for name in own.model_fields_set:
        value, other = getattr(own, name), getattr(default, name)
        nested = isinstance(value, Model) and isinstance(other, Model)
        update[name] = _merged(other, value) if nested else value
    return default.model_copy(update=update)
