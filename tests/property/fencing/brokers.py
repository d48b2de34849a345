"""Target side of the model: logs, appends of a broker, and the transactions' coordinator."""

from collections.abc import Iterator
from typing import NamedTuple

from support.take_over_model import Claim, Identity

from headrace.replication.reconcile import Marker

DATA, PROGRESS = "data", "progress"
BOTH = frozenset({DATA, PROGRESS})


class Entry(NamedTuple):
    """Content of a log at one offset."""

    identity: Identity
    sequence: int
    """Sequence of the producer, or -1 for a marker."""
    content: int | Claim | None
    """Source offset of copied data, claim of progress, or None for a marker."""

    def __str__(self) -> str:
        content = self.content
        if isinstance(content, Claim):
            return f"progress({content.source_offset}->{content.target_offset}) by {self.identity}"
        return (
            f"record {content} by {self.identity}"
            if content is not None
            else (f"marker {self.identity}")
        )


class Request(NamedTuple):
    """Request to append one record."""

    to: str
    entry: Entry


class Partition(NamedTuple):
    log: tuple[Entry, ...]
    high_watermark: int
    leader: bool = True

    @property
    def visible(self) -> tuple[Entry, ...]:
        return self.log[: self.high_watermark]

    @property
    def lagging(self) -> bool:
        return self.high_watermark < len(self.log)

    @property
    def markers(self) -> Iterator[Marker]:
        for offset, entry in enumerate(self.visible):
            if entry.content is None:
                yield Marker(offset, *entry.identity)

    @property
    def claims(self) -> list[Claim]:
        return [entry.content for entry in self.log if isinstance(entry.content, Claim)]

    def marked(self, identity: Identity) -> bool:
        return Entry(identity, -1, None) in self.visible

    def answer(self, entry: Entry) -> str:
        """Return the answer to an idempotent batch, as ``ProducerAppendInfo`` of a broker does."""
        id_, epoch = entry.identity
        known = [one for one in self.log if one.identity.producer_id == id_]
        if not known:
            return "appended"  # without producer state, any sequence is the first one
        if epoch < known[-1].identity.producer_epoch:
            return "refused 47"
        # A new epoch begins with sequence 0; another marker of the same epoch changes nothing.
        same = [one.sequence for one in known if one.identity == entry.identity]
        last = max(same, default=-1)
        if 0 <= entry.sequence <= last:
            return "a duplicate"
        return "appended" if entry.sequence == last + 1 else "refused 45"

    def append(self, entry: Entry, *, replicated: bool) -> "Partition":
        log = (*self.log, entry)
        return self._replace(
            log=log, high_watermark=len(log) if replicated else self.high_watermark
        )


class Coordinator(NamedTuple):
    """Coordinator of the one transactional id."""

    identity: Identity
    known: bool = True
    """Whether the transactional id exists. False after it expired."""
    added: bool = False
    """Whether a transaction is open, over both partitions."""
    pending: frozenset[str] = frozenset()
    """Partitions that have not acknowledged its marker."""

    @property
    def next_identity(self) -> Identity:
        id_, epoch = self.identity
        return Identity(id_, epoch + 1) if self.known else Identity(id_ + 1, 0)
