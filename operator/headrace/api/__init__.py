"""The custom resources as types, from which the CRDs are generated.

A module a kind (``flow``, ``mirror_test``, ``task``, ``secret``) and what they share (``model``,
``meta``, ``cluster``, ``partitions`` ...); ``loader`` reads files of them, ``crds`` writes the
CustomResourceDefinitions, ``reference`` writes docs/reference.md.
"""

from headrace.api.access import ClusterAccess
from headrace.api.authentication import AuthenticationType, OAuth
from headrace.api.chaos import ChaosAction, ChaosStep, Side
from headrace.api.cluster import ClusterSpec, TargetClusterSpec
from headrace.api.conditions import Readiness, condition, conditions_of, dated
from headrace.api.flow import (
    Delivery,
    DeliveryMode,
    FlowState,
    OnDataLoss,
    OnRecordError,
    Policy,
    RecordErrorAction,
    ReplicationFlow,
    ReplicationFlowSpec,
    Topics,
    read_at_start,
)
from headrace.api.flow_status import Lag, LastValid, ReplicationFlowStatus, TaskCounts
from headrace.api.labels import (
    COMMIT_INTERVAL_ANNOTATION,
    COMPONENT_LABEL,
    CONNECTOR_MANAGER,
    DRIVER_COMPONENT,
    DRIVER_MANAGER,
    END_LOAD_ANNOTATION,
    FLOW_LABEL,
    KILL_ANNOTATION,
    LED_NEXT,
    MIRROR_TEST_LABEL,
    MOVE_ANNOTATION,
    OPERATOR_MANAGER,
    PAUSE_ANNOTATION,
    PAUSED_BY_ANNOTATION,
    RESET_ANNOTATION,
    RESTART_ANNOTATION,
    SOURCE_LABEL,
    TARGET_LABEL,
    TOPICS_ANNOTATION,
    TYPE_LABEL,
    label_value,
    standby_label,
)
from headrace.api.load import MIN_MESSAGE_BYTES, Load, MessageFormat
from headrace.api.loader import InvalidManifest, Manifest, load
from headrace.api.losses import LossAction, LossCause, LostOffsets
from headrace.api.meta import (
    API_VERSION,
    Condition,
    ConditionStatus,
    ConditionType,
    ObjectMeta,
    Reason,
)
from headrace.api.mirror_test import (
    Budgets,
    ConcurrencyPolicy,
    MirrorTest,
    MirrorTestSpec,
    Partitioning,
    Rehearsal,
)
from headrace.api.mirror_test_status import (
    LatencyMs,
    MirrorTestCounts,
    MirrorTestPhase,
    MirrorTestStatus,
    Verdict,
)
from headrace.api.mistakes import Mistake
from headrace.api.model import Model, dump
from headrace.api.partitions import TopicPartition, TopicPartitions
from headrace.api.pauses import PausedPartitions, Pauses, partitions_text
from headrace.api.ranges import format_ranges, parse_ranges
from headrace.api.record_changes import AddedHeader, HeaderChanges
from headrace.api.record_filter import RecordFilter, RecordHeader
from headrace.api.resets import Resets, time_text
from headrace.api.secret import Secret
from headrace.api.secret_key import SecretUse
from headrace.api.start_from import StartFrom, StartMode, StartOffset
from headrace.api.task import (
    RackPartitions,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskError,
    TaskPhase,
    TaskType,
    Work,
    dump_work,
    load_work,
)
from headrace.api.topics import HEARTBEATS, is_internal

__all__ = [
    "API_VERSION",
    "COMMIT_INTERVAL_ANNOTATION",
    "COMPONENT_LABEL",
    "CONNECTOR_MANAGER",
    "DRIVER_COMPONENT",
    "DRIVER_MANAGER",
    "END_LOAD_ANNOTATION",
    "FLOW_LABEL",
    "HEARTBEATS",
    "KILL_ANNOTATION",
    "LED_NEXT",
    "MIN_MESSAGE_BYTES",
    "MIRROR_TEST_LABEL",
    "MOVE_ANNOTATION",
    "OPERATOR_MANAGER",
    "PAUSED_BY_ANNOTATION",
    "PAUSE_ANNOTATION",
    "RESET_ANNOTATION",
    "RESTART_ANNOTATION",
    "SOURCE_LABEL",
    "TARGET_LABEL",
    "TOPICS_ANNOTATION",
    "TYPE_LABEL",
    "AddedHeader",
    "AuthenticationType",
    "Budgets",
    "ChaosAction",
    "ChaosStep",
    "ClusterAccess",
    "ClusterSpec",
    "ConcurrencyPolicy",
    "Condition",
    "ConditionStatus",
    "ConditionType",
    "Delivery",
    "DeliveryMode",
    "FlowState",
    "HeaderChanges",
    "InvalidManifest",
    "Lag",
    "LastValid",
    "LatencyMs",
    "Load",
    "LossAction",
    "LossCause",
    "LostOffsets",
    "Manifest",
    "MessageFormat",
    "MirrorTest",
    "MirrorTestCounts",
    "MirrorTestPhase",
    "MirrorTestSpec",
    "MirrorTestStatus",
    "Mistake",
    "Model",
    "OAuth",
    "ObjectMeta",
    "OnDataLoss",
    "OnRecordError",
    "Partitioning",
    "PausedPartitions",
    "Pauses",
    "Policy",
    "RackPartitions",
    "Readiness",
    "Reason",
    "RecordErrorAction",
    "RecordFilter",
    "RecordHeader",
    "Rehearsal",
    "ReplicationFlow",
    "ReplicationFlowSpec",
    "ReplicationFlowStatus",
    "ReplicationTask",
    "ReplicationTaskSpec",
    "ReplicationTaskStatus",
    "Resets",
    "Secret",
    "SecretUse",
    "Side",
    "StartFrom",
    "StartMode",
    "StartOffset",
    "TargetClusterSpec",
    "TaskCounts",
    "TaskError",
    "TaskPhase",
    "TaskType",
    "TopicPartition",
    "TopicPartitions",
    "Topics",
    "Verdict",
    "Work",
    "condition",
    "conditions_of",
    "dated",
    "dump",
    "dump_work",
    "format_ranges",
    "is_internal",
    "label_value",
    "load",
    "load_work",
    "parse_ranges",
    "partitions_text",
    "read_at_start",
    "standby_label",
    "time_text",
]
