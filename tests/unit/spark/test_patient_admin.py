"""Reads of a mirror test's jobs while brokers do not respond."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from support.fake_kafka import FakeClock
from support.manifests import mirror_test_of_another

from headrace.api import ClusterAccess, MirrorTest, TopicPartition
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import Position, journal, patience
from headrace.mirror_test import MirrorTestRun
from headrace_spark import messages, patient_admin

RUN = MirrorTestRun(
    name="r1", test=MirrorTest.model_validate(mirror_test_of_another("t", load={"topics": 1}))
)
SLOW = Retriable("could not list the topics of west: no answer in time (15 s)")
Fail = Callable[..., list[str]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(
        patience, "time", SimpleNamespace(monotonic=clock.monotonic, sleep=clock.advance)
    )
    return clock


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> Fail:
    """Return a function that lets requests fail; the result lists the requests."""

    def with_errors(*errors: HeadraceError, always: bool = False) -> list[str]:
        left, asked = list(errors), list[str]()

        class Slow:
            def __init__(self, cluster: ClusterAccess) -> None:
                pass

            def topics(self) -> dict[str, int]:
                asked.append("topics")
                if left:
                    raise left[0] if always else left.pop(0)
                return dict.fromkeys(RUN.topics.values(), 1)

            def offsets(self, of: list[TopicPartition], _: Position) -> dict[TopicPartition, int]:
                asked.append("offsets")
                if left:
                    raise left[0] if always else left.pop(0)
                return dict.fromkeys(of, 5)

        monkeypatch.setattr(patient_admin, "RightsAdmin", Slow)
        return asked

    return with_errors


def test_time_out_of_a_broker_does_not_end_a_job(fail: Fail) -> None:
    asked = fail(SLOW, SLOW)
    there = messages.on_target(RUN)
    assert list(there.values()) == [1]
    assert asked == ["topics"] * 3
    asked = fail(SLOW)
    assert list(messages.ends(RUN.target, there).values()) == [(5,)]
    assert asked == ["offsets"] * 2


def test_brokers_that_stay_silent_end_a_job_after_a_minute(fail: Fail, clock: FakeClock) -> None:
    fail(SLOW, always=True)
    began = clock.monotonic()
    with pytest.raises(Retriable, match="no answer in time"):
        messages.on_target(RUN)
    assert 60 <= clock.monotonic() - began <= 62


def test_refusal_is_not_retried(fail: Fail) -> None:
    asked = fail(Fatal("not authorized"))
    with pytest.raises(Fatal):
        messages.on_target(RUN)
    assert asked == ["topics"]


def test_journal_is_created_although_the_first_request_times_out(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    left, created = [SLOW], list[str]()

    class Slow:
        name = "east"

        def __init__(self, cluster: ClusterAccess) -> None:
            pass

        def create_topic(self, name: str, *_: object, **__: object) -> bool:
            if left:
                raise left.pop()
            created.append(name)
            return True

        def topics(self) -> dict[str, int]:
            return dict.fromkeys(created, 1)

    monkeypatch.setattr(journal, "Admin", Slow)
    journal.create(RUN.source)
    assert created == [journal.TOPIC]
