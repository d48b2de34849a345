"""Partitions of topics, as ranges, and requests to pause or to reset them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Annotated, Final, NamedTuple, Self

from pydantic import AfterValidator, Field

from headrace.api.labels import RESET_ANNOTATION
from headrace.api.meta import ObjectMeta
from headrace.api.model import Matching, Model, Topic, refusal
from headrace.errors import InvalidSpec

_PART = r" *\d{1,6}(-\d{1,6})? *"
RANGES = f"{_PART}(,{_PART})*"
"""Pattern of partition ranges, in the syntax that Python and RE2 share."""
HIGHEST = 999_999
"""Highest accepted number, far above any partition of Kafka. Larger ranges could use all memory."""


def parse_ranges(text: str) -> tuple[int, ...]:
    """Return the numbers of a text such as ``"0-3,7"``, sorted and each once.

    The result for ``"0-3,7"`` is ``(0, 1, 2, 3, 7)``. An empty text has no numbers. Raises
    ValueError with a sentence.
    """
    numbers: set[int] = set()
    for part in text.split(",") if text.strip() else ():
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part, re.ASCII)
        if not match:
            raise ValueError(f"{part.strip()!r} is neither a number nor a range like 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{part.strip()} runs backwards")
        if last > HIGHEST:
            raise ValueError(f"{last} is above the highest partition number, {HIGHEST}")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def format_ranges(numbers: Iterable[int]) -> str:
    """Return the shortest text for :func:`parse_ranges`: ``(7, 0, 1, 2, 3)`` -> ``"0-3,7"``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


_LIKE = 'must be partition numbers like "0-3,7"'


def _ranges(text: str) -> str:
    seen: set[int] = set()
    try:
        for part in text.split(","):
            numbers = parse_ranges(part)
            if again := seen.intersection(numbers):
                raise ValueError(f"{min(again)} is listed twice")
            seen.update(numbers)
    except ValueError as error:
        raise refusal(f"{_LIKE}: {error}") from None
    return text


class TopicPartition(NamedTuple):
    """A partition of a topic. Its text has the form of Kafka's logs: ``orders-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


PartitionRanges = Annotated[
    str,
    Field(max_length=16384),
    Matching(RANGES, _LIKE, pattern=True),
    AfterValidator(_ranges),
]


class TopicPartitions(Model):
    """Some partitions of one topic."""

    topic: Topic
    """Name of the topic."""
    partitions: PartitionRanges
    """Partition numbers and ranges, like 0-3,7."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Partition numbers, sorted."""
        return parse_ranges(self.partitions)

    @classmethod
    def pack(cls, partitions: Iterable[TopicPartition]) -> tuple[Self, ...]:
        """Return one object for each topic of these partitions, sorted by name."""
        return tuple(
            cls(topic=topic, partitions=format_ranges(at.partition for at in same_topic))
            for topic, same_topic in groupby(sorted(partitions), key=lambda at: at.topic)
        )

    @staticmethod
    def unpack(packed: "Iterable[TopicPartitions]") -> frozenset[TopicPartition]:
        """Return the partitions that :meth:`pack` packed, each once."""
        return frozenset(
            TopicPartition(item.topic, number) for item in packed for number in item.numbers
        )


class PausedPartitions(Model):
    """A topic or some of its partitions. Its text has the form of commands: ``orders/0-3``."""

    topic: Topic
    """Name of the topic on the source."""
    partitions: PartitionRanges | None = None
    """Partition numbers and ranges, like 0-3,7. If absent, the whole topic is paused, including
    partitions that are added later."""

    def __str__(self) -> str:
        return self.topic if self.partitions is None else f"{self.topic}/{self.partitions}"


@dataclass(frozen=True)
class Pauses:
    """Paused partitions by topic: their numbers, or None for the whole topic."""

    topics: Mapping[str, frozenset[int] | None]

    @classmethod
    def of(cls, items: Iterable[PausedPartitions]) -> Self:
        """Return the pauses of a manifest. Items may repeat and overlap."""
        topics: dict[str, frozenset[int] | None] = {}
        for item in items:
            known = topics.get(item.topic, frozenset())
            whole = known is None or item.partitions is None
            topics[item.topic] = None if whole else _numbers(item) | (known or frozenset())
        return cls(topics)

    @property
    def items(self) -> tuple[PausedPartitions, ...]:
        """Items of a manifest: one for each topic, sorted."""
        return tuple(
            PausedPartitions(topic=topic)
            if numbers is None
            else PausedPartitions(topic=topic, partitions=format_ranges(numbers))
            for topic, numbers in sorted(self.topics.items())
        )

    def among(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the given partitions that are paused."""
        none: frozenset[int] = frozenset()
        return frozenset(
            at
            for at in partitions
            if (numbers := self.topics.get(at.topic, none)) is None or at.partition in numbers
        )

    def with_also(self, item: PausedPartitions) -> Self:
        """Return the pauses with ``item`` added."""
        return self.of([*self.items, item])

    def without(self, item: PausedPartitions) -> Self:
        """Return the pauses without ``item``.

        Raise ``InvalidSpec`` if only a part of a whole topic is resumed, or if nothing of it is
        paused.
        """
        left = {topic: numbers for topic, numbers in self.topics.items() if topic != item.topic}
        if item.topic not in self.topics:
            paused = ", ".join(map(str, self.items)) or "nothing"
            raise InvalidSpec(f"{item} is not paused; spec.pausedPartitions has {paused}")
        paused_numbers = self.topics[item.topic]
        if item.partitions is None:
            return type(self)(left)
        if paused_numbers is None:
            raise InvalidSpec(
                f"{item.topic} is paused as a whole: resume {item.topic}, then pause the "
                "partitions that are not to be copied"
            )
        if not paused_numbers & _numbers(item):
            raise InvalidSpec(
                f"{item} is not paused; of {item.topic} are {format_ranges(paused_numbers)}"
            )
        rest = paused_numbers - _numbers(item)
        return type(self)(left | ({item.topic: rest} if rest else {}))


def partitions_text(partitions: Set[TopicPartition]) -> str:
    """Return partitions as a text: ``orders/0-3, payments/7``."""
    packed = TopicPartitions.pack(partitions)
    return ", ".join(f"{item.topic}/{item.partitions}" for item in packed)


def _numbers(item: PausedPartitions) -> frozenset[int]:
    return frozenset(parse_ranges(item.partitions or ""))


_ITEM = re.compile(r"([A-Za-z0-9._-]+)(?:/([\d,-]+))?@([^\s,@]+)(?:[\s,]+|$)", re.ASCII)

_YEARS = (2000, 2199)
"""Years of a valid reset. A mistyped year is usually outside this range. After a reset with a
time in the future, resets with earlier times would have no effect."""


@dataclass(frozen=True)
class Resets:
    """Times of the requested resets of each partition, by topic and number: Unix times in ms.

    The time makes a reset happen once: progress stores the time of the last one. An older
    annotation, from Git or from a cache, then resets nothing. The string form is the annotation's
    value.
    """

    times: Mapping[str, Mapping[int | None, int]]
    """Unix time in ms by topic and number. ``None`` is the whole topic, including partitions that
    are added later."""

    @classmethod
    def from_metadata(cls, metadata: ObjectMeta) -> Self:
        """Return the resets in a flow's annotation; raise ``InvalidSpec`` if it cannot be read."""
        text = metadata.annotations.get(RESET_ANNOTATION, "")
        try:
            return cls.parse(text)
        except ValueError as error:
            raise InvalidSpec(
                f"the annotation {RESET_ANNOTATION} resets nothing: {error}; it names partitions "
                "and a time, like orders/0-3,7@2026-01-31T18:00:00Z, several separated by spaces"
            ) from None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text such as ``orders/0-3,7@2026-01-31T18:00:00Z``.

        Spaces or commas separate several resets. Raises ValueError with a sentence.
        """
        resets, rest = cls({}), text.strip(" ,\t\r\n")
        while rest:
            if (item := _ITEM.match(rest)) is None:
                raise ValueError(f"{rest.split()[0]!r} is not of the form TOPIC[/PARTITIONS]@TIME")
            topic, partitions, time = item.groups()
            numbers = None if partitions is None else parse_ranges(partitions)
            resets = resets._merged(topic, numbers, _unix_ms(time))
            rest = rest[item.end() :]
        return resets

    def time_ms(self, at: TopicPartition) -> int:
        """Return the time of the last reset of a partition, or 0 if there is none."""
        times = self.times.get(at.topic)
        return max(times.get(at.partition, 0), times.get(None, 0)) if times else 0

    def among(self, partitions: Iterable[TopicPartition]) -> Self:
        """Return the resets of these partitions, each as a separate entry."""
        times: dict[str, dict[int | None, int]] = defaultdict(dict)
        for at in partitions:
            if time_ms := self.time_ms(at):
                times[at.topic][at.partition] = time_ms
        return type(self)(times)

    def absent(self, partitions: Iterable[TopicPartition]) -> Self:
        """Return the resets that name none of these partitions."""
        known: dict[str, set[int | None]] = defaultdict(set)
        for at in partitions:
            known[at.topic] |= {None, at.partition}
        left = {
            topic: {number: time for number, time in times.items() if number not in known[topic]}
            for topic, times in self.times.items()
        }
        return type(self)({topic: times for topic, times in left.items() if times})

    def with_reset(self, topic: str, numbers: Iterable[int] | None, now_ms: int) -> Self:
        """Return the resets with a reset of these partitions added.

        Its time has whole seconds, and is later than all other resets of the topic.
        """
        known = max(self.times.get(topic, {}).values(), default=0)
        return self._merged(topic, numbers, max(now_ms, known + 1000) // 1000 * 1000)

    def _merged(self, topic: str, numbers: Iterable[int] | None, time_ms: int) -> Self:
        """Return the resets with this one added, without older ones that it covers."""
        known = self.times.get(topic, {})
        added = dict.fromkeys([None] if numbers is None else numbers, time_ms)
        both = {n: max(known.get(n, 0), added.get(n, 0)) for n in known.keys() | added.keys()}
        whole = both.get(None, 0)
        kept = {n: time for n, time in both.items() if n is None or time > whole}
        return type(self)({**self.times, topic: kept})

    def __str__(self) -> str:
        items = []
        for topic, times in sorted(self.times.items()):
            by_time = sorted((time, -1 if n is None else n) for n, time in times.items())
            for time, same in groupby(by_time, key=lambda item: item[0]):
                numbers = [n for _, n in same]
                ranges = "" if numbers == [-1] else f"/{format_ranges(numbers)}"
                items.append(f"{topic}{ranges}@{time_text(time)}")
        return " ".join(items)


def time_text(time_ms: int) -> str:
    """Return the time as in the annotation, in whole seconds if it has no milliseconds."""
    exact = "milliseconds" if time_ms % 1000 else "seconds"
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    return time.isoformat(timespec=exact).replace("+00:00", "Z")


def _unix_ms(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time like 2026-01-31T18:00:00Z") from None
    if time.tzinfo is None:
        raise ValueError(f"{text!r} lacks its time zone, like the Z of 2026-01-31T18:00:00Z")
    if not _YEARS[0] <= time.year <= _YEARS[1]:
        raise ValueError(f"{text!r} is not of the years {_YEARS[0]} to {_YEARS[1]}")
    return round(time.timestamp() * 1000)


# Names of the topics that headrace and MirrorMaker 2 keep for themselves.
#
# MirrorMaker's clients, policies and filters recognize all of them as internal
# (``DefaultReplicationPolicy.isMM2InternalTopic``).

HEARTBEATS: Final = "heartbeats"
"""Heartbeats topic. It is replicated regardless of the filter, so that a target shows its
upstreams."""
JOURNAL: Final = "mm2-headrace-tests.internal"
"""Topic on the source in which the jobs of mirror tests exchange their results."""

_OURS, _EARLIER = "mm2-headrace-", "headrace-"
_INTERNAL = re.compile(
    r"__.*|\..*"  # Kafka's own
    r"|mm2.*[-.]internal"
    r"|mm2-offset-syncs(?P<syncs>[-._]+).*(?P=syncs)internal"  # with another separator
    r"|.*(?P<checkpoints>[-._]+)checkpoints(?P=checkpoints)internal"
    r"|headrace-(tests|(progress|acls|denials|topics)\..*)\.internal"
)


def progress_topic(source_alias: str) -> str:
    """Return the topic of the target that stores the offsets of flows from this source."""
    return f"{_OURS}progress.{source_alias}.internal"


def audits_topic(source_alias: str) -> str:
    """Return the topic of the target that stores the frontiers of audits of this source."""
    return f"{_OURS}audits.{source_alias}.internal"


def is_progress_topic(topic: str) -> bool:
    """Return True for the progress topic of any source."""
    prefix, suffix = progress_topic("").split("..")
    return topic.startswith(f"{prefix}.") and topic.endswith(f".{suffix}")


def acls_topic(source_alias: str) -> str:
    """Return the topic of the target that lists the ACLs which flows from this source added."""
    return f"{_OURS}acls.{source_alias}.internal"


def denials_topic(source_alias: str) -> str:
    """Return the topic of the target that lists the writes which a fail-over denied."""
    return f"{_OURS}denials.{source_alias}.internal"


def made_topics_topic(source_alias: str) -> str:
    """Return the topic of the target that lists the copies which flows from this source made."""
    return f"{_OURS}topics.{source_alias}.internal"


def earlier_name(topic: str) -> str:
    """Return the name that one of headrace's own topics had before v1beta1."""
    return _EARLIER + topic.removeprefix(_OURS)


def offset_syncs_topic(other_alias: str, separator: str) -> str:
    """Return MirrorMaker 2's topic of offset syncs; ``separator`` is the policy's."""
    return separator.join(("mm2-offset-syncs", other_alias, "internal"))


def checkpoints_topic(source_alias: str, separator: str) -> str:
    """Return MirrorMaker 2's topic of checkpoints; ``separator`` is the policy's."""
    return separator.join((source_alias, "checkpoints", "internal"))


def connect_offsets_topic(source_alias: str) -> str:
    """Return MirrorMaker 2's offsets topic in dedicated mode. No separator changes its name."""
    return f"mm2-offsets.{source_alias}.internal"


def is_internal(topic: str) -> bool:
    """Return True for a topic that is never replicated, whatever a flow says.

    On the target, a copy of an internal topic would be mistaken for the target's own topic. Names
    that earlier versions of headrace used are internal as well.
    """
    return _INTERNAL.fullmatch(topic) is not None
