"""The load of a mirror test: how many messages, how fast, how large, into which topics."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from headrace.api.extensions import DISTINCT, Rule
from headrace.api.model import AtLeastOne, Breach, Count, Model, Topic, Whole

TOPICS = 3
MESSAGES = 1_000_000
MIN_MESSAGE_BYTES = 64
"""Room for the prefix: an id of at most 26 bytes, 12 digits of the sequence, 13 of the time, and
three semicolons; the rest is payload."""


class MessageFormat(StrEnum):
    """Where a message carries its identity (both are kafka-mirror-tester's)."""

    HEADERS = "Headers"
    BODY = "Body"


_NO_NAMES = "must be left out when names are given, and only then"
_NO_DURATION = "must be left out when durationSeconds is given, and only then"


class Load(Model):
    """What is sent while the mirror runs."""

    names: Annotated[tuple[Topic, ...], Field(min_length=1, max_length=1000), DISTINCT] | None = (
        None
    )
    """Source topics to write to, instead of a number of new ones."""
    topics: AtLeastOne | None = Field(
        default_factory=lambda given: None if given.get("names") else TOPICS,
        json_schema_extra={"default": TOPICS},
    )
    """Number of source topics, created as <test>-0, <test>-1 and so on; none when names are
    given."""
    partitions: AtLeastOne = 8
    """Partitions of each topic that is created."""
    producers: AtLeastOne = 2
    """Producers; each sends its own messages to every topic."""
    duration_seconds: Count | None = None
    """Seconds to send for, instead of a number of messages; 0: without end, in windows that are
    each judged by itself."""
    window_seconds: Annotated[Whole, Field(ge=60)] = 600
    """With durationSeconds: 0: seconds of a window."""
    messages: AtLeastOne | None = Field(
        default_factory=lambda given: (
            None if given.get("duration_seconds") is not None else MESSAGES
        ),
        json_schema_extra={"default": MESSAGES},
    )
    """Messages in total, over all topics; no number when durationSeconds is given."""
    messages_per_second: AtLeastOne | None = None
    """Messages a second and topic, all producers together: never exceeded, and a warning when not
    reached; absent: as fast as possible."""
    message_size_bytes: Annotated[Whole, Field(ge=MIN_MESSAGE_BYTES)] = 1024
    """Bytes of a message's value, its prefix id;seq;timestamp; included."""
    message_format: MessageFormat = MessageFormat.HEADERS
    """Where a message carries its identity: in headers, or in the prefix of its value (Body)."""

    rules = (
        Rule(
            "!has(self.topics) || !has(self.names)",
            _NO_NAMES,
            at="topics",
            reason="FieldValueForbidden",
        ),
        Rule(
            "!has(self.messages) || !has(self.durationSeconds)",
            _NO_DURATION,
            at="messages",
            reason="FieldValueForbidden",
        ),
    )

    @property
    def is_endless(self) -> bool:
        """Whether it is sent in windows, without end."""
        return self.duration_seconds == 0

    def _breaches(self) -> Iterator[Breach]:
        if (self.topics is None) == (self.names is None):
            yield Breach(("topics",), _NO_NAMES)
        if (self.messages is None) == (self.duration_seconds is None):
            yield Breach(("messages",), _NO_DURATION)
        if self.names and len(set(self.names)) < len(self.names):
            yield Breach(("names",), "must name each topic once")
