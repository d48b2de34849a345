"""The batch mover: copies record batches as they are, without looking at a record.

``Outgoing`` is what the source's half hands to the target's. All of a lane runs in one thread, that
of its ``Loop``.
"""

from headrace.movers.batch.outgoing import (
    Acknowledged,
    BatchCorrupt,
    BatchRefused,
    Failed,
    Indefinite,
    Outgoing,
)

__all__ = [
    "Acknowledged",
    "BatchCorrupt",
    "BatchRefused",
    "Failed",
    "Indefinite",
    "Outgoing",
]
