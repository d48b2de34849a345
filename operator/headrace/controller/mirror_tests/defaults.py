"""What the pods of all mirror tests have unless a test says otherwise."""

from headrace.api import MirrorTest, Model
from headrace.api.mirror_test import SparkDriver, SparkExecutor
from headrace.api.pod import PodTemplate, PullPolicy
from headrace.controller.resources import template_with


class SparkDefaults(Model):
    """As in ``spec.spark`` of a test, and its ``spec.podTemplate``."""

    image_pull_policy: PullPolicy | None = None
    driver: SparkDriver = SparkDriver()
    """Field by field."""
    executor: SparkExecutor = SparkExecutor()
    """Field by field."""
    pod_template: PodTemplate = PodTemplate()
    """A field that a test sets replaces the one here; labels and annotations are added."""


def with_spark_defaults(test: MirrorTest, defaults: SparkDefaults) -> MirrorTest:
    """The test as if all of it stood in its spec."""
    spark = test.spec.spark
    made = spark.model_copy(
        update={
            "image_pull_policy": spark.image_pull_policy or defaults.image_pull_policy,
            "driver": defaults.driver.model_copy(
                update={name: getattr(spark.driver, name) for name in spark.driver.model_fields_set}
            ),
            "executor": defaults.executor.model_copy(
                update={
                    name: getattr(spark.executor, name) for name in spark.executor.model_fields_set
                }
            ),
        }
    )
    template = template_with(test.spec.pod_template, defaults.pod_template)
    spec = test.spec.model_copy(update={"spark": made, "pod_template": template})
    return test.model_copy(update={"spec": spec})
