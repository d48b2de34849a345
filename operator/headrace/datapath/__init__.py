"""Copies records from partition to partition, keeping their progress on the target.

A source task has a ``Lane`` of its flow's ``Mover``: ``lane`` is that interface, ``batch`` and
``preserved`` implement it, ``making`` returns the mover of a flow. ``ProgressLog`` and
``DeadLetters`` get their Kafka clients from ``Clients``.
"""

from headrace.datapath.bandwidth import TokenBucket
from headrace.datapath.clients import KAFKA, Clients
from headrace.datapath.dead_letters import DeadLetters, context_headers
from headrace.datapath.lane import (
    Before,
    Closed,
    CopiedCounts,
    CopyFrom,
    Fencing,
    Filling,
    Lane,
    Mover,
    OffsetGone,
    Problem,
    Reached,
    RecordRefused,
    Resumed,
    SourceRecord,
    TargetLoss,
    Transactional,
)
from headrace.datapath.mover import BatchMover
from headrace.datapath.preserved.mover import PreservedMover
from headrace.datapath.progress import ANSWER_S, PARTITIONS, ProgressLog, Storing

__all__ = [
    "ANSWER_S",
    "KAFKA",
    "PARTITIONS",
    "BatchMover",
    "Before",
    "Clients",
    "Closed",
    "CopiedCounts",
    "CopyFrom",
    "DeadLetters",
    "Fencing",
    "Filling",
    "Lane",
    "Mover",
    "OffsetGone",
    "PreservedMover",
    "Problem",
    "ProgressLog",
    "Reached",
    "RecordRefused",
    "Resumed",
    "SourceRecord",
    "Storing",
    "TargetLoss",
    "TokenBucket",
    "Transactional",
    "context_headers",
]
