"""The scenarios of Kafka's IncrementalCooperativeAssignorTest, on the simulation."""

from dataclasses import dataclass, field

import pytest
from support.connect_rebalance import CooperativeSimulation, Round, Task

from headrace.assign import (
    ApplicationState,
    AssignmentError,
    AssignmentUtils,
    CooperativeAssignor,
    DriverState,
    TaskAssignment,
    TaskId,
    weigh,
)

MAX_DELAY_MS = 300_000


@dataclass
class Group:
    """Two connectors with four tasks each, and the assertions of Kafka's test for every round."""

    max_delay_ms: int = MAX_DELAY_MS
    units: dict[str, int] = field(default_factory=lambda: {"connector1": 4, "connector2": 4})
    workers: tuple[str, ...] = ("worker1",)

    def __post_init__(self) -> None:
        self.simulation = CooperativeSimulation(self.max_delay_ms)
        self.running: dict[str, tuple[set[str], set[Task]]] = {}
        self.join(*self.workers)

    def join(self, *names: str) -> None:
        for name in names:
            self.simulation.add_worker(name)
            self.running[name] = (set(), set())

    def join_with(self, name: str, connectors: list[str], tasks: list[Task]) -> None:
        self.simulation.add_worker(name, connectors, tasks)
        self.running[name] = (set(connectors), set(tasks))

    def leave(self, *names: str) -> None:
        for name in names:
            self.simulation.remove_worker(name)
            del self.running[name]

    def round(self, *, apply: bool = True) -> Round:
        self.simulation.set_units(self.units)
        round = self.simulation.rebalance(apply)
        assert round.assigned.keys() == round.revoked.keys() == self.running.keys()
        held = [set().union(*(kinds[n] for kinds in self.running.values())) for n in (0, 1)]
        for name, kinds in self.running.items():
            for kind in (0, 1):
                assigned, revoked = set(round.assigned[name][kind]), set(round.revoked[name][kind])
                assert revoked <= kinds[kind]
                assert not assigned & revoked
                assert kinds[kind] - revoked <= assigned
                assert not (assigned - kinds[kind]) & held[kind], "given to a second worker"
        if apply:
            self.running = {n: (set(c), set(t)) for n, (c, t) in round.assigned.items()}
        return round

    def counts(self) -> tuple[list[int], list[int]]:
        """Return the numbers of connectors and tasks of the workers, sorted."""
        connectors, tasks = (
            sorted(len(kinds[n]) for kinds in self.running.values()) for n in (0, 1)
        )
        return connectors, tasks

    def is_complete_and_balanced(self) -> bool:
        connectors = sorted(c for kinds in self.running.values() for c in kinds[0])
        tasks = sorted(t for kinds in self.running.values() for t in kinds[1])
        wanted = sorted((c, n) for c, count in self.units.items() for n in range(count))
        return (connectors, tasks) == (sorted(self.units), wanted) and all(
            counts[-1] - counts[0] <= 1 for counts in self.counts()
        )

    def until_stable(self) -> None:
        """Run at most two rounds that change something, and one that does not."""
        for _ in range(3):
            before = self.running
            round = self.round()
            if self.running == before and not revokes(round):
                assert round.delay_ms == 0
                return
        raise AssertionError("not stable after three rounds")


def revokes(round: Round) -> bool:
    return any(connectors or tasks for connectors, tasks in round.revoked.values())


def test_a_worker_joins() -> None:
    group = Group()
    assert group.round().delay_ms == 0
    assert group.counts() == ([2], [8])
    group.join("worker2")
    assert group.round().delay_ms == 0
    assert group.counts() == ([0, 1], [0, 4])
    assert group.round().delay_ms == 0
    assert group.counts() == ([1, 1], [4, 4])
    before = group.running
    assert group.round().delay_ms == 0
    assert group.running == before


def test_what_was_given_first_is_taken_first() -> None:
    group = Group()
    group.round()
    group.join("worker2")
    first_given = ("connector1",), tuple(("connector1", n) for n in range(4))
    assert group.round().revoked == {"worker1": first_given, "worker2": ((), ())}
    assert group.round().assigned["worker2"] == first_given


def test_workers_join_one_after_the_other_and_revocations_back_off() -> None:
    group = Group(units={"connector1": 4, "connector2": 4, "connector3": 4})
    group.round()
    assert group.counts() == ([3], [12])
    group.join("worker2")
    group.round()
    assert group.counts() == ([0, 2], [0, 6])
    group.join("worker3")
    round = group.round()
    assert round.delay_ms == 40
    assert not revokes(round)
    assert group.counts() == ([0, 1, 2], [3, 3, 6])
    group.simulation.sleep(40)
    group.join("worker4")
    group.round()
    assert group.counts() == ([0, 0, 1, 1], [0, 3, 3, 3])
    group.join("worker5")
    round = group.round()
    assert round.delay_ms == 1600
    assert group.counts() == ([0, 0, 1, 1, 1], [1, 2, 3, 3, 3])
    group.simulation.sleep(1600)
    group.join("worker6")
    assert group.round().delay_ms == 0
    assert group.counts() == ([0, 0, 0, 1, 1, 1], [0, 1, 2, 2, 2, 2])
    group.round()
    assert group.counts() == ([0, 0, 0, 1, 1, 1], [2, 2, 2, 2, 2, 2])
    assert group.is_complete_and_balanced()


def test_the_back_off_ends_at_the_maximal_delay() -> None:
    group = Group(units={"c": 400})
    group.round()
    delays = []
    for number in range(2, 8):
        # A worker joins after each revoking round, so that there is always more to revoke.
        group.join(f"worker{number}a")
        group.round()
        group.join(f"worker{number}b")
        delays.append(group.round().delay_ms)
        group.simulation.sleep(delays[-1])
    assert delays == [40, 1600, 64_000, 300_000, 300_000, 300_000]


def test_without_a_delay_revocations_follow_each_other_at_once() -> None:
    group = Group(0, units={"connector1": 4, "connector2": 4, "connector3": 4})
    group.round()
    group.join("worker2")
    group.round()
    assert group.counts() == ([0, 2], [0, 6])
    group.join("worker3")
    assert group.round().delay_ms == 0
    assert group.counts() == ([0, 1, 1], [3, 3, 4])
    assert not revokes(group.round())
    assert group.counts() == ([1, 1, 1], [4, 4, 4])


def test_without_a_delay_lost_units_are_dealt_at_once() -> None:
    group = Group(0, workers=("worker1", "worker2"))
    group.round()
    group.leave("worker2")
    assert group.round().delay_ms == 0
    assert group.is_complete_and_balanced()


def test_a_maximal_delay_of_one_millisecond() -> None:
    group = Group(1, units={"connector1": 4, "connector2": 4, "connector3": 4})
    group.round()
    group.join("worker2")
    group.round()
    assert group.counts() == ([0, 2], [0, 6])
    group.join("worker3")
    assert group.round().delay_ms == 1
    assert group.counts() == ([0, 1, 2], [3, 3, 6])


def test_a_worker_joins_while_a_rebalance_is_delayed() -> None:
    group = Group(units={"connector1": 4, "connector2": 4, "connector3": 4})
    group.round()
    group.join("worker2")
    group.round()
    group.join("worker3")
    round = group.round()
    assert round.delay_ms == 40
    assert group.counts() == ([0, 1, 2], [3, 3, 6])
    group.simulation.sleep(20)
    group.join("worker4")
    round = group.round()
    assert round.delay_ms == 20
    assert not revokes(round)
    assert group.counts() == ([0, 0, 1, 2], [0, 3, 3, 6])
    group.simulation.sleep(20)
    group.join("worker5")
    assert group.round().delay_ms == 0
    assert group.counts() == ([0, 0, 0, 1, 1], [0, 0, 2, 3, 3])
    round = group.round()
    assert round.delay_ms == 0
    assert not revokes(round)
    assert group.counts() == ([0, 0, 1, 1, 1], [2, 2, 2, 3, 3])
    assert group.is_complete_and_balanced()


def test_a_worker_leaves_for_good() -> None:
    group = Group(workers=("worker1", "worker2"))
    group.round()
    assert group.counts() == ([1, 1], [4, 4])
    group.leave("worker2")
    before = group.running
    assert group.round().delay_ms == MAX_DELAY_MS
    assert group.running == before
    group.simulation.sleep(MAX_DELAY_MS // 2)
    assert group.round().delay_ms == MAX_DELAY_MS // 2
    assert group.running == before
    group.simulation.sleep(MAX_DELAY_MS // 2 + 1)
    assert group.round().delay_ms == 0
    assert group.counts() == ([2], [8])


def test_a_worker_comes_back_and_still_waits_for_the_full_delay() -> None:
    group = Group(workers=("worker1", "worker2"))
    group.round()
    lost = group.running["worker2"]
    group.leave("worker2")
    assert group.round().delay_ms == MAX_DELAY_MS
    group.simulation.sleep(MAX_DELAY_MS // 2)
    assert group.round().delay_ms == MAX_DELAY_MS // 2
    group.simulation.sleep(MAX_DELAY_MS // 4)
    group.join("worker2")
    assert group.round().delay_ms == MAX_DELAY_MS // 4
    assert group.counts() == ([0, 1], [0, 4])
    group.simulation.sleep(MAX_DELAY_MS // 4)
    assert group.round().delay_ms == 0
    assert group.running["worker2"] == lost
    assert group.is_complete_and_balanced()


def test_lost_units_go_to_all_workers_that_came_empty() -> None:
    group = Group(units={f"connector{n}": 2 for n in range(6)}, workers=("w0", "w1", "w2"))
    group.round()
    lost = group.running["w1"]
    group.leave("w1")
    group.join("w3")
    assert group.round().delay_ms == MAX_DELAY_MS
    group.simulation.sleep(MAX_DELAY_MS // 2)
    group.join("w1")
    assert group.round().delay_ms == MAX_DELAY_MS // 2
    group.simulation.sleep(MAX_DELAY_MS // 2)
    assert group.round().delay_ms == 0
    got = [group.running["w3"], group.running["w1"]]
    assert got[0][0] | got[1][0] == lost[0]
    assert got[0][1] | got[1][1] == lost[1]
    assert all(connectors for connectors, _ in got)
    # The others had to release what is beyond their share of four, in the same round.
    group.until_stable()
    assert group.counts() == ([1, 1, 2, 2], [3, 3, 3, 3])


def test_a_worker_comes_back_and_leaves_after_all() -> None:
    group = Group(units={f"connector{n}": 2 for n in range(6)}, workers=("w0", "w1", "w2"))
    group.round()
    group.leave("w1")
    group.round()
    group.simulation.sleep(MAX_DELAY_MS // 2)
    group.join("w1")
    group.round()
    group.simulation.sleep(MAX_DELAY_MS // 2)
    group.leave("w1")
    assert group.round().delay_ms == 0
    assert group.counts() == ([3, 3], [6, 6])
    assert group.is_complete_and_balanced()


def test_an_idle_worker_that_leaves_after_a_revocation_starts_a_full_delay() -> None:
    # Nothing is lost, but Connect waits. This is a weakness of Connect (PEERS).
    group = Group()
    group.round()
    group.join("worker2")
    group.round()
    group.leave("worker2")
    assert group.round().delay_ms == MAX_DELAY_MS


@pytest.mark.parametrize("comes_back", [False, True])
def test_the_leader_leaves(comes_back: bool) -> None:
    group = Group(workers=("worker1", "worker2", "worker3"))
    group.round()
    assert group.counts() == ([0, 1, 1], [2, 3, 3])
    group.leave("worker1")
    group.simulation.restart_leader()
    # It has no memory: unassigned units are new to it.
    assert group.round().delay_ms == 0
    assert group.counts() == ([1, 1], [4, 4])
    assert group.is_complete_and_balanced()
    if not comes_back:
        group.until_stable()
        return
    group.join("worker1")
    assert group.round().delay_ms == 0
    assert group.counts() == ([0, 1, 1], [0, 3, 3])
    assert group.round().delay_ms == 0
    assert group.counts() == ([0, 1, 1], [2, 3, 3])
    assert group.is_complete_and_balanced()


def test_the_first_round_does_not_arrive() -> None:
    group = Group(workers=("worker1", "worker2"))
    round = group.round(apply=False)
    assert round.delay_ms == 0
    assert [len(tasks) for _, tasks in round.assigned.values()] == [4, 4]
    assert group.counts() == ([0, 0], [0, 0])
    assert group.round().delay_ms == 0
    assert group.counts() == ([1, 1], [4, 4])


def test_a_later_round_does_not_arrive() -> None:
    group = Group(workers=("worker1", "worker2"))
    group.round()
    group.join("worker3")
    assert revokes(group.round(apply=False))
    assert group.counts() == ([0, 1, 1], [0, 4, 4])
    # Its revocations count as made, and these are therefore successive ones.
    round = group.round()
    assert round.delay_ms == 40
    assert not revokes(round)
    assert group.counts() == ([0, 1, 1], [0, 4, 4])
    group.simulation.sleep(40)
    assert group.round().delay_ms == 0
    assert group.counts() == ([0, 1, 1], [0, 3, 3])
    group.round()
    assert group.counts() == ([0, 1, 1], [2, 3, 3])
    assert group.is_complete_and_balanced()


def test_a_connector_is_deleted() -> None:
    group = Group(workers=("worker1", "worker2"), units={f"connector{n}": 4 for n in (1, 2, 3)})
    group.round()
    assert group.counts() == ([1, 2], [6, 6])
    del group.units["connector3"]
    round = group.round()
    assert round.delay_ms == 0
    stopped = {task for _, tasks in round.revoked.values() for task in tasks}
    assert stopped == {("connector3", n) for n in range(4)}
    assert group.counts() == ([1, 1], [4, 4])


def duplicate() -> tuple[str, list[str], list[Task]]:
    return "worker2", ["connector1"], [("connector1", n) for n in range(4)]


def test_units_that_run_twice_stop_everywhere() -> None:
    group = Group()
    group.round()
    group.join_with(*duplicate())
    round = group.round()
    assert round.revoked["worker1"] == round.revoked["worker2"]
    assert group.counts() == ([0, 1], [0, 4])
    assert group.round().delay_ms == 0
    assert group.counts() == ([1, 1], [4, 4])
    before = group.running
    assert group.round().delay_ms == 0
    assert group.running == before


def test_units_that_run_twice_are_deleted() -> None:
    group = Group()
    group.round()
    del group.units["connector1"]
    group.join_with(*duplicate())
    group.round()
    assert group.counts() == ([0, 1], [0, 2])
    assert not revokes(group.round())
    assert group.counts() == ([0, 1], [2, 2])
    before = group.running
    assert group.round().delay_ms == 0
    assert group.running == before


def test_some_units_run_twice_while_others_are_deleted() -> None:
    group = Group()
    group.round()
    del group.units["connector2"]
    group.join_with(*duplicate())
    group.round()
    assert group.counts() == ([0, 0], [0, 0])
    group.round()
    assert group.counts() == ([0, 1], [2, 2])
    before = group.running
    assert group.round().delay_ms == 0
    assert group.running == before
    assert group.is_complete_and_balanced()


def test_connectors_come_with_a_worker_and_one_goes() -> None:
    group = Group(
        units={f"connector{n}": 4 for n in range(1, 5)}, workers=("worker1", "worker2", "worker3")
    )
    group.round()
    assert group.counts() == ([1, 1, 2], [5, 5, 6])
    group.join("worker4")
    group.units |= {"connector5": 4, "connector6": 4}
    assert group.round().delay_ms == 0
    assert group.round().delay_ms == 0
    assert group.is_complete_and_balanced()
    del group.units["connector5"]
    group.until_stable()
    assert group.is_complete_and_balanced()


def test_connectors_get_fewer_tasks() -> None:
    group = Group(units={"connector1": 2, "connector2": 2}, workers=("worker1", "worker2"))
    group.round()
    assert group.counts() == ([1, 1], [2, 2])
    group.units = {"connector1": 1, "connector2": 1}
    group.until_stable()
    assert group.is_complete_and_balanced()


def test_a_worker_comes_and_a_connector_goes() -> None:
    group = Group(units={f"connector{n}": 4 for n in (1, 2, 3)})
    group.round()
    group.join("worker2")
    group.round()
    assert group.counts() == ([0, 2], [0, 6])
    group.round()
    assert group.counts() == ([1, 2], [6, 6])
    del group.units["connector3"]
    group.until_stable()
    assert group.is_complete_and_balanced()


def test_tasks_come_with_a_worker() -> None:
    group = Group(units={"connector1": 40}, workers=("worker1", "worker2", "worker3"))
    group.round()
    assert group.counts() == ([0, 0, 1], [13, 13, 14])
    group.units = {"connector1": 42}
    group.join("worker4")
    assert group.round().delay_ms == 0
    assert group.counts() == ([0, 0, 0, 1], [2, 10, 11, 11])
    assert group.round().delay_ms == 0
    assert group.counts() == ([0, 0, 0, 1], [10, 10, 11, 11])
    group.until_stable()


def test_new_units_go_to_the_workers_with_least_until_all_are_level() -> None:
    group = Group(units={"c": 9, "d": 15}, workers=())
    for name, tasks in (("worker0", 2), ("worker1", 3), ("worker2", 4), ("worker3", 0)):
        held = len([t for _, tasks in group.running.values() for t in tasks])
        group.join_with(name, [], [("c", n) for n in range(held, held + tasks)])
    assert group.round().delay_ms == 0
    assert group.counts() == ([0, 0, 1, 1], [6, 6, 6, 6])
    # The first new units are assigned to the worker that had none.
    assert {("d", 0), ("d", 1)} <= group.running["worker3"][1]


def test_equals_are_served_by_name() -> None:
    group = Group(units={"c": 5}, workers=("worker1", "worker0", "worker2"))
    round = group.round()
    assert round.assigned == {
        "worker0": (("c",), (("c", 0), ("c", 3))),
        "worker1": ((), (("c", 1), ("c", 4))),
        "worker2": ((), (("c", 2),)),
    }


def test_a_delay_holds_back_what_was_lost_and_nothing_else() -> None:
    group = Group(workers=("worker1", "worker2"))
    group.round()
    lost = group.running["worker2"]
    group.leave("worker2")
    group.round()
    group.units |= {"connector3": 2}
    assert group.round().delay_ms == MAX_DELAY_MS
    assert group.counts() == ([2], [6])
    # A deleted connector is no longer waited for.
    (waiting,) = lost[0]
    del group.units[waiting]
    assert group.round().delay_ms == MAX_DELAY_MS
    del group.units["connector1" if waiting == "connector2" else "connector2"]
    group.round()
    group.simulation.sleep(MAX_DELAY_MS)
    assert group.round().delay_ms == 0
    assert group.is_complete_and_balanced()


def test_a_worker_that_comes_back_with_its_units_ends_the_delay() -> None:
    group = Group(workers=("worker1", "worker2"))
    group.round()
    connectors, tasks = group.running["worker2"]
    group.leave("worker2")
    assert group.round().delay_ms == MAX_DELAY_MS
    group.join_with("worker2", sorted(connectors), sorted(tasks))
    round = group.round()
    assert round.delay_ms == 0
    assert not revokes(round)
    assert group.is_complete_and_balanced()


def test_a_worker_that_comes_back_too_late_is_a_new_one() -> None:
    group = Group(workers=("worker1", "worker2"))
    group.round()
    group.leave("worker2")
    group.round()
    group.simulation.sleep(MAX_DELAY_MS)
    assert group.round().delay_ms == 0
    assert group.counts() == ([2], [8])
    group.join("worker2")
    assert revokes(group.round())
    assert group.counts() == ([0, 1], [0, 4])
    group.round()
    assert group.is_complete_and_balanced()


def test_a_second_worker_that_leaves_does_not_start_the_delay_anew() -> None:
    group = Group(workers=("worker1", "worker2", "worker3"))
    group.round()
    group.leave("worker2")
    assert group.round().delay_ms == MAX_DELAY_MS
    group.simulation.sleep(MAX_DELAY_MS - 1)
    group.leave("worker3")
    assert group.round().delay_ms == 1
    group.simulation.sleep(1)
    assert group.round().delay_ms == 0
    assert group.counts() == ([2], [8])


def test_a_leader_that_restarts_knows_of_no_delay() -> None:
    group = Group(workers=("worker1", "worker2", "worker3"))
    group.round()
    group.leave("worker2")
    assert group.round().delay_ms == MAX_DELAY_MS
    group.simulation.restart_leader()
    # The new leader has not seen the unassigned units or the revocations that cause a back-off.
    assert group.round().delay_ms == 0
    assert group.is_complete_and_balanced()


def test_a_round_while_one_backs_off_forgets_that_it_does() -> None:
    # Connect behaves in this way: an early second round of a back-off permits the third.
    group = Group(units={"c": 12})
    group.round()
    group.join("worker2")
    group.round()
    group.join("worker3")
    assert group.round().delay_ms == 40
    assert group.round().delay_ms == 40
    round = group.round()
    assert round.delay_ms == 0
    assert revokes(round)


def test_a_round_without_revocations_ends_the_back_off() -> None:
    group = Group(units={"c": 60})
    group.round()
    delays = []
    for name in ("a", "b"):
        group.join(f"worker2{name}")
        group.round()
        group.join(f"worker3{name}")
        delays.append(group.round().delay_ms)
        group.simulation.sleep(delays[-1])
        for _ in range(3):
            group.round()
        assert group.is_complete_and_balanced()
    assert delays == [40, 40]


def test_units_that_three_workers_run_stop_on_all() -> None:
    group = Group(units={"connector1": 2}, workers=())
    for name in ("worker1", "worker2", "worker3"):
        group.join_with(name, ["connector1"], [("connector1", 0), ("connector1", 1)])
    round = group.round()
    assert group.counts() == ([0, 0, 0], [0, 0, 0])
    assert len(set(round.revoked.values())) == 1
    assert not revokes(group.round())
    assert group.is_complete_and_balanced()


def test_what_is_no_unit_any_more_stops_only_where_a_leader_knew_it() -> None:
    # Connect behaves in this way: a new leader leaves alone units that it never assigned and that
    # are not configured.
    group = Group(units={"connector1": 1})
    group.round()
    group.units = {"connector2": 1}
    group.simulation.restart_leader()
    round = group.round()
    assert not revokes(round)
    assert round.assigned["worker1"][0] == ("connector1", "connector2")
    # It notices them once it has assigned them itself.
    assert group.round().revoked["worker1"] == (("connector1",), (("connector1", 0),))


def test_a_worker_that_came_empty_gets_lost_units_only_up_to_its_share() -> None:
    # Kafka's class assigns both tasks to worker0 here, and revokes one in the same round.
    group = Group(units={"connector0": 0, "connector1": 2}, workers=("worker0",), max_delay_ms=1)
    group.round()
    group.join_with("worker1", ["connector0"], [])
    group.leave("worker0")
    assert group.round().delay_ms == 1
    group.join("worker0")
    assert group.round().delay_ms == 1
    group.simulation.sleep(1)
    round = group.round()
    assert not revokes(round)
    assert round.delay_ms == 0
    assert group.is_complete_and_balanced()


def test_workers_with_the_lower_share_do_not_hide_an_overloaded_worker() -> None:
    # Two of four workers have the lower share, as in a balanced group of six tasks.
    group = Group(units={"c": 6}, workers=("worker0",), max_delay_ms=0)
    group.join_with("worker1", ["c"], [("c", 0)])
    group.join_with("worker2", [], [("c", 1)])
    group.join_with("worker3", [], [("c", index) for index in range(2, 6)])
    group.round()
    assert group.counts() == ([0, 0, 0, 1], [0, 1, 1, 2])
    group.round()
    assert group.is_complete_and_balanced()


def test_without_workers_nothing_happens() -> None:
    group = Group(workers=())
    assert group.round() == Round(0, {}, {})


def test_what_makes_no_sense_is_refused() -> None:
    simulation = Group().simulation
    with pytest.raises(ValueError, match="a worker worker1 already"):
        simulation.add_worker("worker1")
    with pytest.raises(ValueError, match="no worker worker2"):
        simulation.remove_worker("worker2")
    with pytest.raises(ValueError, match="connector c must have 0 or more tasks, got -1"):
        simulation.set_units({"c": -1})
    with pytest.raises(ValueError, match="backwards"):
        simulation.sleep(-1)
    with pytest.raises(ValueError, match="got -1 ms"):
        CooperativeSimulation(-1)


# The assignor that flows can choose has the same result.


def state(
    units: list[TaskId], answer: TaskAssignment | None, drivers: str, now_ms: int = 0
) -> ApplicationState:
    held = answer.drivers if answer else {}
    return ApplicationState.of(
        weigh(dict.fromkeys(units)).values(),
        [DriverState(d, active=held[d].active if d in held else frozenset()) for d in drivers],
        now_ms=now_ms,
    )


UNITS = [
    TaskId("orders", "SourceConnector", 0),
    *(TaskId("orders", "SourceTask", n) for n in range(4)),
]


def test_what_moves_waits_for_a_round() -> None:
    assignor = CooperativeAssignor()
    first = assignor.assign(state(UNITS, None, "a"))
    joined = state(UNITS, first, "ab", now_ms=5)
    second = assignor.assign(joined)
    assert second.waiting == {UNITS[1], UNITS[2]}
    assert second.follow_up_ms == 5
    assert AssignmentUtils.validate(joined, second) is AssignmentError.NONE
    third = assignor.assign(state(UNITS, second, "ab", now_ms=6))
    assert third.drivers["b"].active == {UNITS[1], UNITS[2]}
    assert third.follow_up_ms is None


def test_a_lost_driver_s_tasks_wait_for_the_delay() -> None:
    assignor = CooperativeAssignor(max_delay_ms=1000)
    first = assignor.assign(state(UNITS, None, "ab"))
    second = assignor.assign(state(UNITS, first, "a", now_ms=7))
    assert second.waiting == first.drivers["b"].active
    assert second.follow_up_ms == 1007
    third = assignor.assign(state(UNITS, second, "a", now_ms=1007))
    assert third.drivers["a"].active == set(UNITS)


def test_a_refused_round_is_computed_again() -> None:
    assignor = CooperativeAssignor(max_delay_ms=1000)
    first = assignor.assign(state(UNITS, None, "ab"))
    assignor.on_assignment_computed(
        first, state(UNITS, None, "ab"), AssignmentError.TASK_NOT_ASSIGNED
    )
    # If the rejected round counted, b's tasks would be lost and waited for.
    assert assignor.assign(state(UNITS, None, "a")).drivers["a"].active == set(UNITS)


def test_without_drivers_all_wait() -> None:
    assert CooperativeAssignor().assign(state(UNITS, None, "")).waiting == set(UNITS)
