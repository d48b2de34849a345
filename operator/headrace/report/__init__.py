"""A mirror test's documents, and the page made from them. Pure: no cluster, no Spark.

``run`` (the resolved test), ``measured`` (what the probe saw) and ``chaos`` (what was broken) go
from process to process as files in the report's folder; ``result`` is the judgement,
``report.json``; ``page`` and ``plots`` turn it into ``report.html``. ``page`` is imported by who
makes one: it loads matplotlib.
"""

from headrace.report.chaos import Fault, Faults
from headrace.report.measured import Measured, Second
from headrace.report.result import (
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
from headrace.report.run import Run
from headrace.report.summary import bounded, latency, points

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
    "bounded",
    "latency",
    "points",
]
