"""Which records of a topic are copied."""

from typing import Annotated

from pydantic import Field

from headrace.api.model import Model


class RecordHeader(Model):
    """A header that records have, or have not."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    """The header's key."""
    value: Annotated[str, Field(max_length=1024)] | None = None
    """The header's whole value, as UTF-8. Without it, any value will do, and none."""


RecordHeaders = Annotated[tuple[RecordHeader, ...], Field(max_length=100)]


class HeaderFilter(Model):
    """Which records are copied, by their headers."""

    include: RecordHeaders = ()
    """Only records with one of these headers are copied, as with [{name: region, value: eu}]; an
    empty list: all."""
    exclude: RecordHeaders = ()
    """Records with one of these headers are not copied. Wins over include."""


class RecordFilter(Model):
    """Which records of the topics are copied; heartbeats always are."""

    headers: HeaderFilter = HeaderFilter()
    """By their headers. Of several headers with the same key, one has to match."""
