"""Copies records from partition to partition, keeping their progress on the target.

A source task has a ``Lane`` of its flow's ``Mover``: ``lane`` is that interface, ``record_mover``
and ``batch`` are the movers, ``choosing`` says which one a flow has. ``Clients`` is where
``RecordMover``, ``ProgressLog`` and ``DeadLetters`` get their Kafka clients from.
"""

from headrace.movers.bandwidth import Bandwidth
from headrace.movers.batch import BatchMover
from headrace.movers.choosing import Choice, choose
from headrace.movers.clients import KAFKA, Clients
from headrace.movers.dead_letters import DeadLetters, context_headers
from headrace.movers.in_flight_window import InFlightWindow
from headrace.movers.lane import (
    Before,
    Closed,
    Copied,
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
from headrace.movers.preserved.mover import PreservedMover
from headrace.movers.progress_log import PARTITIONS, ProgressLog
from headrace.movers.record_mover import RecordMover
from headrace.movers.storing import ANSWER_S, Storing

__all__ = [
    "ANSWER_S",
    "KAFKA",
    "PARTITIONS",
    "Bandwidth",
    "BatchMover",
    "Before",
    "Choice",
    "Clients",
    "Closed",
    "Copied",
    "CopyFrom",
    "DeadLetters",
    "Fencing",
    "Filling",
    "InFlightWindow",
    "Lane",
    "Mover",
    "OffsetGone",
    "PreservedMover",
    "Problem",
    "ProgressLog",
    "Reached",
    "RecordMover",
    "RecordRefused",
    "Resumed",
    "SourceRecord",
    "Storing",
    "TargetLoss",
    "Transactional",
    "choose",
    "context_headers",
]
