"""Faults of a mirror, found by brute force.

They are the classes of docs/verdicts.md, *What is counted*, record by record. This module shares no
line with the checks of ``headrace_spark``.
"""

import re
from collections import Counter, defaultdict
from typing import NamedTuple

from support.bad_mirrors import NOW_MS, RUN, Case
from support.raw_records import Raw

from headrace.api import Partitioning, Verdict
from headrace.mirror_test import FindingType

Identity = tuple[str, str, int | None]
"""Identity of a message: topic that it was sent to, producer, number."""
Place = tuple[str | None, int | None, int | None]
NOWHERE: Place = (None, None, None)
EXACT = {
    FindingType.CORRUPTED,
    FindingType.REORDERED,
    FindingType.REPLAYED,
    FindingType.UNEQUAL_OFFSETS,
}
"""Classes of single copies; the other classes concern all copies of a message."""


class Finding(NamedTuple):
    """Several places: any of them will do."""

    kind: FindingType
    number: int
    identity: Identity
    differs: str
    places: frozenset[Place]


class _Seen(NamedTuple):
    identity: Identity
    is_own: bool
    record: Raw

    @property
    def place(self) -> Place:
        return (self.record.topic, self.record.partition, self.record.offset)

    @property
    def is_elsewhere(self) -> bool:
        return self.record.topic != self.identity[0]


def findings(case: Case) -> list[Finding]:
    """Return all findings of a case."""
    source, target = _all_seen(case.source), _all_seen(case.target)
    own_source, own_target = ([s for s in seen if s.is_own] for seen in (source, target))
    return [
        *_entries(case, own_source, own_target),
        *_changed(case, own_source, own_target),
        *_out_of_order(case, own_target),
        *_replayed(source, target),
        *(_moved(own_source, own_target) if case.same_offsets else ()),
    ]


def verdict(case: Case, found: list[Finding]) -> Verdict:
    """Return the verdict of a test that allows no finding."""
    kinds = {finding.kind for finding in found}
    not_the_mirrors = {
        FindingType.UNACKNOWLEDGED,
        FindingType.UNMANIFESTED,
        FindingType.SOURCE_LOST,
    }
    if kinds - not_the_mirrors or open_ends(case):
        return Verdict.FAILED
    if kinds & {FindingType.UNMANIFESTED, FindingType.SOURCE_LOST} or not _acknowledged(case):
        return Verdict.INCONCLUSIVE
    return Verdict.PASSED


def open_ends(case: Case) -> tuple[str, ...]:
    """Return the partitions whose sentinel is not on the target."""
    there = {s.identity for s in _all_seen(case.target) if s.is_own}
    return tuple(f"{topic}-{p}" for topic, run, p in _ends(case) if (topic, run, p) not in there)


def _ends(case: Case) -> set[Identity]:
    return {(topic.name, RUN, p) for topic in case.topics for p in range(topic.partitions)}


def _acknowledged(case: Case) -> set[Identity]:
    return {
        (stream.topic, stream.producer, seq)
        for stream in case.streams
        for seq in range(stream.sent)
        if not any(first <= seq <= last for first, last in stream.failed)
    }


def _refused(case: Case) -> set[Identity]:
    return {
        (stream.topic, stream.producer, seq)
        for stream in case.streams
        for first, last in stream.failed
        for seq in range(first, last + 1)
    }


def _entries(case: Case, source: list[_Seen], target: list[_Seen]) -> list[Finding]:
    sent, refused = _acknowledged(case) | _ends(case), _refused(case)
    originals: dict[Identity, list[_Seen]] = defaultdict(list)
    copies: dict[Identity, list[_Seen]] = defaultdict(list)
    for one in source:
        originals[one.identity].append(one)
    for one in target:
        copies[one.identity].append(one)
    found = []

    def add(kind: FindingType, identity: Identity, places: list[_Seen], count: int = 1) -> None:
        where = frozenset(one.place for one in places) or frozenset({NOWHERE})
        found.append(Finding(kind, count, identity, "", where))

    for identity in sent | refused | originals.keys() | copies.keys():
        here, there = originals.get(identity, []), copies.get(identity, [])
        if identity in sent and here and not there and identity[1] != RUN:
            add(FindingType.MISSING, identity, here)
        if len(there) > 1:
            add(FindingType.DUPLICATED, identity, _extra(here, there), len(there) - 1)
        if there and not here and identity not in sent | refused:
            add(FindingType.ALIEN, identity, there)
        if here and identity in refused:
            add(FindingType.UNACKNOWLEDGED, identity, here)
        if here and identity not in sent | refused:
            add(FindingType.UNMANIFESTED, identity, here)
        if identity in sent and not here:
            add(FindingType.SOURCE_LOST, identity, [])
    return found


def _extra(originals: list[_Seen], copies: list[_Seen]) -> list[_Seen]:
    """Return the copies besides the expected one."""
    homes = {one.record.partition for one in originals}
    at_home = [c for c in copies if not c.is_elsewhere and c.record.partition in homes]
    strays = [c for c in copies if c not in at_home]
    return (strays or sorted(at_home, key=lambda c: c.record.offset)[1:]) if at_home else copies


def _changed(case: Case, source: list[_Seen], target: list[_Seen]) -> list[Finding]:
    originals = {one.identity: one.record for one in source}
    by_key: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
    for one in target:
        if (seq := one.identity[2]) is not None:
            by_key[one.identity[0], seq % case.keys][one.record.partition] += 1
    found = []
    for copy in target:
        topic, _, seq = copy.identity
        if seq is None or (original := originals.get(copy.identity)) is None:
            continue
        home = original.partition
        if case.partitioning is Partitioning.BY_KEY:
            counts = by_key[topic, seq % case.keys]
            home = min(p for p, count in counts.items() if count == max(counts.values()))
        record = copy.record
        wrong = {
            "topic": record.topic != original.topic,
            "key": record.key != original.key,
            "value": record.value != original.value,
            "headers": record.headers != original.headers,
            "timestamp": record.timestamp_ms != original.timestamp_ms,
            "partition": case.partitioning is not Partitioning.ANY and record.partition != home,
        }
        if differs := ", ".join(name for name, is_wrong in wrong.items() if is_wrong):
            places = frozenset({copy.place})
            found.append(Finding(FindingType.CORRUPTED, 1, copy.identity, differs, places))
    return found


def _out_of_order(case: Case, target: list[_Seen]) -> list[Finding]:
    logs: dict[tuple[str, int], list[_Seen]] = defaultdict(list)
    for one in sorted(target, key=lambda one: one.record.offset):
        if not one.is_elsewhere and one.identity not in _refused(case):
            logs[one.record.topic, one.record.partition].append(one)
    found = []
    for (_, partition), log in logs.items():
        for place, one in enumerate(log):
            before = log[:place]
            _, producer, seq = one.identity
            if seq is None or any(b.identity == one.identity for b in before):
                continue
            behind = any(
                b.identity[1] == producer
                and b.identity[2] is not None
                and b.identity[2] % case.keys == seq % case.keys
                and b.identity[2] > seq
                for b in before
            )
            ends = [b.identity[2] or 0 for b in before if b.identity[1] == RUN]
            if producer != RUN and case.partitioning is Partitioning.PRESERVED:
                behind = behind or partition in ends
            if producer != RUN and case.partitioning is Partitioning.BY_KEY:
                behind = behind or any(end % case.keys == seq % case.keys for end in ends)
            if behind:
                places = frozenset({one.place})
                found.append(Finding(FindingType.REORDERED, 1, one.identity, "", places))
    return found


def _replayed(source: list[_Seen], target: list[_Seen]) -> list[Finding]:
    known = {one.identity for one in source if not one.is_own}
    return [
        Finding(FindingType.REPLAYED, 1, one.identity, "", frozenset({one.place}))
        for one in target
        if not one.is_own and one.identity not in known
    ]


def _moved(source: list[_Seen], target: list[_Seen]) -> list[Finding]:
    offsets = {one.identity: one.record.offset for one in source}
    return [
        Finding(FindingType.UNEQUAL_OFFSETS, 1, one.identity, "offset", frozenset({one.place}))
        for one in target
        if offsets.get(one.identity, one.record.offset) != one.record.offset
    ]


def _all_seen(laid: list[Raw]) -> list[_Seen]:
    return [seen for record in laid if (seen := _seen(record)) is not None]


def _seen(record: Raw) -> _Seen | None:
    """Return a record as the checks see it.

    The headers decide. If they do not name the producer and the number, the body does.
    """
    headers: dict[str, str] = {}
    for name, value in record.headers[:6]:
        headers.setdefault(name, value.decode(errors="replace"))
    who, number = headers.get("id"), _number(headers.get("seq"))
    end, sent_ms, topic = _number(headers.get("sentinel")), record.timestamp_ms, ""
    if not (_is_own(who) and (number is not None or end is not None)):
        body = (record.value or b"").decode(errors="replace")
        first, second, third = [*body.split(";")[:3], "", "", ""][:3]
        in_body = re.fullmatch("sentinel-([0-9]+)", second)
        end = end if end is not None or in_body is None else int(in_body[1])
        number = _number(second) if number is None else number
        sent_ms = sent_ms if _number(third) is None else int(third)
        if not _is_own(who):
            is_known = _is_own(first) or not _is_of_any(who)
            who = first if is_known and (_is_own(first) or _is_of_any(first)) else who
        named = re.match(r"[^;]*;[^;]*;[0-9]+;(?:[0-9]+;)?to=([A-Za-z0-9._-]+)/[0-9]+;", body)
        topic = named[1] if named else ""
    seq = number if end is None else end
    is_own = _is_own(who)
    if not is_own and not (_is_of_any(who) and seq is not None and sent_ms < NOW_MS):
        return None
    topic = headers.get("topic") or topic or record.topic
    return _Seen((topic, who or "", seq), is_own, record)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch("[0-9]+", text) else None


def _is_own(who: str | None) -> bool:
    return re.fullmatch(f"{RUN}(-[0-9]+-[0-9]+)?", who or "") is not None


def _is_of_any(who: str | None) -> bool:
    return re.fullmatch("[a-z0-9-]{1,20}-[0-9]+-[0-9]+", who or "") is not None
