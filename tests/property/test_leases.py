"""For any events, a driver that renews its Lease is never lost, and others are lost eventually."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.k8s import LeaseObserver, LeaseView

DURATION_S, RENEW_S, POLL_S = 6.0, 2.0, 0.5
DRIVERS = [("shop", f"driver-{number}") for number in range(6)]


@st.composite
def stories(draw: st.DrawFn) -> tuple[dict[int, float], list[tuple[float, float]]]:
    """Draw the times at which drivers die, and the times when the observer is blind (from, for)."""
    deaths = draw(st.dictionaries(st.integers(0, 5), st.floats(5, 60), max_size=6))
    blind = draw(st.lists(st.tuples(st.floats(0, 80), st.floats(0.1, 30)), max_size=3))
    return deaths, blind


@given(stories(), st.lists(st.floats(0, RENEW_S), min_size=6, max_size=6))
def test_nobody_alive_is_lost_and_the_dead_are_found(
    story: tuple[dict[int, float], list[tuple[float, float]]], offsets: list[float]
) -> None:
    """The observer is not informed of blind periods and has to detect them itself.

    During a blind period it sees outdated Leases. Before it judges, it reads them as ``LeaseWatch``
    does, which fails during that period.
    """
    deaths, blind = story
    observer = LeaseObserver()
    end = 60 + sum(seconds for _, seconds in blind) + 5 * DURATION_S
    for tick in range(int(end / POLL_S)):
        now = tick * POLL_S
        if any(start <= now < start + seconds for start, seconds in blind):
            if observer.due(now):
                observer.restart(now)
            continue
        for number, name in enumerate(DRIVERS):
            last = min(now, deaths.get(number, now))
            renewed = (last - offsets[number]) // RENEW_S
            if renewed >= 0:
                observer.observe(name, LeaseView(name[1], str(renewed), DURATION_S), now)
        if observer.due(now):
            observer.judge(now)
        alive = {name for n, name in enumerate(DRIVERS) if deaths.get(n, now + 1) > now}
        assert not observer.expired & alive
    if not any(start + seconds > 60 for start, seconds in blind):
        assert observer.expired == {DRIVERS[number] for number in deaths}
