"""Filters, header changes and compression compose: the target equals a simple model."""

from hypothesis import given
from hypothesis import strategies as st
from support.stored import CODECS, batches_of, content, log_batch

from headrace.api.client_settings import Compression, CompressionType
from headrace.api.records import (
    AddedHeader,
    HeaderChanges,
    HeaderFilter,
    RecordFilter,
    RecordHeader,
)
from headrace.datapath.rebuild import TopicChanges, halves, rebuilt
from headrace.kafka.wire import Decoded, StoredRecord, decoded, stored_records
from headrace.replication import RecordChanges

NAMES = ["a", "b", "ü"]
VALUES = ["", "1", "2"]
pairs = st.tuples(
    st.sampled_from([name.encode() for name in NAMES] + [b"\xff"]),
    st.none() | st.sampled_from([value.encode() for value in VALUES]) | st.binary(max_size=3),
)
blobs = st.none() | st.binary(max_size=20)
records = st.lists(st.tuples(blobs, blobs, st.lists(pairs, max_size=3)), min_size=1, max_size=9)
wanted_headers = st.lists(
    st.builds(RecordHeader, name=st.sampled_from(NAMES), value=st.none() | st.sampled_from(VALUES)),
    max_size=2,
).map(tuple)
filters = st.builds(
    RecordFilter,
    headers=st.tuples(wanted_headers, wanted_headers).map(
        lambda both: HeaderFilter(
            include=both[0], exclude=tuple(one for one in both[1] if one not in both[0])
        )
    ),
)
header_changes = st.builds(
    HeaderChanges,
    remove=st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple),
    add=st.lists(
        st.builds(AddedHeader, name=st.sampled_from(NAMES), value=st.sampled_from(VALUES)),
        max_size=2,
        unique_by=lambda header: header.name,
    ).map(tuple),
)
compressions = st.builds(Compression, type=st.sampled_from(CompressionType)) | st.sampled_from(
    [
        Compression(type=CompressionType.GZIP, level=1),
        Compression(type=CompressionType.LZ4, level=12),
        Compression(type=CompressionType.ZSTD, level=22),
    ]
)
most = st.none() | st.just(1)


def nothing() -> None: ...


def has(record: Decoded, wanted: tuple[RecordHeader, ...]) -> bool:
    return any(
        name == one.name and one.value in (None, None if value is None else _text(value))
        for one in wanted
        for name, value in record.headers
    )


def _text(value: bytes) -> str:
    return value.decode(errors="surrogateescape")


def expected(record: Decoded, wanted: RecordFilter, headers: HeaderChanges) -> Decoded | None:
    """Return the copy of a record according to the reference."""
    if wanted.headers.include and not has(record, wanted.headers.include):
        return None
    if has(record, wanted.headers.exclude):
        return None
    left = [one for one in record.headers if one[0] not in headers.remove]
    added = [(one.name, one.value.encode()) for one in headers.add]
    return record._replace(headers=(*left, *added))


@given(records, st.sampled_from(CODECS), st.tuples(filters, header_changes), compressions, most)
def test_copies_have_the_records_headers_and_codec_that_the_flow_asks_for(
    contents: list[tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]],
    codec: str,
    asked: tuple[RecordFilter, HeaderChanges],
    compression: Compression,
    most_records: int | None,
) -> None:
    wanted, headers = asked
    stored = [StoredRecord(50 + n, 1_000 + n, content(*one)) for n, one in enumerate(contents)]
    [batch] = batches_of(log_batch(stored, codec=codec))
    originals = [decoded(one) for one in stored_records(batch)]
    copies = [expected(one, wanted, headers) for one in originals]
    changes = TopicChanges.of("orders", RecordChanges(wanted, headers), compression)

    assert changes.change(batch) == (copies != originals)
    codec_on_target = codec if compression.type == "Source" else compression.type.lower()
    assert changes.recompress(batch) == (codec != codec_on_target)
    if changes.nothing:
        assert copies == originals

    made = rebuilt([batch], start=0, release=nothing, most_records=most_records, changes=changes)
    kept = [one for one in copies if one is not None]
    assert made.left_out == len(copies) - len(kept)
    found = [
        decoded(one)._replace(offset=outgoing.source_offset(index))
        for outgoing in made.outgoing
        for index, one in enumerate(stored_records(outgoing.batch))
    ]
    assert found == kept
    assert all(one.batch.codec == codec_on_target for one in made.outgoing)
    if made.outgoing:
        assert made.outgoing[-1].next_offset == batch.last_offset + 1
    for whole in made.outgoing:
        if whole.records > 1:
            assert {part.batch.codec for part in halves(whole)} == {codec_on_target}
            assert {part.level for part in halves(whole)} == {compression.level}
