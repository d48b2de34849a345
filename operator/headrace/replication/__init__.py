"""What to replicate and how it is written down: pure functions and records, no I/O."""

from headrace.replication.filters import TopicFilter
from headrace.replication.policies import ReplicationPolicy, policy_for

__all__ = ["ReplicationPolicy", "TopicFilter", "policy_for"]
