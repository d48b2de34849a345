"""What the drivers of all flows have unless a flow says otherwise."""

from headrace.api import Model, ReplicationFlow
from headrace.api.pods import EnvVar, PodMetadata, PodTemplate, PullPolicy, Resources, quantity


class DriverDefaults(Model):
    """As in ``spec.drivers`` of a flow."""

    resources: Resources = Resources()
    """Requests and limits by name: a flow replaces each by itself, and one that contradicts it."""
    env: tuple[EnvVar, ...] = ()
    """By name, too."""
    image_pull_policy: PullPolicy | None = None
    pod_template: PodTemplate = PodTemplate()
    """A field that a flow sets replaces the one here; labels and annotations are added."""


def with_defaults(flow: ReplicationFlow, defaults: DriverDefaults) -> ReplicationFlow:
    """The flow as if all of it stood in its spec."""
    drivers = flow.spec.drivers
    made = drivers.model_copy(
        update={
            "resources": _resources(defaults.resources, drivers.resources),
            "env": tuple({one.name: one for one in (*defaults.env, *drivers.env)}.values()),
            "image_pull_policy": drivers.image_pull_policy or defaults.image_pull_policy,
            "pod_template": template_with(drivers.pod_template, defaults.pod_template),
        }
    )
    return flow.model_copy(update={"spec": flow.spec.model_copy(update={"drivers": made})})


def template_with(template: PodTemplate, defaults: PodTemplate) -> PodTemplate:
    """``template`` with the fields of ``defaults`` that it does not set."""
    own = {name: getattr(template, name) for name in template.model_fields_set - {"metadata"}}
    metadata = PodMetadata(
        labels=defaults.metadata.labels | template.metadata.labels,
        annotations=defaults.metadata.annotations | template.metadata.annotations,
    )
    return defaults.model_copy(update=own | {"metadata": metadata})


def _resources(wide: Resources, own: Resources) -> Resources:
    """A default that contradicts the flow is left out: no pod requests more than its limit."""
    requests = {
        name: amount
        for name, amount in wide.requests.items()
        if name not in own.limits or quantity(amount) <= quantity(own.limits[name])
    }
    limits = {
        name: amount
        for name, amount in wide.limits.items()
        if name not in own.requests or quantity(own.requests[name]) <= quantity(amount)
    }
    return Resources(requests=requests | own.requests, limits=limits | own.limits)
