"""The steps of a comparison on every record are compiled: otherwise Spark interprets its plan."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from support.raw_records import Raw, kafka_source, raw

from headrace.api import MessageFormat, TopicPartition
from headrace_spark import blocks, comparison, messages, records
from headrace_spark.audit import records as audit_records
from headrace_spark.audit.records import Scale

NOW_MS = 1_795_000_000_000
COMPILES = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "CODEGEN_ONLY",
    "spark.sql.codegen.fallback": "false",
}
"""A plan that cannot be compiled is an error; by default it is a warning, and interpreted."""


@pytest.fixture
def compiling(spark: SparkSession) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name) or "" for name in COMPILES}
    for name, value in COMPILES.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def test_records_are_recognised_and_summed_up_by_compiled_code(compiling: SparkSession) -> None:
    at = TopicPartition("orders", 0)
    writer = messages.MessageFactory("run-0-0", 200, MessageFormat.HEADERS)
    laid = [raw(at, seq, writer.message(at, seq, NOW_MS), NOW_MS, 0) for seq in range(3)]
    read = kafka_source(compiling, laid)
    claims = compiling.createDataFrame(
        [("orders", "run-0-0", 3)], "topic string, producer string, sent bigint"
    )
    own = records.recognised(read, {"orders": "orders"}, "run", NOW_MS)
    found = comparison.claimed(own, claims)
    (block,) = blocks.collected(blocks.summarised(found, "run", 4))
    assert (block.count, block.claimed, block.rows) == (3, 3, 3)


def test_records_of_an_audit_are_hashed_and_summed_up_by_compiled_code(
    compiling: SparkSession,
) -> None:
    headers = (("a", b"1"),)
    log = [Raw("orders", 0, n, b"k", b"v", headers, NOW_MS + n) for n in range(3)]
    hashed = audit_records.hashed(kafka_source(compiling, log), {"orders": "orders"}, ())
    scales = {"orders": Scale(NOW_MS, 1_000, 10)}
    (block,) = audit_records.summarised(audit_records.in_blocks(hashed, scales, ordered=True))
    assert (block.count, block.rows, block.size_bytes) == (3, 3, 6)
