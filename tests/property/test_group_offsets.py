"""Groups of the target with consumers, crashes and rejected requests in any order."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from headrace.replication import Applied, Checkpoint, StoredCheckpoint, announced, judge


@dataclass
class Target:
    """Partition of a group, and its checkpoint."""

    stored: StoredCheckpoint | None = None
    held: int | None = None
    touched: bool = False
    """Whether a consumer of the target has committed."""
    used: bool = False
    """Whether it is a share group that was used."""
    set_to: set[int] = field(default_factory=set)

    def interval(self, offset: int, *, readable: bool, writes: bool, sets: bool) -> None:
        """Do the work of one interval of a checkpoint task, up to the point where it ends."""
        wanted, before = Checkpoint("g", "t", 0, offset, offset), self.stored
        how = judge(offset, self.held, before.ours if before else (), used=self.used)
        if not writes:
            return
        is_set = readable and how is Applied.SET
        held = self.held if readable else None
        self.stored = announced(wanted, before, held, sets=is_set, readable=readable)
        if is_set and sets:
            assert self.held is None or self.held <= offset, "moved back"
            assert not self.touched or self.held in {*self.set_to, offset, None}, "moved a foreign"
            self.held = offset
            self.set_to.add(offset)


steps = st.lists(
    st.tuples(st.integers(0, 8), st.booleans(), st.booleans(), st.booleans()), max_size=12
)


@given(steps)
def test_a_group_without_consumers_is_ours_whatever_happens(
    steps: list[tuple[int, bool, bool, bool]],
) -> None:
    target = Target()
    for offset, (grows, readable, writes, sets) in enumerate(steps):
        target.interval(10 * offset + grows, readable=readable, writes=writes, sets=sets)
    target.interval(1000, readable=True, writes=True, sets=True)
    assert target.held == 1000
    assert target.stored is not None
    assert len(target.stored.applied) <= 2


@given(st.lists(st.one_of(st.tuples(st.just("commits"), st.integers(0, 8)), steps), max_size=6))
def test_a_group_that_a_consumer_has_committed_for_is_left_alone(
    history: list[tuple[str, int] | list[tuple[int, bool, bool, bool]]],
) -> None:
    target = Target()
    for one in history:
        if isinstance(one, tuple):
            target.held, target.touched = one[1] * 2 + 1, True  # no offset of a checkpoint
            continue
        for offset, readable, writes, sets in one:
            before = target.held
            target.interval(offset * 2, readable=readable, writes=writes, sets=sets)
            if target.touched:
                assert target.held == before


@given(steps, steps)
def test_a_share_group_that_was_used_is_left_alone_for_good(
    before: list[tuple[int, bool, bool, bool]], after: list[tuple[int, bool, bool, bool]]
) -> None:
    target = Target()
    for offset, readable, writes, sets in before:
        target.interval(offset, readable=readable, writes=writes, sets=sets)
        break  # a second one may be earlier
    target.used, held = True, target.held
    for offset, readable, writes, sets in after:
        target.interval(offset, readable=readable, writes=writes, sets=sets)
    assert target.held == held
