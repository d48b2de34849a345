"""Loads and clusters that differ from the test's spec."""

from dataclasses import replace

import pytest
from support.manifests import mirror_test_of_another

from headrace.api import MirrorTest
from headrace.mirror_test import MirrorTestRun, ProbeMeasurements
from headrace_spark import messages, probe
from headrace_spark.messages import LoadTopic
from headrace_spark.producer import warnings_of


def run(settle_s: int = 0) -> MirrorTestRun:
    load = {"names": ["orders", "payments"], "partitions": 3}
    document = mirror_test_of_another("nightly", load=load, settleSeconds=settle_s)
    return MirrorTestRun(name="r1", test=MirrorTest.model_validate(document))


def test_a_topic_that_is_there_with_other_partitions_is_said() -> None:
    """The load is then sent to the existing partitions."""
    fits = LoadTopic("orders", "east.orders", partitions=3, keys=3)
    other = replace(fits, name="payments", partitions=2)
    assert warnings_of(run(), (fits, other), []) == (
        "topic payments was there with 2 partitions, not 3",
    )


def test_a_target_that_never_appears_holds_no_load_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load may begin without measurements. The comparison then finds the missing records."""
    told: list[tuple[str, ...]] = []
    monkeypatch.setattr(messages, "prepare", lambda run: None)
    monkeypatch.setattr(messages, "on_target", lambda run: {})
    measured = probe.probe(None, run(), 0, told.append)  # type: ignore[arg-type]
    assert told == [("east.orders", "east.payments")]
    assert measured == ProbeMeasurements(unmeasured_topics=told[0])


@pytest.mark.parametrize(("total", "parts"), [(3, 8), (0, 8), (100, 8), (8, 8)])
def test_more_producers_than_messages_send_all_of_them_once(total: int, parts: int) -> None:
    shares = [messages.share(total, parts, index) for index in range(parts)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
