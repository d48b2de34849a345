"""What a flow copies, in which names, with which records beside it. Pure."""

from headrace.replication.filters import TopicFilter
from headrace.replication.heartbeats import Heartbeat
from headrace.replication.policies import ReplicationPolicy, policy_for
from headrace.replication.progress import Loss, Progress, ProgressKey, progress_topic

__all__ = [
    "Heartbeat",
    "Loss",
    "Progress",
    "ProgressKey",
    "ReplicationPolicy",
    "TopicFilter",
    "policy_for",
    "progress_topic",
]
