"""Connect's rules for any joins, departures, lost rounds and restarts of the leader."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.connect_rebalance import CooperativeSimulation, Round, SortedUnits

WORKERS = [f"worker{n}" for n in range(6)]
CONNECTORS = [f"connector{n}" for n in range(5)]
DELAYS_MS = st.sampled_from([0, 1, 1000, 300_000])

Unit = tuple[str, int | None]
"""A connector (None) or a task."""


def units(held: SortedUnits) -> set[Unit]:
    connectors, tasks = held
    return {(connector, None) for connector in connectors} | set(tasks)


class CourseOfEvents(RuleBasedStateMachine):
    """Two groups see the same events, and the workers apply their assignments."""

    @initialize(max_delay_ms=DELAYS_MS)
    def begin(self, max_delay_ms: int) -> None:
        self.max_delay_ms = max_delay_ms
        self.groups = [CooperativeSimulation(max_delay_ms) for _ in range(2)]
        self.configured: dict[str, int] = {}
        self.running: dict[str, set[Unit]] = {}

    @rule(connector=st.sampled_from(CONNECTORS), tasks=st.integers(0, 7))
    def a_connector_is_configured(self, connector: str, tasks: int) -> None:
        self.configure({**self.configured, connector: tasks})

    @rule(connector=st.sampled_from(CONNECTORS))
    def a_connector_is_deleted(self, connector: str) -> None:
        self.configure({c: n for c, n in self.configured.items() if c != connector})

    def configure(self, wanted: Mapping[str, int]) -> None:
        self.configured = dict(wanted)
        self.groups[0].set_units(self.configured)
        self.groups[1].set_units(dict(reversed(self.configured.items())))

    @rule(name=st.sampled_from(WORKERS), reported=st.sets(st.sampled_from(CONNECTORS), max_size=2))
    def a_worker_joins(self, name: str, reported: set[str]) -> None:
        """Add a worker with the units that it ran before, which others may run by now."""
        if name not in self.running:
            connectors = sorted(reported & self.configured.keys())
            tasks = [(c, n) for c in connectors for n in range(self.configured[c])]
            for group in self.groups:
                group.add_worker(name, connectors, tasks)
            self.running[name] = units((tuple(connectors), tuple(tasks)))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def a_worker_leaves(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[name]
        for group in self.groups:
            group.remove_worker(name)

    @rule()
    def the_leader_restarts(self) -> None:
        for group in self.groups:
            group.restart_leader()

    @rule(ms=st.sampled_from([1, 40, 1000, 150_000, 300_000]))
    def time_passes(self, ms: int) -> None:
        for group in self.groups:
            group.sleep(ms)

    @rule()
    def a_round_is_lost(self) -> None:
        self.rebalance(apply=False)

    @rule()
    def a_round(self) -> None:
        self.rebalance()

    def rebalance(self, apply: bool = True) -> Round:
        round, again = (group.rebalance(apply) for group in self.groups)
        assert round == again, "the same events, another answer"
        assert round.assigned.keys() == round.revoked.keys() == self.running.keys()
        assert 0 <= round.delay_ms <= self.max_delay_ms
        claims = Counter(unit for held in self.running.values() for unit in held)
        for name, held in self.running.items():
            assigned, revoked = units(round.assigned[name]), units(round.revoked[name])
            assert revoked <= held
            assert assigned & held == held - revoked, "what is not revoked runs on"
            assert not [unit for unit in assigned - held if claims[unit]], "it runs elsewhere"
        given = Counter(unit for held in round.assigned.values() for unit in units(held))
        assert max(given.values(), default=1) == 1, "two workers run it"
        if apply:
            self.running = {name: units(held) for name, held in round.assigned.items()}
        return round

    def teardown(self) -> None:
        """Without further events, it becomes complete after each delay, with counts within one."""
        if not getattr(self, "running", None):
            return
        # A new leader learns only in its first round which running units no longer exist.
        self.rebalance()
        for _ in range(8):
            before = self.running
            round = self.rebalance()
            for group in self.groups:
                group.sleep(round.delay_ms)
            if not round.delay_ms and self.running == before:
                break
        else:
            raise AssertionError("still moving after nine rounds")
        wanted = {(c, n) for c, count in self.configured.items() for n in (None, *range(count))}
        assert Counter(unit for held in self.running.values() for unit in held) == Counter(wanted)
        for is_task in (False, True):
            counts = [sum((n is not None) == is_task for _, n in h) for h in self.running.values()]
            assert max(counts) - min(counts) <= 1


CourseOfEvents.TestCase.settings = settings(stateful_step_count=25)
TestCourseOfEvents = CourseOfEvents.TestCase
