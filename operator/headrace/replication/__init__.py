"""What a flow copies, in which names, with which records beside it. Pure."""

from headrace.replication.filters import TopicFilter
from headrace.replication.policies import ReplicationPolicy, policy_for

__all__ = ["ReplicationPolicy", "TopicFilter", "policy_for"]
