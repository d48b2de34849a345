"""A reconcile against an oracle that has both complete logs, and against its purpose."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headrace.replication.reconcile import (
    Dropped,
    Marker,
    Record,
    ResumeReason,
    StoredProgress,
    reconcile,
)

OLD, OTHER, FOREIGN = 7, 8, 66
FENCES = {OLD: 3, OTHER: 1}
FIRST, FIRST_COPY = 100, 500

CONTENT = st.tuples(st.sampled_from([None, b"a", b"b"]), st.sampled_from([None, b"x", b"y"]))
"""Few values, so that different records are often equal."""
WRITER = st.sampled_from([OLD] * 6 + [OTHER] * 3 + [FOREIGN])
Source = list[Record | Dropped]
Target = list[Record | Dropped | Marker]


class Scene(NamedTuple):
    source: Source
    target: Target


@st.composite
def sources(draw: st.DrawFn) -> Source:
    """Draw records with aborted ones and holes between them."""
    entries: Source = []
    offset = FIRST
    for key, value in draw(st.lists(CONTENT, max_size=8)):
        match draw(st.sampled_from(["next"] * 4 + ["hole", "dropped"])):
            case "hole":
                offset += draw(st.integers(1, 3))
            case "dropped":
                last = offset + draw(st.integers(0, 2))
                entries.append(Dropped(offset, last))
                offset = last + 1
        entries.append(Record(offset, key, value, (), draw(st.sampled_from([0, 0, 0, 5]))))
        offset += 1
    return entries


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Draw a copy of the first records, spoiled in at most one way, with some markers."""
    source = draw(sources())
    copied = [entry for entry in source if isinstance(entry, Record)]
    copied = copied[: draw(st.integers(0, len(copied)))]
    spoil = draw(st.sampled_from(["not"] * 4 + ["left out", "twice", "compacted", "alien"]))
    place = draw(st.integers(0, len(copied)))
    match spoil:
        case "left out":
            del copied[place : place + 1]
        case "twice":
            copied[place:place] = copied[place : place + 1]
        case "compacted":
            gone = set(copied[place : place + 1])
            source = [entry for entry in source if entry not in gone]
        case "alien":
            copied.insert(place, Record(0, *draw(CONTENT)))
    target: Target = []
    offset = FIRST_COPY
    for record in copied:
        if draw(st.integers(0, 3)) == 0:
            offset += draw(st.sampled_from([0] * 9 + [1]))
            target.append(Marker(offset, OTHER, 0))
            offset += 1
        target.append(record._replace(offset=offset, producer_id=draw(WRITER)))
        offset += 1
    fences = draw(st.permutations([Marker(0, OLD, 3), Marker(0, OTHER, draw(st.integers(1, 2)))]))
    for fence in fences[: draw(st.sampled_from([2] * 6 + [0, 1]))]:
        target.append(fence._replace(offset=offset))
        offset += 1
    return Scene(source, target)


def content(record: Record) -> tuple[object, ...]:
    return record[1:5]


def records(entries: Source | Target) -> list[Record]:
    return [entry for entry in entries if isinstance(entry, Record)]


def oracle(scene: Scene) -> int | None:
    """Return the offset to resume at if the whole tail agrees, or None if it differs or is open."""
    markers = [entry for entry in scene.target if isinstance(entry, Marker)]
    if not all(
        any(marker.producer_id == writer and marker.producer_epoch >= epoch for marker in markers)
        for writer, epoch in FENCES.items()
    ):
        return None
    tail = scene.target
    if [entry.offset for entry in tail] != list(range(FIRST_COPY, FIRST_COPY + len(tail))):
        return None
    copies, originals = records(tail), records(scene.source)
    if any(copy.producer_id == FOREIGN for copy in copies):
        return None
    if [*map(content, copies)] != [*map(content, originals[: len(copies)])]:
        return None
    return originals[len(copies) - 1].offset + 1 if copies else FIRST


@given(scenes())
def test_it_decides_as_the_oracle(scene: Scene) -> None:
    stored = StoredProgress(FIRST, FIRST_COPY, frozenset({OLD, OTHER}))
    resume = reconcile(stored, iter(scene.target), iter(scene.source), FENCES)
    wanted = oracle(scene)
    assert (resume.outcome is ResumeReason.AGREES) == (wanted is not None)
    assert resume.source_offset == (FIRST if wanted is None else wanted)


@given(scenes())
def test_nothing_is_left_out_and_nothing_doubled(scene: Scene) -> None:
    stored = StoredProgress(FIRST, FIRST_COPY, frozenset({OLD, OTHER}))
    resume = reconcile(stored, iter(scene.target), iter(scene.source), FENCES)
    rest = [record for record in records(scene.source) if record.offset >= resume.source_offset]
    after = [*records(scene.target), *rest]
    if resume.outcome is ResumeReason.AGREES:
        assert [*map(content, after)] == [*map(content, records(scene.source))]
    else:
        assert rest == records(scene.source), "all of it once more"


@given(scenes())
def test_every_offset_is_accounted_for(scene: Scene) -> None:
    stored = StoredProgress(FIRST, FIRST_COPY, frozenset({OLD, OTHER}))
    resume = reconcile(stored, iter(scene.target), iter(scene.source), FENCES)
    if resume.outcome is not ResumeReason.UNFENCED:
        assert sum(resume.target) == resume.target_offset - FIRST_COPY
        assert resume.copied + resume.doubled_at_most == len(records(scene.target))
    if resume.outcome is ResumeReason.AGREES:
        assert sum(resume.source) == resume.source_offset - FIRST
        assert resume.copied == resume.source.records == resume.target.records
        assert resume.target.holes == 0
