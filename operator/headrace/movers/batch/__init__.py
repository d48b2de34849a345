"""The batch mover: copies record batches as they are, without decoding a record.

``judged`` and ``rebuilt`` decide what becomes of a fetched batch. ``Outgoing`` is what the source's
half hands to the target's, the ``Appender``. A lane runs in one thread, that of its ``Loop``.
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
