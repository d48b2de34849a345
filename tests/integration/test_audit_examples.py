"""Examples of an audit, read from a real broker."""

from support.flows import spec
from support.records import delete_records, make_topic, numbered, produce, unique

from headrace.mirror_test import Place
from headrace.sandbox import SandboxCluster
from headrace_spark.audit.examples import read_records


def test_records_of_several_partitions_are_read_and_deleted_ones_are_left_out(
    east: SandboxCluster,
) -> None:
    one, two = topics = [make_topic(spec(east), unique("examples"), 2) for _ in range(2)]
    for topic in topics:
        produce(spec(east), topic, numbered(20, 2))
    delete_records(spec(east), one, {0: 3})
    offsets = {(one, 0): [4, 9], (one, 1): [1, 2, 9], (two, 0): [1, 2, 9], (two, 1): [1, 2, 9]}
    places = {
        Place(topic=topic, partition=partition, offset=offset): f"value-{2 * offset + partition}"
        for (topic, partition), some in offsets.items()
        for offset in some
    }
    absent = [Place(topic=one, partition=0, offset=offset) for offset in (1, 2, 10)]
    found = read_records(spec(east), [*absent, *places])
    assert {place: shown.value and shown.value.text for place, shown in found.items()} == places
