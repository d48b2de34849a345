"""Partitions that a user has copied again from ``spec.startFrom``: the annotation of the flow."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Self

from headrace.api.labels import RESET_ANNOTATION
from headrace.api.meta import ObjectMeta
from headrace.api.partitions import TopicPartition
from headrace.api.ranges import format_ranges, parse_ranges
from headrace.errors import InvalidSpec

_ITEM = re.compile(r"([A-Za-z0-9._-]+)(?:/([\d,-]+))?@([^\s,@]+)(?:[\s,]+|$)", re.ASCII)

_YEARS = (2000, 2199)
"""A slip of the pen is none of them: a reset that lies in the future hides those before it."""


@dataclass(frozen=True)
class Resets:
    """When each partition is to be copied again, by topic and number: Unix times in ms.

    The time makes a reset happen once: progress keeps that of the last one. An annotation that is
    older, from Git or from a cache, then resets nothing. Prints as the annotation's value.
    """

    times: Mapping[str, Mapping[int | None, int]]
    """``None`` is the whole topic, also what is added to it later."""

    @classmethod
    def asked(cls, metadata: ObjectMeta) -> Self:
        """Those of a flow's annotation; ``InvalidSpec`` with a sentence when it cannot be read."""
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
        """``orders/0-3,7@2026-01-31T18:00:00Z``, several separated by spaces or commas.

        Raises ValueError with a sentence.
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
        """Of the last reset of a partition; 0 when there is none."""
        times = self.times.get(at.topic)
        return max(times.get(at.partition, 0), times.get(None, 0)) if times else 0

    def among(self, partitions: Iterable[TopicPartition]) -> Self:
        """Those of these partitions, each by itself."""
        times: dict[str, dict[int | None, int]] = defaultdict(dict)
        for at in partitions:
            if time_ms := self.time_ms(at):
                times[at.topic][at.partition] = time_ms
        return type(self)(times)

    def absent(self, partitions: Iterable[TopicPartition]) -> Self:
        """What names none of these partitions."""
        known: dict[str, set[int | None]] = defaultdict(set)
        for at in partitions:
            known[at.topic] |= {None, at.partition}
        left = {
            topic: {number: time for number, time in times.items() if number not in known[topic]}
            for topic, times in self.times.items()
        }
        return type(self)({topic: times for topic, times in left.items() if times})

    def also(self, topic: str, numbers: Iterable[int] | None, now_ms: int) -> Self:
        """Reset these, too: to the second, and later than any other reset of the topic."""
        known = max(self.times.get(topic, {}).values(), default=0)
        return self._merged(topic, numbers, max(now_ms, known + 1000) // 1000 * 1000)

    def _merged(self, topic: str, numbers: Iterable[int] | None, time_ms: int) -> Self:
        """What is older, and covered by these, is left out."""
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
    """As the annotation has it, to the second where that is exact."""
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
