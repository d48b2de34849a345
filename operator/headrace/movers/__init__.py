"""Data movement: positions in, acknowledged positions out; and progress, kept on the target."""

from headrace.movers.flight import Copied, Flight
from headrace.movers.progress_log import ProgressLog, Storing
from headrace.movers.record import OffsetGone, RecordMover

__all__ = ["Copied", "Flight", "OffsetGone", "ProgressLog", "RecordMover", "Storing"]
