"""What the drivers of all flows have unless a flow says otherwise."""

from headrace.api import Model, ReplicationFlow
from headrace.api.pod import EnvVar, PodMetadata, PodTemplate, Resources


class DriverDefaults(Model):
    """As in ``spec.drivers`` of a flow."""

    resources: Resources = Resources()
    """Requests and limits by name: a flow replaces each by itself."""
    env: tuple[EnvVar, ...] = ()
    """By name, too."""
    pod_template: PodTemplate = PodTemplate()
    """A field that a flow sets replaces the one here; labels and annotations are added."""


def with_defaults(flow: ReplicationFlow, defaults: DriverDefaults) -> ReplicationFlow:
    """The flow as if it said all of it itself."""
    drivers = flow.spec.drivers
    resources, wide = drivers.resources, defaults.resources
    template = drivers.pod_template
    own = {name: getattr(template, name) for name in template.model_fields_set - {"metadata"}}
    metadata = PodMetadata(
        labels=defaults.pod_template.metadata.labels | template.metadata.labels,
        annotations=defaults.pod_template.metadata.annotations | template.metadata.annotations,
    )
    made = drivers.model_copy(
        update={
            "resources": Resources(
                requests=wide.requests | resources.requests, limits=wide.limits | resources.limits
            ),
            "env": tuple({one.name: one for one in (*defaults.env, *drivers.env)}.values()),
            "pod_template": defaults.pod_template.model_copy(update=own | {"metadata": metadata}),
        }
    )
    return flow.model_copy(update={"spec": flow.spec.model_copy(update={"drivers": made})})
