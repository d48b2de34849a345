"""What the stages of a mirror test share.

``stages`` are the jobs, ``sequence`` is the state machine that decides which of them starts when;
``resolve`` fills in what a test takes from its flow. The documents:
``run`` is the input of every job, ``manifest`` what the source acknowledged, ``measured`` what the
probe measured, ``faults`` the plan of chaos and its outcome, ``result`` the verdict (``summary``
and ``bounded`` help to make it). They travel as files of a folder (``documents``) or as records of
the journal (``journal_keys``); ``load`` follows the load there.
"""

from headrace.mirror_test.bounded import bounded
from headrace.mirror_test.faults import Fault, Faults
from headrace.mirror_test.load import LoadClock, LoadProgress, LoadTail
from headrace.mirror_test.manifest import LoadManifest
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
from headrace.mirror_test.summary import latency, points

__all__ = [
    "MAX_EXAMPLES",
    "MAX_POINTS",
    "Counts",
    "Example",
    "Fault",
    "Faults",
    "Kind",
    "Latency",
    "LoadClock",
    "LoadManifest",
    "LoadProgress",
    "LoadTail",
    "Measured",
    "MirroredTopic",
    "Point",
    "Result",
    "Run",
    "Second",
    "bounded",
    "latency",
    "points",
]
