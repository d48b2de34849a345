"""Changes to the headers of records on their way to the target."""

from typing import Annotated

from pydantic import Field

from headrace.api.model import Model

HeaderName = Annotated[str, Field(min_length=1, max_length=255)]


class AddedHeader(Model):
    """A header that each copied record gets."""

    name: HeaderName
    """The header's key."""
    value: Annotated[str, Field(max_length=1024)]
    """The header's value, as UTF-8."""


class HeaderChanges(Model):
    """Changes to the headers of copied records, except heartbeats.

    Headers are removed first, then added: to replace a header, name it in both lists.
    """

    remove: Annotated[tuple[HeaderName, ...], Field(max_length=20)] = ()
    """Keys of headers to remove. All headers with such a key are removed."""
    add: Annotated[tuple[AddedHeader, ...], Field(max_length=20)] = ()
    """Headers to append to each record, in this order. A record that already has a header
    with the same key keeps it, unless remove names it."""
