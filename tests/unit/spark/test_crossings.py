"""The mirror's own share of the latency, for each message."""

from headrace_spark.probe_consumer import Crossings, Name


def name(seq: int) -> Name:
    return ("orders", b"r-0-0", b"%d" % seq)


def names(*seqs: int) -> list[Name]:
    return [name(seq) for seq in seqs]


def test_a_message_takes_from_the_source_to_the_target() -> None:
    found = Crossings()
    found.on_source(names(1), 1_000)
    found.on_source(names(2, 3), 1_010)
    found.on_target(names(2), 1_025)
    found.on_target(names(1, 3), 1_100)
    assert found.measured.histogram == {100: 1, 15: 1, 90: 1}


def test_what_the_target_s_consumer_sees_first_took_no_time() -> None:
    found = Crossings()
    found.on_target(names(1), 1_000)
    found.on_source(names(1), 1_003)
    assert found.measured.histogram == {0: 1}
    assert found.measured.before_sent == 0


def test_a_repetition_is_not_measured() -> None:
    found = Crossings()
    found.on_source(names(1), 1_000)
    found.on_target(names(1), 1_007)
    found.on_target(names(1), 9_000)
    assert found.measured.histogram == {7: 1}


def test_messages_that_never_cross_take_no_more_and_more_memory() -> None:
    found = Crossings(max_unmatched=2)
    found.on_source(names(*range(5)), 1_000)
    found.on_target(names(*range(5)), 1_001)
    assert found.measured.histogram == {1: 2}
    found.on_source(names(0, 1, 2), 1_002)  # they were stored, and the first one was forgotten
    assert found.measured.histogram == {1: 2, 0: 2}
