"""Copy of record batches from the source to the target, in five stages.

``fetch`` reads batches from the source. ``plan`` decides whether a batch is copied unchanged,
rebuilt or skipped. ``append`` sends it to the target. ``ledger`` records acknowledgements.
``progress`` stores how far each partition is copied. ``pipeline`` drives the stages in the event
loop's thread, ``partition`` has the state of each partition, and ``delivery`` the differences
between delivery modes. ``lane`` is the interface to a source task, and ``mover`` implements it.
"""

from headrace.datapath.acknowledgements import ANSWER_S, Storing
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
from headrace.datapath.progress import ANCESTRY_PARTITION, PARTITIONS, ProgressLog
from headrace.datapath.record_consumer import ReadRecord, RecordConsumer

__all__ = [
    "ANCESTRY_PARTITION",
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
    "ReadRecord",
    "RecordConsumer",
    "RecordRefused",
    "Resumed",
    "SourceRecord",
    "Storing",
    "TargetLoss",
    "TokenBucket",
    "Transactional",
    "context_headers",
]
