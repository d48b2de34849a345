"""Records that are compared one by one, selected by the sums of blocks.

``test_random_mutations.py`` compares with Spark's own sums and with random mirrors.
"""

import random
from collections.abc import Iterable
from zlib import crc32

from headrace.mirror_test import LoadedTopic, LoadManifest, PartitionSummary, Stream
from headrace_spark.blocks import PRIME, Block, doubts, size_of
from headrace_spark.records import OffsetRange

RUN, WHO, TOPIC = "run", "run-0-0", "orders"
SIZE = 10
MANIFEST = LoadManifest(
    run=RUN,
    topics=(
        LoadedTopic(
            name=TOPIC, keys=1, start_offsets=(5,), end_offsets=(36,), target_start_offsets=(0,)
        ),
    ),
    streams=(
        Stream(
            producer=WHO,
            topic=TOPIC,
            sent=30,
            partitions=(
                PartitionSummary(
                    partition=0,
                    first=0,
                    last=29,
                    count=30,
                    checksum=sum(crc32(b"%d" % seq) for seq in range(30)),
                ),
            ),
        ),
    ),
    started_ms=1,
    finished_ms=2,
    acknowledged_per_second=(),
)
LOG = [*range(5, 35)]
"""Offsets of the messages 0 to 29."""
END = 35


def block(
    who: str, number: int, records: Iterable[tuple[int, int]], log: list[int] | None
) -> Block:
    """Return a block of pairs of number and offset, all with the same content.

    ``log`` contains the offsets of all records in the log, by which rows are counted. Without it,
    the records' own offsets are the rows.
    """
    records = list(records)
    rows = [sorted(log).index(at) if log else at for _, at in records]
    hashes = [random.Random(f"{who}/{seq}").getrandbits(62) for seq, _ in records]
    weights = [(h & PRIME, h >> 31) for h in hashes]
    mixed = 0
    for one in hashes:
        mixed ^= one
    return Block(
        topic=TOPIC,
        producer=who,
        own=True,
        found_in=TOPIC,
        partition=0,
        number=number,
        count=len(records),
        claimed=len(records),
        checksum=sum(crc32(b"%d" % seq) for seq, _ in records),
        mixed=mixed,
        total=sum(one & PRIME for one in hashes),
        first=min(at for _, at in records),
        last=max(at for _, at in records),
        rows=sum(rows),
        weights=[sum(ws) for ws in zip(*weights, strict=True)],
        weighted=[
            sum(weight[n] * row % PRIME for weight, row in zip(weights, rows, strict=True))
            for n in range(2)
        ],
    )


def side(offsets: list[int], end: int | None, *, by_offset: bool = False) -> list[Block]:
    """Return the blocks of messages at these offsets, and the sentinel's block."""
    log = None if by_offset else offsets if end is None else [*offsets, end]
    found = [
        block(WHO, n, [(seq, offsets[seq]) for seq in range(n * SIZE, (n + 1) * SIZE)], log)
        for n in range(len(offsets) // SIZE)
    ]
    return found if end is None else [*found, block(RUN, 0, [(0, end)], log)]


SOURCE = side(LOG, END)


def keys(target: list[Block], source: list[Block] = SOURCE) -> set[tuple[str, int]]:
    return {(who, number) for _, who, number in doubts(source, target, MANIFEST).keys}


def test_the_same_records_in_the_same_order_are_not_in_doubt() -> None:
    """This holds for any first offset, and for any markers of transactions between them."""
    assert keys(SOURCE) == set()
    assert keys(side([at + 100 for at in LOG], END + 100)) == set()
    assert keys(side([at + (at > 20) for at in LOG], END + 1)) == set()
    assert keys(side([2 * at for at in LOG], 2 * END)) == set()


def test_the_same_records_at_other_offsets_are_where_these_have_to_be_the_same() -> None:
    def in_doubt(offsets: list[int], end: int) -> set[tuple[str, int]]:
        here, there = (side(*one, by_offset=True) for one in ((LOG, END), (offsets, end)))
        found = doubts(here, there, MANIFEST, same_offsets=True)
        return {(who, number) for _, who, number in found.keys}

    assert in_doubt(LOG, END) == set()
    assert in_doubt(LOG, END + 1) == {(RUN, 0)}
    assert in_doubt([*LOG[:20], *(at + 1 for at in LOG[20:])], END + 1) == {(WHO, 2), (RUN, 0)}
    assert in_doubt([*LOG[:25], *(at + 1 for at in LOG[25:])], END + 1) == {(WHO, 2), (RUN, 0)}
    # All but one.
    assert in_doubt([LOG[0] - 1, *LOG[1:]], END) == {(WHO, 0)}


def test_two_records_that_changed_places_are() -> None:
    swapped = [at + 7 for at in LOG]
    swapped[12], swapped[17] = swapped[17], swapped[12]
    assert keys(side(swapped, END + 7)) == {(WHO, 1)}


def test_a_record_that_comes_after_later_blocks_puts_all_of_its_producer_in_doubt() -> None:
    late = [*LOG[:3], 90, *LOG[4:]]
    assert keys(side(late, 91)) == {(WHO, 0), (WHO, 1), (WHO, 2)}


def test_blocks_that_changed_places_put_all_of_their_producer_in_doubt() -> None:
    assert keys(side([*LOG[10:20], *LOG[:10], *LOG[20:]], END)) == {(WHO, 0), (WHO, 1), (WHO, 2)}


def test_a_block_behind_the_sentinel_is_in_doubt_with_it() -> None:
    behind = [*LOG[:20], *(at + 50 for at in LOG[20:])]
    assert keys(side(behind, END)) == {(WHO, 2), (RUN, 0)}


def test_a_sentinel_that_neither_side_has_is_in_doubt() -> None:
    assert keys(side(LOG, None), side(LOG, None)) == {(RUN, 0)}


def test_what_both_sides_lack_of_what_was_acknowledged_puts_its_stream_in_doubt() -> None:
    found = doubts(side(LOG[:20], END), side(LOG[:20], END), MANIFEST)
    assert found.streams == {(TOPIC, WHO)}
    assert found.keys == {(TOPIC, WHO, 0), (TOPIC, WHO, 1)}


def test_only_the_part_of_a_log_that_is_in_doubt_is_read_again() -> None:
    swapped = [*LOG[:12], LOG[13], LOG[12], *LOG[14:]]
    target = side(swapped, END)
    found = doubts(SOURCE, target, MANIFEST)
    copies = OffsetRange(
        {f"copy.{TOPIC}": TOPIC}, {f"copy.{TOPIC}": (0, 3)}, {f"copy.{TOPIC}": (40, 3)}
    )
    again = found.where(copies, target)
    assert again.source_names == copies.source_names
    assert (again.start, again.end) == (
        {f"copy.{TOPIC}": (15, 3)},
        {f"copy.{TOPIC}": (25, 3)},
    )


def test_blocks_of_many_partitions_are_larger_so_that_there_are_not_too_many() -> None:
    assert size_of(MANIFEST) == 65_536
    topic = MANIFEST.topics[0].model_copy(update={"start_offsets": (0,) * 1_000})
    stream = MANIFEST.streams[0].model_copy(update={"sent": 1_000_000_000})
    large = MANIFEST.model_copy(update={"topics": (topic,), "streams": (stream,)})
    assert size_of(large) == 10_000_000
