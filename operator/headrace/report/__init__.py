"""A mirror test's documents, and the page made from them. Pure: no cluster, no Spark.

``plan`` (what will be done), ``measured`` (what the probe saw) and ``chaos`` (what was broken) go
from process to process as files in the report's folder; ``result`` is the judgement, ``report.json``;
``page`` and ``plots`` turn it into ``report.html``.
"""

from headrace.report.chaos import Fault, Faults
from headrace.report.measured import Measured, Second
from headrace.report.plan import Plan, PlannedTopic
from headrace.report.result import (
    MAX_EXAMPLES,
    MAX_POINTS,
    Counts,
    Example,
    Kind,
    Latency,
    Point,
    Result,
)

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
    "Plan",
    "PlannedTopic",
    "Point",
    "Result",
    "Second",
]
