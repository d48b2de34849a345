"""Copies records from partition to partition, keeping their progress on the target."""

from headrace.movers.in_flight_window import Copied, InFlightWindow
from headrace.movers.progress_log import ProgressLog, Storing
from headrace.movers.record import OffsetGone, RecordMover

__all__ = ["Copied", "InFlightWindow", "OffsetGone", "ProgressLog", "RecordMover", "Storing"]
