"""Records on the wire: MirrorMaker 2's bytes, and headrace's progress."""

import json
from dataclasses import replace

import pytest

from headrace.api import checkpoints_topic, offset_syncs_topic, progress_topic
from headrace.replication.checkpoints import Checkpoint
from headrace.replication.mirror_maker_formats import Heartbeat, OffsetSync
from headrace.replication.progress import (
    MAX_SKIPPED,
    OwnerProducer,
    Progress,
    ProgressKey,
    SkippedRange,
    with_skipped,
)

PROGRESS = Progress(
    source_topic_id="s",
    source_offset=7,
    leader_epoch=1,
    target_topic_id="t",
    target_offset=9,
    epoch=3,
    owner="orders-source-task-0 on driver-1/abc",
)


def test_a_heartbeat_is_byte_for_byte_what_mirrormaker_2_writes() -> None:
    # From a topic that MirrorMaker 2 4.3.1 wrote.
    key, value = "00037372630003647374", "00000000000001a1fbcf3140"[4:]
    beat = Heartbeat.decode(bytes.fromhex(key), bytes.fromhex(value))
    assert (beat.source, beat.target) == ("src", "dst")
    assert (beat.key().hex(), beat.value().hex()) == (key, value)


@pytest.mark.parametrize(
    ("key", "value"), [(b"", b""), (b"\0\3a", b""), (b"\0\1a\0\1b", b"\0\1" + bytes(8))]
)
def test_what_is_no_heartbeat_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(ValueError, match="heartbeat"):
        Heartbeat.decode(key, value)


def test_a_checkpoint_is_byte_for_byte_what_mirrormaker_2_writes() -> None:
    # From a topic that MirrorMaker 2 4.3.1 wrote.
    key = "000762696c6c696e67000a7372632e6f726465727300000001"
    value = "000000000000000001f400000000000001950000"
    checkpoint = Checkpoint.decode(bytes.fromhex(key), bytes.fromhex(value))
    assert checkpoint == Checkpoint("billing", "src.orders", 1, 500, 405, metadata="")
    assert (checkpoint.key().hex(), checkpoint.value().hex()) == (key, value)


def test_a_checkpoint_keeps_what_the_group_committed_beside_the_offset() -> None:
    checkpoint = Checkpoint("gruppe-ü", "src.orders", 0, 7, 5, metadata="état")
    assert Checkpoint.decode(checkpoint.key(), checkpoint.value()) == checkpoint


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("00086b62312d6231366b00000003", "00000000000000000000000000000000"),
        ("00066f726465727300000000", "00000000000001f900000000000001f9"),
    ],
)
def test_an_offset_sync_is_byte_for_byte_what_mirrormaker_2_writes(key: str, value: str) -> None:
    # From a topic that MirrorMaker 2 4.3.1 wrote.
    sync = OffsetSync.decode(bytes.fromhex(key), bytes.fromhex(value))
    assert sync in (OffsetSync("kb1-b16k", 3, 0, 0), OffsetSync("orders", 0, 505, 505))
    assert (sync.key().hex(), sync.value().hex()) == (key, value)


@pytest.mark.parametrize("key", [b"", b"\0\3a", b"\xff\xff", b"\0\1a\0\1b\0", b"\0\1\xff\0\0\0\0"])
@pytest.mark.parametrize("value", [b"", bytes(15), bytes(19), b"\0\1" + bytes(18)])
def test_what_is_no_checkpoint_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(ValueError, match="checkpoint"):
        Checkpoint.decode(key, value)
    with pytest.raises(ValueError, match="offset sync"):
        OffsetSync.decode(key, value)


def test_a_checkpoint_of_a_later_version_is_refused_with_a_sentence() -> None:
    checkpoint = Checkpoint("billing", "src.orders", 1, 500, 405)
    with pytest.raises(ValueError, match="checkpoint of version 1, can read 0"):
        Checkpoint.decode(checkpoint.key(), b"\0\1" + checkpoint.value()[2:])


def test_mirrormaker_2s_topics_have_its_names() -> None:
    assert checkpoints_topic("src", ".") == "src.checkpoints.internal"
    assert offset_syncs_topic("dst", ".") == "mm2-offset-syncs.dst.internal"
    assert checkpoints_topic("src", "_") == "src_checkpoints_internal"


def test_progress_round_trips() -> None:
    key = ProgressKey("cluster", "orders", 3, "east.orders")
    assert ProgressKey.decode(key.encode()) == key
    assert Progress.decode(PROGRESS.encode()) == PROGRESS
    assert progress_topic("east") == "mm2-headrace-progress.east.internal"


def test_an_earlier_headrace_finds_the_fields_that_it_requires() -> None:
    assert json.loads(PROGRESS.encode())["filter_generation"] == 0


def test_equal_keys_are_equal_bytes() -> None:
    assert json.loads(ProgressKey("c", "t", 0, "x").encode()) == {
        "source_cluster_id": "c",
        "topic": "t",
        "partition": 0,
        "target_topic": "x",
    }


def test_progress_of_a_later_version_is_refused_with_a_sentence() -> None:
    later = PROGRESS.encode().replace(b'"version":1', b'"version":4')
    with pytest.raises(ValueError, match="version 4, this headrace reads 1 to 3"):
        Progress.decode(later)
    with pytest.raises(ValueError, match="not a Progress record"):
        Progress.decode(b"{}")


def test_progress_of_an_older_headrace_was_never_reset_and_one_of_a_newer_is_read() -> None:
    without = PROGRESS.encode().replace(b'"reset_ms":0,', b"")
    assert without != PROGRESS.encode()
    assert Progress.decode(without) == PROGRESS
    # A newer driver may have stored fields before a roll-back: unknown fields are ignored.
    assert Progress.decode(PROGRESS.encode().replace(b'"epoch"', b'"new":1,"epoch"')) == PROGRESS


FENCED = replace(PROGRESS, writer=OwnerProducer("orders-source-task-0", 4000, 2), unfenced=(-1, 17))


def test_progress_names_the_producer_of_its_owner() -> None:
    assert Progress.decode(FENCED.encode()) == FENCED
    assert json.loads(FENCED.encode())["writer"] == {
        "transactional_id": "orders-source-task-0",
        "producer_id": 4000,
        "producer_epoch": 2,
    }


def test_progress_of_a_headrace_without_fences_names_no_producer() -> None:
    """It is readable, and the earlier version can read new progress, as it needs only offsets."""
    older = {
        name: value
        for name, value in json.loads(PROGRESS.encode()).items()
        if name not in {"writer", "unfenced"}
    }
    assert Progress.decode(json.dumps(older).encode()) == PROGRESS
    newer = json.loads(FENCED.encode())
    assert {name: newer[name] for name in older} == older, "among them the version that is checked"


PRESERVED = replace(FENCED, target_offset=7).preserving(OwnerProducer("headrace-f-data", 4711, 0))


def test_progress_names_the_producer_of_data_where_offsets_are_preserved() -> None:
    assert Progress.decode(PRESERVED.encode()) == PRESERVED
    assert PRESERVED.of_no_transaction() == PRESERVED, "a fail-over keeps it"
    assert Progress.decode(FENCED.encode()).data_writer is None


def test_no_headrace_without_preserved_offsets_reads_their_progress() -> None:
    """It would write markers of its own, and reads only versions 1 and 2."""
    assert json.loads(PRESERVED.encode())["version"] == 3
    one, other = PRESERVED.encode(), FENCED.encode()
    for damaged in (
        one.replace(b'"version":3', b'"version":1'),
        other.replace(b'"version":1', b'"version":3'),
    ):
        with pytest.raises(ValueError, match=r"version \d with(out)? a writer of data"):
            Progress.decode(damaged)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        PROGRESS.encode().replace(b'"epoch":3', b'"epoch":"3"'),
        PROGRESS.encode().replace(b'"epoch":3,', b""),
        PROGRESS.encode().replace(b'"source_offset":7', b'"source_offset":null'),
    ],
)
def test_what_is_no_progress_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a Progress record"):
        Progress.decode(data)


def test_what_is_no_key_of_progress_is_refused() -> None:
    key = ProgressKey("c", "t", 0, "x").encode()
    with pytest.raises(ValueError, match="not a ProgressKey record"):
        ProgressKey.decode(key.replace(b'"topic":"t"', b'"topic":["t"]'))


def test_skipped_records_are_kept_as_ranges_of_one_topic() -> None:
    kept: tuple[SkippedRange, ...] = ()
    for topic, offset in (("a", 3), ("a", 4), ("a", 9), ("b", 10), ("b", 2), ("b", 2)):
        kept = with_skipped(kept, topic, offset)
    assert [(one.source_topic_id, one.first, one.last) for one in kept] == [
        ("a", 3, 4),
        ("a", 9, 9),
        ("b", 10, 10),
        ("b", 2, 2),
    ]
    progress = replace(PROGRESS, skipped=kept)
    assert Progress.decode(progress.encode()) == progress
    for offset in range(0, 3 * MAX_SKIPPED, 2):
        kept = with_skipped(kept, "b", offset)
    assert len(kept) == MAX_SKIPPED
    assert kept[-1].last == 3 * MAX_SKIPPED - 2
