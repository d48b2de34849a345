"""Conditions for a Passed soak, and the sentences otherwise."""

from dataclasses import replace
from typing import Any

import pytest
from soak.accounts import Account, Arrival, Repeat
from soak.faults import Fault, FaultKind
from soak.hazards import Hazard
from soak.outcome import Outcome, Verdict
from soak.samples import AtRest, Sample, memory_of_thirds

FAULTS = [Fault(n, FaultKind.BROKER_KILLED, "broker 1", 30.0 * n, 30.0 * n + 5) for n in range(20)]
CALM = AtRest(30, 200)
PASSED = Outcome(
    seed=1,
    minutes=10,
    faults=FAULTS,
    accounts=[Account("t-0", 100)],
    source_problems=[],
    mirror_problems=[],
    memory=[80e6, 80e6],
    before=CALM,
    after=CALM,
)
LATE = Arrival(7, 3, 31.0)


def with_account(**facts: Any) -> Outcome:
    return replace(PASSED, accounts=[replace(PASSED.accounts[0], **facts)])


def test_all_is_well() -> None:
    assert PASSED.verdict is Verdict.PASSED
    assert list(PASSED.failures()) == []


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (
            with_account(missing=[(3, 5)], missing_at={3: (31.0, 32.0)}),
            "t-0: source offsets 3 to 5 are missing on the target; its neighbours arrived at "
            "00:00:31.000 and 00:00:32.000; near in time: fault 1, broker killed (broker 1)",
        ),
        (with_account(reordered=[LATE]), "t-0: 1 first arrivals out of order: 3 at 7"),
        (with_account(repeats=[Repeat(LATE, "a kill")]), "t-0: 1 records are there twice"),
        (with_account(foreign=2), "2 records on the target that the source has not"),
        (replace(PASSED, mirror_problems=["a driver ended"]), "a driver ended"),
        (replace(PASSED, memory=[80e6, 89e6]), "grew to 1.11 times"),
        (replace(PASSED, after=AtRest(37, 230)), "have 37 clients with 230 threads, and had 30"),
    ],
)
def test_each_failure_has_a_sentence(outcome: Outcome, sentence: str) -> None:
    (said,) = outcome.failures()
    assert sentence in said
    assert outcome.verdict is Verdict.FAILED


def test_without_its_load_or_its_brokers_nothing_is_proved_but_a_loss_is_one() -> None:
    broken = replace(PASSED, source_problems=["a broker did not start"])
    assert broken.verdict is Verdict.INCONCLUSIVE
    assert replace(PASSED, faults=FAULTS[:19]).verdict is Verdict.INCONCLUSIVE
    assert replace(PASSED, memory=[]).verdict is Verdict.INCONCLUSIVE
    behind = replace(broken, mirror_problems=["the flow did not catch up"])
    assert behind.verdict is Verdict.INCONCLUSIVE
    assert replace(broken, accounts=with_account(foreign=1).accounts).verdict is Verdict.FAILED


def test_short_runs_are_not_judged_by_their_memory() -> None:
    short = replace(PASSED, minutes=2, memory=[80e6, 160e6])
    assert short.verdict is Verdict.PASSED


def test_thirds_are_of_time() -> None:
    measured = [(0, 1), (1, 3), (40, 5), (70, 7), (90, 9)]
    samples = [Sample(at_s, rss, rss, 1, "SourceTask") for at_s, rss in measured]
    assert memory_of_thirds(samples) == [5, 8]
    assert memory_of_thirds([]) == []


def test_thirds_are_compared_while_the_driver_has_the_same_units() -> None:
    more, usual = "Heartbeat SourceTask", "SourceTask"
    measured = [(0, 10, usual), (40, 11, usual), (70, 90, more), (71, 90, more), (90, 12, usual)]
    samples = [Sample(at_s, rss, rss, 1, units) for at_s, rss, units in measured]
    assert memory_of_thirds(samples) == [11, 12]
    assert memory_of_thirds(samples[:-1]) == []


def test_a_seed_draws_the_same_faults_again_and_all_of_the_deck_before_one_twice() -> None:
    def drawn(seed: int) -> list[str]:
        seen: list[str] = []
        kinds = list(FaultKind)

        def inflict(kind: FaultKind) -> None:
            seen.append(kind)
            if len(seen) == 2 * len(kinds):
                hazard.stop()

        deck = [(kind, lambda *_, kind=kind: inflict(kind)) for kind in kinds]
        hazard = Hazard("all", seed, deck, (0, 0), lambda: True)
        hazard.start()
        hazard.join(10)
        assert not hazard.problem
        assert set(seen[: len(kinds)]) == set(seen[len(kinds) :]) == set(kinds)
        return seen

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
