"""What every object has beside its spec: metadata and conditions, as Kubernetes defines them."""

from enum import StrEnum
from typing import Final

from pydantic import Field, JsonValue

from headrace.api.model import Count, Label, Model, Name, Timestamp

API_VERSION: Final = "headrace.dev/v1alpha1"


class ObjectMeta(Model):
    """Kubernetes' metadata; standalone uses the name only."""

    name: Name
    """Name of the object: a DNS subdomain, one of its kind in a namespace."""
    namespace: Label = "default"
    """Namespace of the object."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels, for selecting objects."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations, for tools and people."""
    uid: str | None = None
    """Identity of this very object, written by the API server."""
    resource_version: str | None = None
    """Version of the object's state, written by the API server."""
    generation: Count | None = None
    """Counts the changes of the spec, written by the API server."""
    creation_timestamp: Timestamp | None = None
    """When the object was created, written by the API server."""
    deletion_timestamp: Timestamp | None = None
    """When the object is to be gone, written by the API server."""
    deletion_grace_period_seconds: Count | None = None
    """Seconds that a deletion may take, written by the API server."""
    finalizers: tuple[str, ...] = ()
    """Who still has to clean up before the object goes."""
    owner_references: tuple[dict[str, JsonValue], ...] = ()
    """Objects whose deletion deletes this one."""
    managed_fields: tuple[dict[str, JsonValue], ...] = ()
    """Who wrote which field, kept by the API server."""


class ConditionType(StrEnum):
    """What a condition is about."""

    READY = "Ready"
    """Everything that was asked for is done, and nothing failed."""
    RECONCILING = "Reconciling"
    """Work towards the spec is under way."""
    STALLED = "Stalled"
    """Nothing will happen until somebody changes something."""
    DATA_LOSS_DETECTED = "DataLossDetected"
    """Records are gone from the source before they were copied, or from the target afterwards."""
    FOREIGN_WRITER = "ForeignWriter"
    """Somebody else writes to a target topic of this flow."""
    TOMBSTONES_AT_RISK = "TombstonesAtRisk"
    """A compacted topic may have dropped deletions before they were copied."""
    CAUGHT_UP = "CaughtUp"
    """A task: all that was on the source when it began is on the target."""


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Why a condition has its status."""

    RUNNING = "Running"
    """Every task runs."""
    STARTING = "Starting"
    """Tasks are being created, placed or restored."""
    TASK_FAILED = "TaskFailed"
    """At least one task failed; its lastError says why."""
    NO_DRIVERS = "NoDrivers"
    """There is no driver to run the tasks."""
    NO_TOPIC_MATCHES = "NoTopicMatches"
    """No topic of the source matches spec.topics."""
    SOURCE_UNREACHABLE = "SourceUnreachable"
    """No broker of the source cluster answers."""
    TARGET_UNREACHABLE = "TargetUnreachable"
    """No broker of the target cluster answers."""
    SECRET_MISSING = "SecretMissing"
    """A Secret, or a key of it, that the flow names is not there; goes on when it appears."""
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    """Brokers refuse the user name, the password or the mechanism; goes on when that is mended."""
    TLS_FAILED = "TlsFailed"
    """No encrypted connection: a certificate that is not trusted, not valid, or not wanted."""
    SAME_CLUSTER = "SameCluster"
    """Source and target are one cluster."""
    TARGET_TOPIC_TAKEN = "TargetTopicTaken"
    """Another flow writes one of the target topics."""
    TARGET_PARTITIONS_TOO_FEW = "TargetPartitionsTooFew"
    """A target topic has fewer partitions than its source and could not be grown."""
    DATA_LOST = "DataLost"
    """The message names the offsets that are lost."""
    UNEXPECTED_OFFSET = "UnexpectedOffset"
    """An acknowledged offset was not the next one: another writer, or a late duplicate."""
    CATCHING_UP = "CatchingUp"
    """Records that were on the source when the task began are not on the target yet."""
    CAUGHT_UP = "CaughtUp"
    """Those records are on the target."""
    SOURCE_CHANGED = "SourceChanged"
    """A topic was deleted and made again: positions in the old one mean nothing in the new one."""


class Condition(Model):
    """One observation about an object (Kubernetes' metav1.Condition)."""

    type: ConditionType
    """What the condition is about."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Reason
    """One word for why, made for machines."""
    message: str = ""
    """A sentence for people: what is the matter, and what to do."""
    last_transition_time: Timestamp | None = None
    """When the status last changed."""
    observed_generation: Count | None = None
    """The metadata.generation that the condition speaks of."""
