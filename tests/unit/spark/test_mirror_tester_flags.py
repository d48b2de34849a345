"""Meaning of kafka-mirror-tester's flags, and the errors for wrong ones."""

import sys

import pytest

from headrace.api import MessageFormat
from headrace.mirror_test import MirrorTestRun
from headrace_spark import command
from headrace_spark.flags import (
    mirror_tester_consume_parser,
    mirror_tester_produce_parser,
    mirror_tester_run,
)

PRODUCE = {
    "--id": "p1",
    "--topics": "orders,payments",
    "--throughput": "200",
    "--message-size": "100",
    "--bootstrap-servers": "east:9092",
    "--target-bootstrap-servers": "west:9092",
}
CONSUME = {
    "--id": "p1",
    "--topics": "orders",
    "--bootstrap-servers": "west:9092",
    "--source-bootstrap-servers": "east:9092",
    "--consumer-group": "testers",
}


def parsed(flags: dict[str, str], *more: str) -> MirrorTestRun:
    words = [word for flag in flags.items() for word in flag]
    parser = (
        mirror_tester_produce_parser("")
        if "--throughput" in flags
        else mirror_tester_consume_parser("", 8000)
    )
    return mirror_tester_run(parser.parse_args([*words, *more]))


def test_produce_sends_at_the_rate_to_each_topic_until_it_is_told_to_end() -> None:
    run = parsed(PRODUCE)
    load = run.test.spec.load
    assert (run.name, load.producers, load.is_endless) == ("p1", 1, True)
    assert run.topics == {"orders": "orders", "payments": "payments"}
    assert (load.messages_per_second, load.message_size_bytes) == (200, 100)
    assert load.message_format is MessageFormat.BODY
    assert (run.source.spec.bootstrap_servers, run.target.spec.bootstrap_servers) == (
        "east:9092",
        "west:9092",
    )


@pytest.mark.parametrize(
    ("words", "format"),
    [
        (["--use-message-headers"], MessageFormat.HEADERS),
        (["--use-message-headers=true"], MessageFormat.HEADERS),
        (["--use-message-headers=false"], MessageFormat.BODY),
    ],
)
def test_headers_are_used_where_that_is_said(words: list[str], format: MessageFormat) -> None:
    assert parsed(PRODUCE, *words).test.spec.load.message_format is format


def test_a_load_needs_no_target() -> None:
    flags = {k: v for k, v in PRODUCE.items() if k != "--target-bootstrap-servers"}
    run = parsed(flags, "--num-partitions=3")
    assert not run.knows_target
    assert run.source.spec.bootstrap_servers == "east:9092"
    assert run.test.spec.load.partitions == 3
    assert parsed(PRODUCE).knows_target
    assert parsed(CONSUME).knows_target


def test_consume_reads_the_target() -> None:
    run = parsed(CONSUME, "--target-topic={source}.{topic}")
    assert run.target.spec.bootstrap_servers == "west:9092"
    assert run.topics == {"orders": "source.orders"}


@pytest.mark.parametrize(
    ("flag", "value", "sentence"),
    [
        ("--id", "Host_1", "--id: must be 1 to 20 of a-z, 0-9 and '-'"),
        ("--throughput", "0", "--throughput: "),
        ("--message-size", "30", "--message-size: "),
        ("--topics", "a,a", "--topics: must not name a twice"),
        ("--num-partitions", "0", "--num-partitions: "),
        ("--target-bootstrap-servers", "east:9092", "bootstrap servers of the target: "),
    ],
)
def test_a_bad_value_is_bad_usage_and_its_flag_is_named(
    flag: str,
    value: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [word for pair in (PRODUCE | {flag: value}).items() for word in pair]
    monkeypatch.setattr(sys, "argv", ["produce", *words])
    assert command.produce() == 3
    assert sentence in capsys.readouterr().err


def test_a_flag_that_is_missing_is_bad_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["produce", "--topics=orders", "--id=p1"])
    with pytest.raises(SystemExit) as ended:
        command.produce()
    assert ended.value.code == 3
    assert "--throughput, --message-size" in capsys.readouterr().err
