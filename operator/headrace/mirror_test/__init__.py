"""What the stages of a mirror test share.

``stages`` are the jobs, ``sequence`` is the state machine that decides which of them starts when;
``resolve`` fills in what a test takes from its flow, ``windows`` cuts a load without end. The
documents:
``run`` is the input of every job, ``manifest`` what the source acknowledged, ``measured`` what the
probe measured, ``faults`` the plan of chaos and its outcome, ``rehearsed`` that of a fail-over,
``result`` the verdict (``summary`` and ``bounded`` help to make it). They travel as files of a
folder (``documents``) or as records of the journal (``journal_keys``); ``load`` follows the load
there.
"""

from headrace.mirror_test.bounded import bounded
from headrace.mirror_test.documents import Document
from headrace.mirror_test.faults import Fault, Faults, build_plan, read_plan
from headrace.mirror_test.load import Acknowledged, LoadClock, LoadProgress, LoadTail
from headrace.mirror_test.manifest import (
    FORMAT,
    LoadedTopic,
    LoadManifest,
    PartitionSummary,
    Stream,
)
from headrace.mirror_test.measured import Measured, Second, quantile, two_digits
from headrace.mirror_test.rehearsed import (
    Rehearsed,
    RehearsedGroup,
    build_rehearsal,
    count_group,
    group_names,
    read_rehearsal,
)
from headrace.mirror_test.resolve import resolve
from headrace.mirror_test.result import (
    MAX_EXAMPLES,
    MAX_POINTS,
    MAX_SHARES,
    Change,
    Counts,
    Example,
    Kind,
    Latency,
    MirroredTopic,
    Phase,
    Place,
    Point,
    Result,
    Share,
    allowed_counts,
)
from headrace.mirror_test.run import Run
from headrace.mirror_test.stages import (
    HEAP_MIB,
    JAVA_OPTIONS,
    Stage,
    assumed_per_second,
    deadline_s,
    local_slots,
)
from headrace.mirror_test.summary import latency, own_latency, points
from headrace.mirror_test.windows import window_load, window_of

__all__ = [
    "FORMAT",
    "HEAP_MIB",
    "JAVA_OPTIONS",
    "MAX_EXAMPLES",
    "MAX_POINTS",
    "MAX_SHARES",
    "Acknowledged",
    "Change",
    "Counts",
    "Document",
    "Example",
    "Fault",
    "Faults",
    "Kind",
    "Latency",
    "LoadClock",
    "LoadManifest",
    "LoadProgress",
    "LoadTail",
    "LoadedTopic",
    "Measured",
    "MirroredTopic",
    "PartitionSummary",
    "Phase",
    "Place",
    "Point",
    "Rehearsed",
    "RehearsedGroup",
    "Result",
    "Run",
    "Second",
    "Share",
    "Stage",
    "Stream",
    "allowed_counts",
    "assumed_per_second",
    "bounded",
    "build_plan",
    "build_rehearsal",
    "count_group",
    "deadline_s",
    "group_names",
    "latency",
    "local_slots",
    "own_latency",
    "points",
    "quantile",
    "read_plan",
    "read_rehearsal",
    "resolve",
    "two_digits",
    "window_load",
    "window_of",
]
