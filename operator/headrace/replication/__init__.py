"""What a flow copies, in which names, with which records beside it. Pure."""

from headrace.replication.acls import (
    TopicAcl,
    wanted_acls,
    write_denial,
)
from headrace.replication.checkpoints import (
    SHARE_GROUP,
    Checkpoint,
    next_checkpoint,
)
from headrace.replication.connect_offsets import (
    DEDICATED_CONNECTOR,
    OFFSETS_PARTITIONS,
    ConnectPartition,
    connect_group,
    decode_position,
    encode_position,
)
from headrace.replication.copied_runs import Run, few_enough
from headrace.replication.copy_settings import AS_GIVEN, settings_of_other_offsets, unfit_settings
from headrace.replication.filters import NameFilter, TopicFilter
from headrace.replication.flow_loops import (
    Copied,
    copied_by_both,
    loop_of_patterns,
    loop_of_topics,
    loop_sentence,
    may_loop,
    same_clusters,
    share_addresses,
)
from headrace.replication.group_offsets import (
    APPLIED,
    Applied,
    StoredCheckpoint,
    announced,
    decode_applied,
    encode_applied,
    judge,
)
from headrace.replication.group_splitting import split_groups
from headrace.replication.heartbeats import Heartbeat
from headrace.replication.loops import Direction, Loop, find_loop
from headrace.replication.made_topics import MadeTopic
from headrace.replication.offset_pairs import MOST_PAIRS, OffsetPair, with_runs
from headrace.replication.offset_syncs import STRETCH, OffsetSync
from headrace.replication.policies import policy_for
from headrace.replication.policy import ReplicationPolicy
from headrace.replication.progress import (
    Confirmed,
    Loss,
    Progress,
    ProgressKey,
    Switch,
    TargetSeen,
    Writer,
    losses_before,
)
from headrace.replication.record_changes import RecordChanges
from headrace.replication.same_offsets import SameOffsets
from headrace.replication.synced_offsets import CopiedTo, SyncedOffsets
from headrace.replication.topic_configs import config_changes
from headrace.replication.translation import Precision, Translated, Translation

__all__ = [
    "APPLIED",
    "AS_GIVEN",
    "DEDICATED_CONNECTOR",
    "MOST_PAIRS",
    "OFFSETS_PARTITIONS",
    "SHARE_GROUP",
    "STRETCH",
    "Applied",
    "Checkpoint",
    "Confirmed",
    "ConnectPartition",
    "Copied",
    "CopiedTo",
    "Direction",
    "Heartbeat",
    "Loop",
    "Loss",
    "MadeTopic",
    "NameFilter",
    "OffsetPair",
    "OffsetSync",
    "Precision",
    "Progress",
    "ProgressKey",
    "RecordChanges",
    "ReplicationPolicy",
    "Run",
    "SameOffsets",
    "StoredCheckpoint",
    "Switch",
    "SyncedOffsets",
    "TargetSeen",
    "TopicAcl",
    "TopicFilter",
    "Translated",
    "Translation",
    "Writer",
    "announced",
    "config_changes",
    "connect_group",
    "copied_by_both",
    "decode_applied",
    "decode_position",
    "encode_applied",
    "encode_position",
    "few_enough",
    "find_loop",
    "judge",
    "loop_of_patterns",
    "loop_of_topics",
    "loop_sentence",
    "losses_before",
    "may_loop",
    "next_checkpoint",
    "policy_for",
    "same_clusters",
    "settings_of_other_offsets",
    "share_addresses",
    "split_groups",
    "unfit_settings",
    "wanted_acls",
    "with_runs",
    "write_denial",
]
