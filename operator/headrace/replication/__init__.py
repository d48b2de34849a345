"""What a flow copies, in which names, with which records beside it. Pure."""

from headrace.replication.checkpoints import Checkpoint, checkpoints_topic
from headrace.replication.filters import TopicFilter
from headrace.replication.heartbeats import Heartbeat
from headrace.replication.offset_syncs import OffsetSync, offset_syncs_topic
from headrace.replication.policies import ReplicationPolicy, policy_for
from headrace.replication.progress import Loss, Progress, ProgressKey, Writer, progress_topic
from headrace.replication.topic_configs import config_changes
from headrace.replication.translation import Precision, Translated, Translation

__all__ = [
    "Checkpoint",
    "Heartbeat",
    "Loss",
    "OffsetSync",
    "Precision",
    "Progress",
    "ProgressKey",
    "ReplicationPolicy",
    "TopicFilter",
    "Translated",
    "Translation",
    "Writer",
    "checkpoints_topic",
    "config_changes",
    "offset_syncs_topic",
    "policy_for",
    "progress_topic",
]
