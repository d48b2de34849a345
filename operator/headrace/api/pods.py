"""Drivers of a manifest, and the parts of pods that a user may set."""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import Field

from headrace.api.cluster import SecretKey
from headrace.api.model import (
    BY_NAME,
    FILLED_IN_BY_SERVER,
    Flag,
    HostName,
    Image,
    LabelKey,
    LabelValue,
    Matching,
    Model,
    Name,
    NameOfEntry,
    Once,
    Rule,
    RuleViolation,
    Text,
    Unquoted,
    Whole,
)
from headrace.api.quantities import Resources
from headrace.api.volumes import AsInKubernetes, Volume, VolumeMount

Terms = Annotated[tuple[AsInKubernetes, ...], Field(max_length=100)]
Labels = Annotated[dict[NameOfEntry, LabelValue], Field(max_length=100)]
Annotations = Annotated[dict[NameOfEntry, str], Field(max_length=100)]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]


_OWN_VARIABLES = ("POD_NAME", "POD_UID", "POD_IP", "HEADRACE_RACK")
_NOT_OURS = f"must not be {', '.join(_OWN_VARIABLES[:-1])} or {_OWN_VARIABLES[-1]}"


_ONE_SOURCE = "must have exactly one of secretKeyRef and configMapKeyRef"
_ONE_VALUE = "must not be set beside value"


class KeySelector(Model):
    """Kubernetes' SecretKeySelector and ConfigMapKeySelector."""

    name: Name
    """Name of the Secret or ConfigMap."""
    key: SecretKey
    """Key in the data of the Secret or ConfigMap."""
    optional: Flag = False
    """Whether the pod also starts if the key does not exist."""


class EnvVarSource(Model):
    """Kubernetes' EnvVarSource: the source of a variable's value."""

    secret_key_ref: KeySelector | None = None
    """A key of a Secret of the same namespace."""
    config_map_key_ref: KeySelector | None = None
    """A key of a ConfigMap of the same namespace."""

    rules = (Rule("has(self.secretKeyRef) != has(self.configMapKeyRef)", _ONE_SOURCE),)

    def _breaches(self) -> Iterator[RuleViolation]:
        if (self.secret_key_ref is None) == (self.config_map_key_ref is None):
            yield RuleViolation((), _ONE_SOURCE)


VariableName = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    Matching(r"[ -<>-~]+", "must be printable ASCII without '='", pattern=True),
]


class EnvVar(Model):
    """Kubernetes' EnvVar: a variable of a container's environment."""

    name: VariableName
    """Name of the variable."""
    value: str = ""
    """Value of the variable. Use valueFrom for a Secret."""
    value_from: EnvVarSource | None = None
    """Source of the value, instead of value."""

    rules = (
        Rule(f"!(self.name in {list(_OWN_VARIABLES)})", _NOT_OURS, at="name"),
        Rule("!has(self.valueFrom) || !has(self.value)", _ONE_VALUE, at="valueFrom"),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        if self.name in _OWN_VARIABLES:
            yield RuleViolation(("name",), _NOT_OURS)
        if "value" in self.model_fields_set and self.value_from is not None:
            yield RuleViolation(("valueFrom",), _ONE_VALUE)


class ServiceAccount(Model):
    """Settings of the drivers' ServiceAccount."""

    annotations: Annotations = Field(default_factory=dict)
    """Annotations to add, such as the role of a cloud's workload identity."""


_PODS, _A_COUNT = r"\d{1,6}|(\d\d?|100)%", "must be a number of pods, or a share such as 25%"
PodCount = Annotated[Unquoted, Matching(_PODS, _A_COUNT, pattern=True)]
_ONE_BUDGET = "must not be set beside maxUnavailable"


class PodDisruptionBudget(Model):
    """Number of drivers that a drain may evict at the same time. Without either field it is one."""

    max_unavailable: PodCount | None = None
    """Maximum number or percentage of drivers that may be unavailable. With 100% a drain may evict
    all."""
    min_available: PodCount | None = None
    """Minimum number or percentage of drivers that must remain available, instead of
    maxUnavailable."""

    rules = (
        Rule(
            "!has(self.maxUnavailable) || !has(self.minAvailable)", _ONE_BUDGET, at="minAvailable"
        ),
        *(  # OpenAPI's patterns apply only to text
            Rule(
                f"!has(self.{field}) || string(self.{field}).matches(r'^({_PODS})$')",
                _A_COUNT,
                at=field,
            )
            for field in ("maxUnavailable", "minAvailable")
        ),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        if self.max_unavailable is not None and self.min_available is not None:
            yield RuleViolation(("minAvailable",), _ONE_BUDGET)


_OWN_LABELS = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/component",
    "headrace.dev/flow",
    "headrace.dev/template",
    "headrace.dev/mirror-test",
    "headrace.dev/stage",
    "pod-template-hash",
)
"""Labels by which headrace and Kubernetes select the pods."""
_NOT_OWN_LABELS = f"must not have a label of headrace's own: {', '.join(_OWN_LABELS)}"


class PodMetadata(Model):
    """Labels and annotations of pods."""

    labels: Labels = Field(default_factory=dict)
    """Labels to add."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations to add."""

    rules = (
        Rule(
            f"!has(self.labels) || {list(_OWN_LABELS)}.all(own, !(own in self.labels))",
            _NOT_OWN_LABELS,
            at="labels",
        ),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        if not self.labels.keys().isdisjoint(_OWN_LABELS):
            yield RuleViolation(("labels",), _NOT_OWN_LABELS)


_VALUE_BESIDE_EXISTS = "must be left out beside the operator Exists"
_KEY_MISSING = "is required unless the operator is Exists"
_SECONDS_WITHOUT_EVICTION = "needs the effect NoExecute"


class Toleration(Model):
    """Kubernetes' Toleration: a taint of a node that a pod tolerates."""

    key: LabelKey | None = None
    """Key of the taint. If absent, operator must be Exists, and every taint matches."""
    operator: Literal["Equal", "Exists"] | None = None
    """Comparison of key and value: Equal (the default) or Exists."""
    value: LabelValue | None = None
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. If absent, every effect matches."""
    toleration_seconds: Whole | None = None
    """Seconds for which a taint with the effect NoExecute is tolerated. If absent, it is tolerated
    without limit."""

    rules = (
        Rule(
            "self.?operator.orValue('Equal') != 'Exists' || self.?value.orValue('') == ''",
            _VALUE_BESIDE_EXISTS,
            at="value",
        ),
        Rule(
            "self.?key.orValue('') != '' || self.?operator.orValue('Equal') == 'Exists'",
            _KEY_MISSING,
            at="key",
        ),
        Rule(
            "!has(self.tolerationSeconds) || self.?effect.orValue('') == 'NoExecute'",
            _SECONDS_WITHOUT_EVICTION,
            at="tolerationSeconds",
        ),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        exists = self.operator == "Exists"
        if exists and self.value:
            yield RuleViolation(("value",), _VALUE_BESIDE_EXISTS)
        if not exists and not self.key:
            yield RuleViolation(("key",), _KEY_MISSING)
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            yield RuleViolation(("tolerationSeconds",), _SECONDS_WITHOUT_EVICTION)


_VALUES = "is required with the operators In and NotIn, and only there"


class LabelSelectorRequirement(Model):
    """Kubernetes' LabelSelectorRequirement."""

    key: LabelKey
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """Comparison of key and values."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=100)] = ()
    """Values for In and NotIn."""

    rules = (
        Rule(
            "(self.operator in ['In', 'NotIn']) == (self.?values.orValue([]).size() > 0)",
            _VALUES,
            at="values",
        ),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        if (self.operator in {"In", "NotIn"}) != bool(self.values):
            yield RuleViolation(("values",), _VALUES)


class LabelSelector(Model):
    """Kubernetes' LabelSelector."""

    match_labels: Labels = Field(default_factory=dict)
    """Labels that a pod must have."""
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], Field(max_length=100)] = ()
    """Further conditions on the labels of a pod."""


_NO_DOMAINS = "needs whenUnsatisfiable: DoNotSchedule"


class TopologySpreadConstraint(Model):
    """Kubernetes' TopologySpreadConstraint: the distribution of pods over zones or nodes."""

    max_skew: Annotated[Whole, Field(ge=1)]
    """Maximum difference between the numbers of pods in two domains."""
    topology_key: LabelKey
    """Key of the node label whose values are the domains."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """Treatment of a pod that satisfies the constraint on no node."""
    label_selector: LabelSelector | None = None
    """Pods to count. Default: the pods of the same flow, or of the same run of a test."""
    min_domains: Annotated[Whole, Field(ge=1)] | None = None
    """Minimum number of domains."""
    match_label_keys: Annotated[tuple[LabelKey, ...], Field(max_length=100), Once()] = ()
    """Keys of labels. A pod is counted only if it has the same values as the new pod."""
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    """Whether nodes that the affinity excludes are counted."""
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    """Whether nodes whose taints are not tolerated are counted."""

    rules = (
        Rule(
            "!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'",
            _NO_DOMAINS,
            at="minDomains",
        ),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        if self.min_domains is not None and self.when_unsatisfiable != "DoNotSchedule":
            yield RuleViolation(("minDomains",), _NO_DOMAINS)


class LocalObjectReference(Model):
    """Kubernetes' LocalObjectReference."""

    name: Name
    """Name of an object in the same namespace."""


_NO_ADDRESS = "must be an IP address"


class HostAlias(Model):
    """Kubernetes' HostAlias: an entry of /etc/hosts."""

    ip: Annotated[str, Field(max_length=64)]
    """IP address of the host names."""
    hostnames: Annotated[tuple[HostName, ...], Field(max_length=100)] = ()
    """Host names for the address."""

    rules = (Rule("isIP(self.ip)", _NO_ADDRESS, at="ip"),)

    def _breaches(self) -> Iterator[RuleViolation]:
        try:
            ip_address(self.ip)
        except ValueError:
            yield RuleViolation(("ip",), _NO_ADDRESS)


class NodeAffinity(Model):
    """Kubernetes' NodeAffinity."""

    required_during_scheduling_ignored_during_execution: AsInKubernetes | None = None
    """Kubernetes' NodeSelector: nodes that the pods need."""
    preferred_during_scheduling_ignored_during_execution: Terms = ()
    """Kubernetes' PreferredSchedulingTerms: nodes that are chosen first."""


class PodAffinity(Model):
    """Kubernetes' PodAffinity and PodAntiAffinity."""

    required_during_scheduling_ignored_during_execution: Terms = ()
    """Kubernetes' PodAffinityTerms that a node must satisfy."""
    preferred_during_scheduling_ignored_during_execution: Terms = ()
    """Kubernetes' WeightedPodAffinityTerms: nodes that satisfy them are chosen first."""


class Affinity(Model):
    """Kubernetes' Affinity."""

    node_affinity: NodeAffinity | None = None
    """Nodes for the pods, by their labels."""
    pod_affinity: PodAffinity | None = None
    """Nodes for the pods, near certain pods."""
    pod_anti_affinity: PodAffinity | None = None
    """Nodes for the pods, away from certain pods."""


class DnsOption(Model):
    """Kubernetes' PodDNSConfigOption."""

    name: Annotated[Text, Field(min_length=1)]
    """Name of the option."""
    value: Text | None = None
    """Value of the option."""


class DnsConfig(Model):
    """Kubernetes' PodDNSConfig."""

    nameservers: Annotated[tuple[Text, ...], Field(max_length=20)] = ()
    """IP addresses of name servers."""
    searches: Annotated[tuple[Text, ...], Field(max_length=32)] = ()
    """Domains in which host names are searched."""
    options: Annotated[tuple[DnsOption, ...], Field(max_length=100)] = ()
    """Options of the resolver."""


UnixId = Annotated[Whole, Field(ge=1, le=2**31 - 1)]


class PodSecurityContext(Model):
    """Kubernetes' PodSecurityContext, without fields that Pod Security's `restricted` sets."""

    run_as_user: UnixId | None = None
    """User id of all processes. Default: the cluster's choice, otherwise the image's, 10001."""
    run_as_group: UnixId | None = None
    """Group id of all processes. Default: the cluster's choice, otherwise the image's, 10001."""
    fs_group: UnixId | None = None
    """Group id of the files in volumes."""
    supplemental_groups: Annotated[tuple[UnixId, ...], Field(max_length=100)] = ()
    """Additional group ids of all processes."""
    se_linux_options: Annotated[dict[str, Text], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """SELinux labels: level, role, type, user."""


_NO_NAMESERVERS = "is required with dnsPolicy: None"


class PodTemplate(Model):
    """Settings of pods."""

    metadata: PodMetadata = PodMetadata()
    """Labels and annotations to add."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels that a node must have."""
    affinity: Affinity = Affinity()
    """Kubernetes' affinity."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=100)] = ()
    """Taints that the pods tolerate."""
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...],
        Field(max_length=100),
        Once(("topologyKey", "whenUnsatisfiable")),
    ] = ()
    """Distribution of the pods over zones or nodes. If empty, drivers are spread over nodes and
    zones if possible (ScheduleAnyway)."""
    priority_class_name: Name | None = None
    """Kubernetes' priorityClassName."""
    runtime_class_name: Name | None = None
    """Kubernetes' runtimeClassName."""
    scheduler_name: Name | None = None
    """Kubernetes' schedulerName."""
    host_aliases: Annotated[tuple[HostAlias, ...], Field(max_length=100)] = ()
    """Kubernetes' hostAliases: addresses of brokers that DNS does not resolve."""
    dns_policy: Literal["ClusterFirst", "Default", "ClusterFirstWithHostNet", "None"] | None = None
    """Kubernetes' dnsPolicy."""
    dns_config: DnsConfig = DnsConfig()
    """Kubernetes' dnsConfig."""
    termination_grace_period_seconds: Annotated[Whole, Field(ge=1, le=3600)] | None = None
    """Seconds between TERM and KILL. Default: 30. A driver needs about 5 to hand over its units."""
    image_pull_secrets: Annotated[tuple[LocalObjectReference, ...], Field(max_length=100)] = ()
    """Secrets with credentials for pulling the image."""
    security_context: PodSecurityContext | None = None
    """User, groups and SELinux labels of the processes."""

    rules = (
        Rule(
            "self.?dnsPolicy.orValue('') != 'None'"
            " || size(self.?dnsConfig.nameservers.orValue([])) > 0",
            _NO_NAMESERVERS,
            at="dnsConfig.nameservers",
            reason="FieldValueRequired",
        ),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        if self.dns_policy == "None" and not self.dns_config.nameservers:
            yield RuleViolation(("dnsConfig", "nameservers"), _NO_NAMESERVERS)


_UNKNOWN_VOLUME = "must be the name of a volume in spec.drivers.volumes"


class Drivers(Model):
    """Processes that copy the data."""

    # The scale subresource reads this field in the object, so the API server writes its default.
    replicas: Annotated[Whole, Field(ge=0, le=1000), FILLED_IN_BY_SERVER] = 2
    """Number of drivers. All flows of one headrace run share its drivers, and the largest number
    applies."""
    lease_seconds: Annotated[Whole, Field(ge=3, le=3600)] = 6
    """Seconds without a heartbeat after which a driver loses its units. A driver sends three
    heartbeats in this time."""
    image: Image | None = None
    """Image of the drivers. Default: the operator's image, so that an upgrade of the operator rolls
    them out. A pinned image stays until you change it. Kubernetes only."""
    image_pull_policy: PullPolicy | None = None
    """Pull policy of the image. Default, as in Kubernetes: Always for the tag latest, otherwise
    IfNotPresent. Kubernetes only."""
    rollout_priority: Annotated[Whole, Field(ge=-1000000, le=1000000)] = 0
    """Priority of the flow if the operator limits concurrent roll-outs. Higher priorities roll out
    first. Flows with the same priority are ordered by namespace and name. Kubernetes only."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] | None = None
    """Log level of the drivers. Default: HEADRACE_LOG_LEVEL in their environment, otherwise INFO. A
    change takes effect without a restart. Kubernetes only."""
    log_format: Literal["logfmt", "json"] | None = None
    """Log format of the drivers. Default: HEADRACE_LOG_FORMAT in their environment, otherwise
    logfmt. A change takes effect without a restart. Kubernetes only."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=100), BY_NAME] = ()
    """Environment variables of each driver's container. Kubernetes only."""
    resources: Resources = Resources()
    """Resources of each driver's container. Kubernetes only."""
    volumes: Annotated[tuple[Volume, ...], Field(max_length=20), BY_NAME] = ()
    """Volumes of each driver's pod, in addition to the Secrets that the flow names. Kubernetes
    only."""
    volume_mounts: Annotated[
        tuple[VolumeMount, ...], Field(max_length=20), Once(("mountPath",))
    ] = ()
    """Mounts of these volumes in each driver's container. Kubernetes only."""
    service_account: ServiceAccount = ServiceAccount()
    """Settings of the drivers' ServiceAccount. Kubernetes only."""
    pod_disruption_budget: PodDisruptionBudget = PodDisruptionBudget()
    """Number of drivers that a drain may evict at the same time. Kubernetes only."""
    pod_template: PodTemplate = PodTemplate()
    """Settings of the drivers' pods. Kubernetes only."""

    rules = (
        Rule(
            "!has(self.volumeMounts) || self.volumeMounts.all(mount, "
            "has(self.volumes) && self.volumes.exists(one, one.name == mount.name))",
            _UNKNOWN_VOLUME,
            at="volumeMounts",
        ),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        known = {one.name for one in self.volumes}
        for place, mount in enumerate(self.volume_mounts):
            if mount.name not in known:
                yield RuleViolation(("volumeMounts", place, "name"), _UNKNOWN_VOLUME)
