"""Committed offsets of groups, at coordinators that move, load, reject or are unreachable."""

from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v8 import response as committed
from kio.schema.offset_fetch.v8 import response as fetched
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64
from support.fake_broker import (
    FIND_COORDINATOR,
    NOT_THROTTLED,
    FakeBroker,
    Raw,
    Request,
    Serve,
    coordinated_by,
    in_turn,
    metadata_of,
)

from headrace.api import TopicPartition
from headrace.errors import Fatal, Retriable
from headrace.kafka import Admin, Committed, GroupActive

OFFSET_COMMIT, OFFSET_FETCH = 8, 9
AT = TopicPartition("orders", 0)
NONE = ErrorCode.none


def partition(number: int, offset: int, code: ErrorCode = NONE, metadata: str | None = "") -> Any:
    return fetched.OffsetFetchResponsePartitions(
        partition_index=i32(number),
        committed_offset=i64(offset),
        metadata=metadata,
        error_code=code,
    )


def group(name: str, *partitions: Any, code: ErrorCode = NONE) -> Any:
    topic = fetched.OffsetFetchResponseTopics(name=TopicName("orders"), partitions=partitions)
    return fetched.OffsetFetchResponseGroup(
        group_id=GroupId(name), topics=(topic,) if partitions else (), error_code=code
    )


def answer(*groups: Any) -> Any:
    return fetched.OffsetFetchResponse(throttle_time=NOT_THROTTLED, groups=groups)


def test_offsets_of_all_groups_are_read_at_once(broker: FakeBroker, admin: Admin) -> None:
    none, refused = partition(1, -1), partition(2, 7, ErrorCode.unknown_topic_or_partition)
    billing = group("billing", partition(0, 5, metadata="m"), none, refused)
    broker.script[OFFSET_FETCH] = lambda _: answer(
        billing, group("audit", partition(0, 9, metadata=None)), group("absent")
    )
    found = admin.committed(["billing", "audit", "absent"])
    expected = {"billing": {AT: Committed(5, "m")}, "audit": {AT: Committed(9, "")}, "absent": {}}
    assert found == (expected, {})
    (asked,) = broker.requests(OFFSET_FETCH)
    assert not asked.require_stable
    names = [(one.group_id, one.topics) for one in asked.groups]
    assert names == [("absent", None), ("audit", None), ("billing", None)]


@pytest.mark.parametrize(
    "code", [ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress]
)
def test_a_coordinator_that_moves_or_loads_is_asked_again(
    broker: FakeBroker, admin: Admin, code: ErrorCode
) -> None:
    broker.script[OFFSET_FETCH] = in_turn(
        answer(group("audit", partition(0, 9)), group("billing", code=code)),
        answer(group("billing", partition(0, 5))),
    )
    found = admin.committed(["billing", "audit"])
    assert found == ({"billing": {AT: Committed(5, "")}, "audit": {AT: Committed(9, "")}}, {})
    assert [len(one.groups) for one in broker.requests(OFFSET_FETCH)] == [2, 1]


def test_a_group_that_is_refused_holds_up_no_other(broker: FakeBroker, admin: Admin) -> None:
    broker.script[OFFSET_FETCH] = lambda _: answer(
        group("audit", partition(0, 9)),
        group("billing", code=ErrorCode.group_authorization_failed),
        group("gone", code=ErrorCode.group_id_not_found),
    )
    found, refused = admin.committed(["billing", "audit", "gone"])
    assert found == {"audit": {AT: Committed(9, "")}, "gone": {}}
    assert isinstance(refused["billing"], Fatal)
    assert "read the committed offsets of group billing of east" in str(refused["billing"])


def test_a_coordinator_that_is_away_concerns_its_groups_alone(
    broker: FakeBroker, admin: Admin, serve: Serve
) -> None:
    dead = serve({OFFSET_FETCH: lambda _: Raw(b"", close=True)})
    broker.script[3] = lambda _: metadata_of({1: broker.port, 2: dead.port}, {})
    broker.script[FIND_COORDINATOR] = lambda _: coordinated_by({"audit": 1, "billing": 2})
    broker.script[OFFSET_FETCH] = lambda _: answer(group("audit", partition(0, 9)))
    found, refused = admin.committed(["billing", "audit"])
    assert found == {"audit": {AT: Committed(9, "")}}
    assert isinstance(refused["billing"], Retriable)


def test_many_groups_take_several_requests(broker: FakeBroker, admin: Admin) -> None:
    def some(request: Request) -> Any:
        names = [one.group_id for one in request.message.groups]
        return answer(*(group(one, partition(0, int(one[1:]))) for one in names))

    broker.script[OFFSET_FETCH] = some
    found, refused = admin.committed([f"g{n}" for n in range(450)])
    assert refused == {}
    assert found == {f"g{n}": {AT: Committed(n, "")} for n in range(450)}
    assert [len(one.groups) for one in broker.requests(OFFSET_FETCH)] == [200, 200, 50]


def set_with(*codes: ErrorCode) -> Any:
    """Return an answer with a code for each partition."""
    partitions = tuple(
        committed.OffsetCommitResponsePartition(partition_index=i32(number), error_code=code)
        for number, code in enumerate(codes)
    )
    topic = committed.OffsetCommitResponseTopic(name=TopicName("orders"), partitions=partitions)
    return committed.OffsetCommitResponse(throttle_time=NOT_THROTTLED, topics=(topic,))


def test_offsets_are_set_once_the_coordinator_is_there(broker: FakeBroker, admin: Admin) -> None:
    broker.script[OFFSET_COMMIT] = in_turn(
        set_with(ErrorCode.not_coordinator, ErrorCode.not_coordinator), set_with(NONE, NONE)
    )
    broker.script[OFFSET_FETCH] = lambda _: answer(
        group("billing", partition(0, 5), partition(1, 6))
    )
    beyond = TopicPartition("orders", 1)
    assert admin.commit({"billing": {AT: Committed(5, "m"), beyond: Committed(6, "")}}) == {}
    _, asked = broker.requests(OFFSET_COMMIT)
    assert (asked.group_id, asked.generation_id_or_member_epoch, asked.member_id) == (
        *("billing", -1),
        "",
    )
    (topic,) = asked.topics
    assert topic.name == "orders"
    assert [
        (one.partition_index, one.committed_offset, one.committed_metadata)
        for one in topic.partitions
    ] == [(0, 5, "m"), (1, 6, "")]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.unknown_member_id, GroupActive),
        (ErrorCode.group_authorization_failed, Fatal),
        (ErrorCode.unknown_topic_or_partition, Retriable),
    ],
)
def test_a_group_that_is_not_set_holds_up_no_other(
    broker: FakeBroker, admin: Admin, code: ErrorCode, kind: type
) -> None:
    broker.script[OFFSET_COMMIT] = lambda asked: set_with(
        NONE, NONE if asked.message.group_id == "audit" else code
    )
    broker.script[OFFSET_FETCH] = lambda _: answer(group("audit", partition(0, 5)))
    one = {AT: Committed(5, "")}
    (failed,) = admin.commit({"billing": one, "audit": one}).items()
    assert failed[0] == "billing"
    assert isinstance(failed[1], kind)
    tried = "set the committed offsets of group billing of east"
    assert tried in str(failed[1])
    assert "orders/1" in str(failed[1])


def test_a_coordinator_that_goes_away_is_named_for_its_groups(
    broker: FakeBroker, admin: Admin
) -> None:
    broker.script[OFFSET_COMMIT] = lambda _: Raw(b"", close=True)
    one = {AT: Committed(5, "")}
    failed = admin.commit({"billing": one, "audit": one})
    assert failed.keys() == {"billing", "audit"}
    assert all(isinstance(error, Retriable) for error in failed.values())


def test_nothing_is_asked_for_no_group(broker: FakeBroker, admin: Admin) -> None:
    assert admin.committed([]) == ({}, {})
    assert admin.commit({}) == {}
    assert broker.connections == 0


@pytest.mark.parametrize(
    ("stored", "again"),
    [
        (partition(0, 5), False),
        (partition(0, 5 + 2**38), True),
        (partition(0, 4), True),
        (None, True),
        (replace(partition(0, 9), committed_leader_epoch=i32(3)), False),
    ],
    ids=["as it was set", "too high", "too low", "absent", "of a consumer"],
)
def test_offset_that_is_stored_wrongly_is_set_again(
    broker: FakeBroker, admin: Admin, stored: Any, again: bool
) -> None:
    broker.script[OFFSET_COMMIT] = lambda _: set_with(NONE)
    broker.script[OFFSET_FETCH] = lambda _: answer(group("billing", *filter(None, [stored])))
    assert admin.commit({"billing": {AT: Committed(5, "m")}}) == {}
    asked = broker.requests(OFFSET_COMMIT)
    assert len(asked) == 1 + again
    assert asked[0] == asked[-1]
