"""What the stages of a mirror test share.

``resolve`` writes out what a test takes from its flow; ``run`` is what every stage is told,
``measured`` what the probe saw, ``faults`` what chaos did, ``result`` the judgement. They travel
as files of the report's folder, or as records of the journal topic.
"""

from headrace.mirror_test.faults import Fault, Faults
from headrace.mirror_test.measured import Measured, Second
from headrace.mirror_test.result import (
    MAX_EXAMPLES,
    MAX_POINTS,
    Counts,
    Example,
    Kind,
    Latency,
    MirroredTopic,
    Point,
    Result,
)
from headrace.mirror_test.run import Run

__all__ = [
    "MAX_EXAMPLES",
    "MAX_POINTS",
    "Counts",
    "Example",
    "Fault",
    "Faults",
    "Kind",
    "Latency",
    "Measured",
    "MirroredTopic",
    "Point",
    "Result",
    "Run",
    "Second",
]
