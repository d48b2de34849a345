"""Translation of offsets against an oracle that has the target's whole log."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headrace.replication.translation import NEVER, Precision, Translated, Translation

Action = tuple[str, int]
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["copy"] * 6 + ["marker", "resume", "end"]),
        st.integers(1, 6),
    ),
    max_size=30,
)


class Copied(NamedTuple):
    """Record on the target."""

    target: int
    source: int


class Mirror:
    """Copy of one partition that sometimes resumes at earlier offsets."""

    def __init__(self, begins: int, translation: Translation) -> None:
        self.begins, self.translation = begins, translation
        self.next = self.reached = begins
        self.log: list[Copied] = []
        self.end = 0

    def act(self, holes: frozenset[int], action: Action) -> None:
        what, much = action
        match what:
            case "copy":
                for _ in range(much):
                    self._copy(holes)
            case "marker":
                self.end += much
            case "resume":
                self.next = max(self.begins, self.next - 2 * much)
            case "end":
                self.translation.target_ends(self.end)

    def _copy(self, holes: frozenset[int]) -> None:
        if self.next not in holes:
            self.log.append(Copied(self.end, self.next))
            self.translation.copied(self.next, self.end)
            self.end += 1
        self.next += 1
        self.reached = max(self.reached, self.next)
        self.translation.passed(self.next)

    def best(self, committed: int) -> int:
        """Find the largest offset from which a reader receives all records in order.

        Tries each offset.
        """
        held = sorted({copy.source for copy in self.log if copy.source >= committed})
        return max(
            begin for begin in range(self.end + 1) if self._first_received(begin, committed) == held
        )

    def _first_received(self, begin: int, committed: int) -> list[int]:
        later = (copy.source for copy in self.log if copy.target >= begin)
        return list(dict.fromkeys(source for source in later if source >= committed))


@st.composite
def mirrors(draw: st.DrawFn, max_ranges: int) -> Mirror:
    begins = draw(st.integers(0, 3))
    holes = draw(st.frozensets(st.integers(0, 60), max_size=40))
    mirror = Mirror(begins, Translation(begins, complete_from=begins, max_ranges=max_ranges))
    for action in draw(ACTIONS):
        mirror.act(holes, action)
    return mirror


@given(mirrors(max_ranges=1024))
def test_each_offset_is_that_of_the_very_next_record(mirror: Mirror) -> None:
    mirror.translation.target_ends(mirror.end)
    for committed in range(mirror.begins, mirror.reached + 1):
        expected = Translated(mirror.best(committed), Precision.EXACT)
        assert mirror.translation.translate(committed) == expected, committed
    ahead = Translated(mirror.end, Precision.AHEAD)
    assert mirror.translation.translate(mirror.reached + 1) == ahead


@given(st.integers(2, 5).flatmap(lambda limit: mirrors(max_ranges=limit)))
def test_beyond_its_bound_it_never_skips_and_says_that_it_is_not_exact(mirror: Mirror) -> None:
    mirror.translation.target_ends(mirror.end)
    for committed in range(mirror.begins, mirror.reached + 1):
        translated = mirror.translation.translate(committed)
        best = mirror.best(committed)
        assert translated is None or translated.offset <= best, committed
        if translated and translated.precision is Precision.EXACT:
            assert translated.offset == best, committed


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), max_size=20), st.integers(0, 90))
def test_of_samples_it_answers_as_mirrormaker_2(steps: list[tuple[int, int]], at: int) -> None:
    syncs, source, target = [], 0, 0
    translation = Translation(0, complete_from=NEVER)
    for source_step, target_step in steps:
        source, target = source + source_step, target + target_step
        syncs.append((source, target))
        translation.copied(source, target)
    before = [sync for sync in syncs if sync[0] <= at]
    translated = translation.translate(at)
    if not before:
        assert translated is None
    else:
        source, target = before[-1]
        assert translated is not None
        assert translated.offset == target + (at > source)
