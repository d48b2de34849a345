"""Settings of clients, without a request to a broker."""

from headrace.api import ClusterAccess, ClusterSpec
from headrace.kafka import KafkaError, make_producer


def test_a_producer_leaves_it_to_the_broker_how_large_a_record_may_be() -> None:
    producer = make_producer(
        ClusterAccess(ClusterSpec(alias="west", bootstrap_servers="127.0.0.1:1"))
    )
    reports: list[KafkaError | None] = []
    producer.produce(
        "orders",
        b"x" * 20_000_000,
        partition=0,
        on_delivery=lambda error, _: reports.append(error),
    )
    producer.purge()
    producer.flush(1)
    assert [error and error.code() for error in reports] == [KafkaError._PURGE_QUEUE]
