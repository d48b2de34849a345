"""Records on the wire: MirrorMaker 2's bytes, and our own progress."""

import json
from dataclasses import replace

import pytest

from headrace.replication.heartbeats import Heartbeat
from headrace.replication.progress import Progress, ProgressKey, Writer, progress_topic

PROGRESS = Progress(
    source_topic_id="s",
    source_offset=7,
    leader_epoch=1,
    target_topic_id="t",
    target_offset=9,
    epoch=3,
    filter_generation=0,
    owner="orders-source-task-0 on driver-1/abc",
)


def test_a_heartbeat_is_byte_for_byte_what_mirrormaker_2_writes() -> None:
    # Read off a topic that MirrorMaker 2 4.3.1 wrote.
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


def test_progress_round_trips() -> None:
    key = ProgressKey("cluster", "orders", 3, "east.orders")
    assert ProgressKey.decode(key.encode()) == key
    assert Progress.decode(PROGRESS.encode()) == PROGRESS
    assert progress_topic("east") == "headrace-progress.east.internal"


def test_equal_keys_are_equal_bytes() -> None:
    assert json.loads(ProgressKey("c", "t", 0, "x").encode()) == {
        "source_cluster_id": "c",
        "topic": "t",
        "partition": 0,
        "target_topic": "x",
    }


def test_progress_of_a_later_version_is_refused_with_a_sentence() -> None:
    later = PROGRESS.encode().replace(b'"version":1', b'"version":2')
    with pytest.raises(ValueError, match="version 2, this headrace reads 1"):
        Progress.decode(later)
    with pytest.raises(ValueError, match="not a Progress record"):
        Progress.decode(b"{}")


def test_progress_of_an_older_headrace_was_never_reset_and_one_of_a_newer_is_read() -> None:
    without = PROGRESS.encode().replace(b'"reset_ms":0,', b"")
    assert without != PROGRESS.encode()
    assert Progress.decode(without) == PROGRESS
    # What a driver before a roll-back has stored: fields that are not known are left out.
    assert Progress.decode(PROGRESS.encode().replace(b'"epoch"', b'"new":1,"epoch"')) == PROGRESS


FENCED = replace(PROGRESS, writer=Writer("orders-source-task-0", 4000, 2), unfenced=(-1, 17))


def test_progress_names_the_producer_of_its_owner() -> None:
    assert Progress.decode(FENCED.encode()) == FENCED
    assert json.loads(FENCED.encode())["writer"] == {
        "transactional_id": "orders-source-task-0",
        "producer_id": 4000,
        "producer_epoch": 2,
    }


def test_progress_of_a_headrace_without_fences_names_no_producer() -> None:
    """It is read; and that headrace reads what is stored now, positions being all that it needs."""
    older = {
        name: value
        for name, value in json.loads(PROGRESS.encode()).items()
        if name not in {"writer", "unfenced"}
    }
    assert Progress.decode(json.dumps(older).encode()) == PROGRESS
    newer = json.loads(FENCED.encode())
    assert {name: newer[name] for name in older} == older, "among them the version that is checked"


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
