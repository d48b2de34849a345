"""What the jobs measured, cut down to what a report shows: bounded, however long the test was."""

from collections import defaultdict
from collections.abc import Iterable

from headrace.api import MirrorTest
from headrace.api.labels import FLOW_LABEL
from headrace.mirror_test.faults import Fault
from headrace.mirror_test.measured import Measured, Second, two_digits
from headrace.mirror_test.result import MAX_POINTS, Latency, Point, Result

_WIDTHS_S = (1, 2, 5, 10, 30, 60, 300, 900, 3_600)
_LISTED = 100
"""Topics; 50 KB of those with the longest names, twice."""
_SENTENCES, _LETTERS = 20, 1_000
_UNITS = 1_000
"""Of all faults together, of which there are at most 100."""


def bounded(result: Result) -> Result:
    """The result below 512 KiB, however large the test: it has to fit into a ConfigMap."""
    left_out = max(0, len(result.topics) - _LISTED)
    noted = (f"{left_out} more topics are not listed",) if left_out else ()
    return result.model_copy(
        update={
            "reasons": _few(result.reasons),
            "warnings": (*_few(result.warnings), *noted),
            "test": _without_what_grows(result.test),
            "topics": result.topics[:_LISTED],
            "faults": tuple(_short(fault, _UNITS // len(result.faults)) for fault in result.faults),
        }
    )


def _few(sentences: tuple[str, ...]) -> tuple[str, ...]:
    more = max(0, len(sentences) - _SENTENCES)
    shown = tuple(sentence[:_LETTERS] for sentence in sentences[:_SENTENCES])
    return (*shown, f"and {more} more of the kind") if more else shown


def _short(fault: Fault, most: int) -> Fault:
    units, error = fault.units[:most], fault.error
    if more := len(fault.units) - len(units):
        units = (*units, f"and {more} more")
    return fault.model_copy(update={"units": units, "error": error and error[:_LETTERS]})


def _without_what_grows(test: MirrorTest) -> MirrorTest:
    """Tools keep whole manifests in annotations; of topics as many as are listed."""
    metadata, load = test.metadata, test.spec.load
    kept = {key: text for key, text in metadata.annotations.items() if key == FLOW_LABEL}
    names = load.names and load.names[:_LISTED]
    return test.model_copy(
        update={
            "metadata": metadata.model_copy(update={"annotations": kept}),
            "spec": test.spec.model_copy(update={"load": load.model_copy(update={"names": names})}),
        }
    )


def latency(measured: Measured | None) -> Latency | None:
    """Quantiles exact to 1 ms, a histogram of two digits; ``None`` when nothing was measured."""
    if measured is None or not measured.count:
        return None
    bins: dict[int, int] = defaultdict(int)
    for latency_ms, messages in measured.histogram:
        bins[two_digits(latency_ms)] += messages
    return Latency(
        measured=measured.count,
        p50=measured.quantile_ms(0.5),
        p99=measured.quantile_ms(0.99),
        p999=measured.quantile_ms(0.999),
        max=measured.histogram[-1][0],
        histogram=tuple(sorted(bins.items())),
    )


def points(
    started_ms: int, acknowledged: Iterable[tuple[int, int]], measured: Measured | None
) -> tuple[Point, ...]:
    """The test over time, from the first message to the last arrival.

    ``acknowledged`` are pairs of a second since 1970 and messages. Where a point stands for several
    seconds, rates are means, p50 is the mean weighted by messages, p99 and max are the highest.
    """
    sent = dict(acknowledged)
    seen = {s.second: s for s in (measured.seconds if measured else ())}
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
            )
        )
    return tuple(found)


def _latencies(seconds: list[Second]) -> dict[str, int]:
    if not seconds:
        return {}
    total = sum(s.visible for s in seconds)
    return {
        "p50_ms": round(sum(s.p50_ms * s.visible for s in seconds) / total),
        "p99_ms": max(s.p99_ms for s in seconds),
        "max_ms": max(s.max_ms for s in seconds),
    }
