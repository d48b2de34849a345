"""Latency and plots of a result, from what the jobs measured; bounded for a test of any length."""

from collections import defaultdict
from collections.abc import Iterable

from headrace.mirror_test.measured import Measured, Second, quantile, two_digits
from headrace.mirror_test.result import MAX_POINTS, Latency, Point

_WIDTHS_S = (1, 2, 5, 10, 30, 60, 300, 900, 3_600)


def latency(histogram: tuple[tuple[int, int], ...]) -> Latency | None:
    """Of one exact to 1 ms: its quantiles, and bins of two digits; ``None`` when nothing was
    measured."""
    if not histogram:
        return None
    bins: dict[int, int] = defaultdict(int)
    for latency_ms, messages in histogram:
        bins[two_digits(latency_ms)] += messages
    return Latency(
        measured=sum(messages for _, messages in histogram),
        p50=quantile(histogram, 0.5),
        p99=quantile(histogram, 0.99),
        p999=quantile(histogram, 0.999),
        max=histogram[-1][0],
        histogram=tuple(sorted(bins.items())),
    )


def own_latency(measured: Measured | None) -> Latency | None:
    """The mirror's own share: its quantiles. Its bins are not drawn, and left out."""
    found = latency(measured.own_histogram if measured else ())
    return found and found.model_copy(update={"histogram": ()})


def points(
    started_ms: int, acknowledged: Iterable[tuple[int, int]], measured: Measured | None
) -> tuple[Point, ...]:
    """The test over time, from the first message to the last arrival.

    ``acknowledged`` are pairs of a second since 1970 and messages. Where a point stands for several
    seconds, rates are means, p50 is the mean weighted by messages, p99 and max are the highest.
    """
    sent = dict(acknowledged)
    seen = {s.second: s for s in (measured.seconds if measured else ())}
    own = {s.second: s for s in (measured.own_seconds if measured else ())}
    if not sent and not seen:
        return ()
    first, last = min(sent.keys() | seen.keys()), max(sent.keys() | seen.keys())
    span_s = last - first + 1
    width_s = next((w for w in _WIDTHS_S if span_s <= w * MAX_POINTS), span_s // MAX_POINTS + 1)
    found, behind = [], 0
    for start in range(first, last + 1, width_s):
        within = range(start, start + width_s)
        acknowledged_here = sum(sent.get(s, 0) for s in within)
        seen_here = [seen[s] for s in within if s in seen]
        visible_here = sum(s.visible for s in seen_here)
        behind = max(0, behind + acknowledged_here - visible_here)  # repetitions are visible, too
        found.append(
            Point(
                at_seconds=round(max(0.0, start - started_ms / 1000), 1),
                acknowledged_per_second=round(acknowledged_here / width_s, 1),
                visible_per_second=round(visible_here / width_s, 1),
                behind=behind,
                **_latencies(seen_here),
                **_own([own[s] for s in within if s in own]),
            )
        )
    return tuple(found)


def _own(seconds: list[Second]) -> dict[str, int]:
    found = _latencies(seconds)
    return {f"own_{name}": found[name] for name in ("p50_ms", "p99_ms") if found}


def _latencies(seconds: list[Second]) -> dict[str, int]:
    if not seconds:
        return {}
    total = sum(s.visible for s in seconds)
    return {
        "p50_ms": round(sum(s.p50_ms * s.visible for s in seconds) / total),
        "p99_ms": max(s.p99_ms for s in seconds),
        "max_ms": max(s.max_ms for s in seconds),
    }
