"""The copies that a flow has made on the target: those alone may be deleted again."""

import json
from dataclasses import asdict, dataclass
from typing import Self

from pydantic import TypeAdapter


@dataclass(frozen=True)
class MadeTopic:
    """One of them; the key of its record is its name."""

    topic_id: str
    """On the target: one that somebody made again under its name has another."""
    source_cluster_id: str
    source: str
    """The topic that it is a copy of."""

    def encode(self) -> bytes:
        """JSON."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises ``ValueError`` for anything else."""
        found: Self = TypeAdapter(cls).validate_json(data, strict=True)
        return found
