"""Watch of a source after a planned fail-over, and the writes that it finds."""

from typing import Annotated

from pydantic import Field

from headrace.api.model import FILLED_IN_BY_SERVER, AtLeastOne, Count, Flag, Model, Text, Timestamp


class SourceWatchSpec(Model):
    """Watch of the source's end offsets while the flow is stopped."""

    enabled: Annotated[Flag, FILLED_IN_BY_SERVER] = False
    """With state: Stopped, one driver watches the source, and the condition SourceStillWritten
    names partitions that receive records after a fail-over. A planned headrace failover sets it,
    and --end-watch, --abort and headrace flow resume remove it. The watch ends by itself when a
    flow copies from the target into the same topics of the source."""
    interval_seconds: AtLeastOne = 5
    """Seconds between two reads of the end offsets. A write is reported after at most this time
    plus the brokers' response time."""


class SourceProducer(Model):
    """A producer that wrote to a partition of the source after the fail-over."""

    producer_id: Count
    """Producer id, assigned by the source cluster."""
    transactional_id: Text = ""
    """Transactional id. Empty if the producer has none, or if the principal has no permission to
    describe it."""
    last_timestamp: Timestamp
    """Timestamp of its last record, by the clock of the producer or broker."""


class SourceWrites(Model):
    """Writes to a partition of the source after the fail-over."""

    topic: Text
    """Topic of the source."""
    partition: Count
    """Partition number."""
    offsets: Count
    """Number of offsets added to the log since the fail-over: records and markers of
    transactions."""
    since: Timestamp
    """Time at which the watch noticed the first write."""
    producers: Annotated[tuple[SourceProducer, ...], Field(max_length=16)] = ()
    """Producers of these writes, latest first. Empty if the brokers name none. A producer without
    idempotence has no producer id."""
