"""What the probe measured while the test ran: ``probe.json``."""

from headrace.api import Model


class Second(Model):
    """One second of the target, as a consumer saw it."""

    second: int
    """Seconds since 1970."""
    visible: int
    """Messages that became visible."""
    p50_ms: int
    """Median of their latency."""
    p99_ms: int
    """99 % of them took at most this."""
    max_ms: int
    """The slowest."""


class Measured(Model):
    """Latency from a message's timestamp to its being visible on the target, and the mirror's own
    share of it: from a consumer of the source to one of the target, by one clock."""

    histogram: tuple[tuple[int, int], ...] = ()
    """Pairs of milliseconds and messages, ascending; exact to 1 ms. Repetitions count as well."""
    seconds: tuple[Second, ...] = ()
    """Ascending; seconds without a message are left out. Their latency has two digits."""
    own_histogram: tuple[tuple[int, int], ...] = ()
    """The same of the mirror's own share; each message once, as it first arrived."""
    own_seconds: tuple[Second, ...] = ()
    before_sent: int = 0
    """Messages seen before their timestamp (counted as 0 ms): the clocks differ."""
    behind: int = 0
    """Messages that may have waited for the probe, which had had others without a pause for a
    second: their latency may be its own. Of the side where that was so of more."""
    unmeasured_topics: tuple[str, ...] = ()
    """Topics that were not on the target when the load began."""
    late: tuple[str, ...] = ()
    """Partitions of the source whose end sentinel was not on the target when the mirror's time was
    over, as ``topic-partition``."""

    @property
    def count(self) -> int:
        """Messages measured."""
        return sum(messages for _, messages in self.histogram)

    def quantile_ms(self, share: float) -> int:
        """The least latency that ``share`` of the messages did not exceed; 0 without messages."""
        return quantile(self.histogram, share)


def quantile(histogram: tuple[tuple[int, int], ...], share: float) -> int:
    """Of ascending pairs of value and count: the least value that reaches ``share`` of them."""
    wanted = share * sum(count for _, count in histogram)
    reached = 0
    value = 0
    for value, count in histogram:  # noqa: B007 - the last value is the answer for share 1
        reached += count
        if reached >= wanted:
            break
    return value


def two_digits(number: int) -> int:
    """Rounded down to two significant digits: 1234 is 1200. Bounds the bins of a histogram."""
    step = 1
    while number >= 100 * step:
        step *= 10
    return number // step * step
