"""The batch mover, which copies record batches as they are, without decoding records.

``judged`` and ``rebuilt`` decide how a fetched batch is copied. The source's half passes
``Outgoing`` to the target's half, the ``Appender``. A lane runs in the thread of its ``Loop``.
"""

from headrace.movers.batch.appender import Appender
from headrace.movers.batch.comparison import BatchComparison, compared
from headrace.movers.batch.gate import Passage, Why, judged
from headrace.movers.batch.leader import Leaders
from headrace.movers.batch.mover import BatchMover
from headrace.movers.batch.outgoing import (
    BatchCorrupt,
    BatchRefused,
    Indefinite,
    Outgoing,
)
from headrace.movers.batch.rebuild import rebuilt

__all__ = [
    "Appender",
    "BatchComparison",
    "BatchCorrupt",
    "BatchMover",
    "BatchRefused",
    "Indefinite",
    "Leaders",
    "Outgoing",
    "Passage",
    "Why",
    "compared",
    "judged",
    "rebuilt",
]
