"""Latencies as counts: exact where a verdict needs it, two digits where a plot does."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from headrace.mirror_test import Second, quantile, two_digits

LONGEST_MS = 3_600_000
"""An hour or more counts as an hour: keeps the number of buckets bounded."""


class Arrivals:
    """What one consumer saw; memory grows with time and spread, never with messages."""

    def __init__(self) -> None:
        self.histogram: Counter[int] = Counter()
        self.seconds: dict[int, Counter[int]] = defaultdict(Counter)
        self.before_sent = 0
        self.behind = 0

    def add(self, sent: Mapping[int, int], seen_ms: int, *, behind: bool = False) -> None:
        """Messages that were seen at one time: how many were sent in which ms; ``behind``: they may
        have waited for the consumer."""
        for sent_ms, count in sent.items():
            latency_ms = min(seen_ms - sent_ms, LONGEST_MS)
            if latency_ms < 0:
                self.before_sent += count
                latency_ms = 0
            if behind:
                self.behind += count
            self.histogram[latency_ms] += count
            self.seconds[seen_ms // 1000][two_digits(latency_ms)] += count


def merged(parts: Iterable[Mapping[int, int]]) -> tuple[tuple[int, int], ...]:
    """Histograms as one, ascending."""
    total: Counter[int] = Counter()
    for part in parts:
        total.update(part)
    return tuple(sorted(total.items()))


def second(at: int, parts: Iterable[Mapping[int, int]]) -> Second:
    """One second of every consumer as one."""
    histogram = merged(parts)
    return Second(
        second=at,
        visible=sum(count for _, count in histogram),
        p50_ms=quantile(histogram, 0.5),
        p99_ms=quantile(histogram, 0.99),
        max_ms=histogram[-1][0],
    )


def seconds(consumers: Sequence[Arrivals]) -> tuple[Second, ...]:
    """All seconds in which one of them saw something, ascending."""
    return tuple(
        second(at, [arrivals.seconds.get(at, {}) for arrivals in consumers])
        for at in sorted({at for arrivals in consumers for at in arrivals.seconds})
    )
