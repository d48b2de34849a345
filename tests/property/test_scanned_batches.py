"""``scan`` and ``stamp`` have the same results in C and in Python for any input."""

import random
import struct
import subprocess
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.join_helper import build_script, compiled_native
from support.stored import CODECS, batches_of, content, log_batch, marker, message, sealed

from headrace.kafka.wire import (
    BatchVerdict,
    CorruptBatch,
    ProducerIdentity,
    Scanned,
    Scanner,
    Stop,
    StoredRecord,
    batch_at,
    refuse_corrupt,
    stamp,
    stamped,
)
from headrace.kafka.wire.native import LIBRARY
from headrace.kafka.wire.scan import (
    BASE,
    COLUMNS,
    LAST,
    LEADER_EPOCH,
    PLACE,
    RECORDS,
    RUN_BYTES,
    RUN_COLUMNS,
    RUN_FIRST,
    RUN_RECORDS,
    RUN_ROWS,
    RUN_VERDICT,
    SIZE,
    VERDICT,
)

FUZZER = Path(__file__).parents[1] / "support" / "native_fuzz.c"
PRODUCERS = st.sampled_from([-1, 5, 6, 7])
Pairs = list[tuple[int, int]]
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DFILES")


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Batches of a log: compacted, in transactions, of old formats, of several leader epochs."""
    offset, epoch = draw(st.sampled_from([0, 7, 2**40])), 3
    log: list[bytes] = []
    for _ in range(draw(st.integers(0, 6))):
        offset += draw(st.sampled_from([0, 0, 0, 1, 9]))
        epoch += draw(st.sampled_from([0, 0, 0, 1]))
        kind = draw(st.sampled_from(["data", "data", "data", "marker", "empty", "old"]))
        if kind == "marker":
            commit = draw(st.booleans())
            log.append(bytes(marker(offset, draw(PRODUCERS), commit=commit)))
        elif kind == "empty":
            log.append(bytes(log_batch([], base_offset=offset, last_offset=offset)))
        elif kind == "old":
            log.append(bytes(message(offset, b"k", b"v", magic=draw(st.integers(0, 1)))))
        else:
            count, step = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 1, 2]))
            records = [
                StoredRecord(offset + step * n, 5 + n, content(None, b"v" * n))
                for n in range(count)
            ]
            log.append(
                bytes(
                    log_batch(
                        records,
                        codec=draw(st.sampled_from(CODECS)),
                        attributes=draw(st.sampled_from([0, 0, 0x08, 0x10, 0x10, 0x40])),
                        producer_id=draw(PRODUCERS),
                        leader_epoch=epoch,
                    )
                )
            )
            offset = records[-1].offset
        offset += 1
    return log


aborted_pairs = st.lists(st.tuples(st.sampled_from([5, 6, 7]), st.integers(0, 20)), max_size=4)


def facts(scanned: Scanned) -> tuple[list[int], list[int], int, Stop]:
    rows, runs = scanned.row_count * COLUMNS, scanned.run_count * RUN_COLUMNS
    return (
        list(scanned.rows[:rows]),
        list(scanned.runs[:runs]),
        scanned.consumed_bytes,
        scanned.stop,
    )


def both(data: bytes, start: int, aborted: Sequence[tuple[int, int]]) -> Scanned:
    """Return the scan in C, after comparing it with the scan in Python."""
    memory = memoryview(bytearray(data))
    in_c = Scanner(compiled_native()).scan(memory, start, aborted)
    # Only Python scans memory that cannot be written to.
    in_python = Scanner(compiled_native()).scan(memory.toreadonly(), start, aborted)
    assert memory == data
    assert facts(in_c) == facts(in_python)
    return in_c


@given(logs(), st.integers(0, 20), aborted_pairs, st.integers(0, 90))
def test_c_and_python_describe_the_same(
    log: list[bytes], start: int, aborted: Pairs, missing: int
) -> None:
    whole = b"".join(log)
    cut = whole[: max(0, len(whole) - missing)]
    scanned = both(cut, start, aborted)

    complete, size = 0, 0
    while complete < len(log) and size + len(log[complete]) <= len(cut):
        size += len(log[complete])
        complete += 1
    assert (scanned.row_count, scanned.consumed_bytes) == (complete, size)
    assert scanned.stop is (Stop.END if size == len(cut) else Stop.TRUNCATED)
    memory = memoryview(bytearray(cut))
    assert [batch_at(memory, scanned.rows, number).data for number in range(complete)] == log[
        :complete
    ]


@given(logs(), st.integers(0, 20), aborted_pairs)
def test_runs_have_one_verdict_and_epoch_and_no_gap(
    log: list[bytes], start: int, aborted: Pairs
) -> None:
    """Source and target offsets of a run then differ by a constant."""
    scanned = both(b"".join(log), start, aborted)
    rows, runs = scanned.rows, scanned.runs
    covered: list[int] = []
    for run in range(scanned.run_count):
        at = run * RUN_COLUMNS
        first, count = runs[at + RUN_FIRST], runs[at + RUN_ROWS]
        numbers = range(first, first + count)
        covered += numbers
        assert count
        for number in numbers:
            row = number * COLUMNS
            assert rows[row + VERDICT] == runs[at + RUN_VERDICT]
            if number > first:
                assert rows[row + LEADER_EPOCH] == rows[row - COLUMNS + LEADER_EPOCH]
                assert rows[row + BASE] == rows[row - COLUMNS + LAST] + 1
        assert runs[at + RUN_RECORDS] == sum(rows[n * COLUMNS + RECORDS] for n in numbers)
        assert runs[at + RUN_BYTES] == sum(rows[n * COLUMNS + SIZE] for n in numbers)
        if runs[at + RUN_VERDICT] in {BatchVerdict.COPY, BatchVerdict.PLAIN}:
            last = (first + count - 1) * COLUMNS
            offsets = rows[last + LAST] + 1 - rows[first * COLUMNS + BASE]
            assert runs[at + RUN_RECORDS] == offsets
    assert covered == list(range(scanned.row_count))


@given(logs(), st.data(), aborted_pairs, st.booleans())
def test_damage_ends_the_scan_where_python_refuses_it(
    log: list[bytes], data: st.DataObject, aborted: Pairs, seal: bool
) -> None:
    whole = [bytearray(one) for one in log]
    if not whole:
        return
    damaged = data.draw(st.sampled_from(whole))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if seal and len(damaged) > 61:
        sealed(damaged)
    memory = memoryview(bytearray().join(whole))
    scanned = both(bytes(memory), 0, aborted)

    if scanned.stop is Stop.CORRUPT:
        with pytest.raises(CorruptBatch):
            refuse_corrupt(memory, scanned)
    else:
        refuse_corrupt(memory, scanned)


@given(logs(), st.data())
def test_a_wrong_checksum_is_corrupt(log: list[bytes], data: st.DataObject) -> None:
    whole = [bytearray(one) for one in log]
    new = [number for number, one in enumerate(log) if one[16] == 2]
    if not new:
        return
    number = data.draw(st.sampled_from(new))
    whole[number][data.draw(st.integers(57, len(log[number]) - 1))] ^= 1
    scanned = both(b"".join(whole), 0, [])

    assert (scanned.stop, scanned.row_count) == (Stop.CORRUPT, number)


@given(st.binary(max_size=300), logs(), st.integers(0, 300))
def test_bytes_that_are_no_batches_are_described_alike(
    junk: bytes, log: list[bytes], place: int
) -> None:
    whole = b"".join(log)
    both(whole[:place] + junk + whole[place:], 0, [(5, 0)])


@pytest.mark.parametrize("count", [255, 256, 257, 5000])
def test_any_number_of_batches_fits(count: int) -> None:
    log = b"".join(
        bytes(log_batch([StoredRecord(offset, 5, content(None, b"v"))])) for offset in range(count)
    )
    scanned = both(log, 0, [])

    assert (scanned.row_count, scanned.run_count, scanned.stop) == (count, 1, Stop.END)


def test_memory_that_cannot_be_written_to_is_scanned_in_python() -> None:
    log = bytes(log_batch([StoredRecord(0, 5, content(None, b"v"))]))

    assert Scanner(compiled_native()).scan(memoryview(log), 0, []).row_count == 1


def test_an_offset_after_the_largest_is_corrupt() -> None:
    batch = log_batch([StoredRecord(0, 5, content(None, b"v"))])
    struct.pack_into(">q", batch, 0, 2**63 - 1)
    scanned = both(bytes(batch), 0, [])

    assert scanned.stop is Stop.CORRUPT
    with pytest.raises(CorruptBatch, match="ends after the largest offset"):
        refuse_corrupt(memoryview(batch), scanned)


@pytest.mark.parametrize("code", [5, 6, 7])
@pytest.mark.parametrize("flags", [0, 0x08, 0x10])
def test_a_codec_that_does_not_exist_is_corrupt(code: int, flags: int) -> None:
    whole = log_batch([StoredRecord(0, 5, content(None, b"v"))])
    damaged = log_batch([StoredRecord(1, 5, content(None, b"v"))], attributes=flags | code)
    memory = whole + damaged
    scanned = both(bytes(memory), 0, [])

    assert (scanned.stop, scanned.row_count) == (Stop.CORRUPT, 1)
    with pytest.raises(CorruptBatch, match=f"base offset 1, .* has codec {code}: Kafka has 0 to 4"):
        refuse_corrupt(memoryview(memory), scanned)


@given(
    logs(),
    st.integers(0, 2**62),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.booleans(),
)
def test_c_and_python_stamp_the_same(
    log: list[bytes], producer_id: int, epoch: int, sequence: int, transactional: bool
) -> None:
    new = [one for one in log if one[16] == 2]
    memory = memoryview(bytearray().join(new))
    producer = ProducerIdentity(producer_id, epoch, transactional)
    scanned = Scanner(compiled_native()).scan(memory, 0, [])
    rows = scanned.rows[: scanned.row_count * COLUMNS]
    before = bytes(memory)

    in_c = stamp(memory, rows, producer, sequence, compiled_native())
    in_python = stamp(memory.toreadonly(), rows, producer, sequence)

    assert (in_c, bytes(memory)) == (in_python, before)
    for number, batch in enumerate(batches_of(*new)):
        header = in_c[61 * number : 61 * (number + 1)]
        assert header == stamped(batch, producer, sequence).header
        [copy] = batches_of(header, batch.data[61:])
        assert copy.intact
        sequence = sequence + batch.record_count & 2**31 - 1


@pytest.mark.parametrize(("column", "value"), [(PLACE, -1), (PLACE, 2**40), (SIZE, 60), (SIZE, 99)])
def test_a_row_outside_of_the_chunk_is_not_stamped(column: int, value: int) -> None:
    memory = memoryview(log_batch([StoredRecord(0, 5, content(None, b"v"))]))
    rows = Scanner(compiled_native()).scan(memory, 0, []).rows[:COLUMNS]
    rows[column] = value

    with pytest.raises(ValueError, match="not in the response"):
        stamp(memory, rows, ProducerIdentity(7, 0), 0, compiled_native())


def corpus(folder: Path, changed: int) -> list[Path]:
    """Write inputs of ``native_fuzz.c``: chunks as brokers send them, and changed ones."""
    chance = random.Random(1)
    logs = [b"".join(bytes(log_batch(records(3), codec=codec)) for _ in (0,)) for codec in CODECS]
    plain = [bytes(log_batch(records(3, first))) for first in (0, 3, 6)]
    transactional = bytes(log_batch(records(3, 9), attributes=0x10, producer_id=5))
    markers = [bytes(marker(12, 5, commit=commit)) for commit in (False, True)]
    logs += [b"".join(plain), *(transactional + one for one in markers)]
    logs += [b"".join(plain) + transactional + markers[0], plain[0][:-9], plain[0][:40]]
    logs += [bytes(log_batch(records(3)[::2])), bytes(log_batch([], base_offset=2, last_offset=4))]
    logs += [bytes(message(3, b"k", b"v", magic=magic)) for magic in (0, 1)]
    heads = [bytes((0, 0, 0, 0)), bytes((2, 1, 0, 0, 5, 1)), bytes((0, 2, 65, 1, 5, 3, 6, 2))]
    inputs = [head + log for head in heads for log in logs]
    for _ in range(changed):
        made = bytearray(chance.choice(inputs))
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(made))
            made[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        if chance.random() < 0.3:
            del made[chance.randrange(1, len(made) + 1) :]
        inputs.append(bytes(made))
    files = []
    for number, content_ in enumerate(inputs):
        files.append(folder / f"{number:05}")
        files[-1].write_bytes(content_)
    return files


def records(count: int, first: int = 0) -> list[StoredRecord]:
    return [StoredRecord(first + n, 5 + n, content(b"k", b"v" * n)) for n in range(count)]


def test_the_code_in_c_touches_no_other_memory(tmp_path: Path) -> None:
    """AddressSanitizer and UndefinedBehaviorSanitizer watch it read and write."""
    program = tmp_path / "native_fuzz"
    command = [*build_script().compiler(), *SANITIZED, f"-I{LIBRARY.parent}", "-o", program, FUZZER]
    subprocess.run(command, check=True)
    folder = tmp_path / "corpus"
    folder.mkdir()
    files = corpus(folder, changed=3000)

    done = subprocess.run([program, *files], check=False, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, f"{len(files)} inputs\n"), done.stderr


def test_the_sanitizers_find_a_read_outside_of_the_chunk(tmp_path: Path) -> None:
    """Prove that the test above can fail."""
    source = (LIBRARY.parent / "native.c").read_text()
    wrong = source.replace("size > left) return TRUNCATED", "size > left + 9) return TRUNCATED")
    assert wrong != source
    (tmp_path / "native.c").write_text(wrong)
    program = tmp_path / "native_fuzz"
    include = [f"-I{tmp_path}", f"-I{LIBRARY.parent}"]
    command = [*build_script().compiler(), *SANITIZED, *include, "-o", program, FUZZER]
    subprocess.run(command, check=True)
    [file] = corpus_of(tmp_path, bytes(log_batch(records(3)))[:-4])

    done = subprocess.run([program, file], check=False, capture_output=True, text=True)

    assert done.returncode
    assert "AddressSanitizer" in done.stderr


def corpus_of(folder: Path, *logs: bytes) -> list[Path]:
    files = []
    for number, log in enumerate(logs):
        files.append(folder / f"input-{number}")
        files[-1].write_bytes(bytes(4) + log)
    return files


def test_arrays_have_numbers_of_eight_bytes() -> None:
    """The code in C requires that size."""
    assert array("q").itemsize == 8
