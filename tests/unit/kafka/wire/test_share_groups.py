"""Share groups at coordinators that move, reject, or are too old."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.alter_share_group_offsets.v0 import response as altered
from kio.schema.describe_share_group_offsets.v0 import response as starts
from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1 import response as described
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64
from support.fake_broker import (
    FIND_COORDINATOR,
    NOT_THROTTLED,
    FakeBroker,
    coordinated_by,
    in_turn,
    served,
)

from headrace.api import TopicPartition
from headrace.errors import Fatal
from headrace.kafka import Admin, GroupActive, NoShareGroups

DESCRIBE, STARTS, ALTER = 77, 90, 91
AT, BEYOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
NONE = ErrorCode.none


def start(partition: int, offset: int, code: ErrorCode = NONE) -> Any:
    return starts.DescribeShareGroupOffsetsResponsePartition(
        partition_index=i32(partition),
        start_offset=i64(offset),
        leader_epoch=i32(0),
        error_code=code,
    )


def starts_of(*partitions: Any, code: ErrorCode = NONE) -> Any:
    topic = starts.DescribeShareGroupOffsetsResponseTopic(
        topic_name=TopicName("orders"), topic_id=UUID(int=7), partitions=partitions
    )
    group = starts.DescribeShareGroupOffsetsResponseGroup(
        group_id=GroupId("packing"), topics=(topic,) if partitions else (), error_code=code
    )
    return starts.DescribeShareGroupOffsetsResponse(throttle_time=NOT_THROTTLED, groups=(group,))


def altered_with(code: ErrorCode, of_partition: ErrorCode = NONE) -> Any:
    one = altered.AlterShareGroupOffsetsResponsePartition(
        partition_index=i32(0), error_code=of_partition
    )
    topic = altered.AlterShareGroupOffsetsResponseTopic(
        topic_name=TopicName("orders"), topic_id=UUID(int=7), partitions=(one,)
    )
    return altered.AlterShareGroupOffsetsResponse(
        throttle_time=NOT_THROTTLED, error_code=code, responses=(topic,)
    )


def group_of(assignment_epoch: int, code: ErrorCode = NONE) -> Any:
    group = described.DescribedGroup(
        error_code=code,
        group_id=GroupId("packing"),
        group_state="Empty",
        group_epoch=i32(9),
        assignment_epoch=i32(assignment_epoch),
        assignor_name="simple",
        members=(),
    )
    return described.ShareGroupDescribeResponse(throttle_time=NOT_THROTTLED, groups=(group,))


def test_start_offsets_are_read(broker: FakeBroker, admin: Admin) -> None:
    gone = start(2, 7, ErrorCode.unknown_topic_or_partition)
    broker.script[STARTS] = lambda _: starts_of(start(0, 5), start(1, -1), gone)
    assert admin.share_starts(["packing"]) == ({"packing": {AT: 5}}, {})
    (asked,) = broker.requests(STARTS)
    assert [(one.group_id, one.topics) for one in asked.groups] == [("packing", None)]


def test_a_group_that_is_absent_has_none_and_was_not_used(broker: FakeBroker, admin: Admin) -> None:
    broker.script[STARTS] = lambda _: starts_of(code=ErrorCode.group_id_not_found)
    broker.script[DESCRIBE] = lambda _: group_of(0, ErrorCode.group_id_not_found)
    assert admin.share_starts(["packing"]) == ({"packing": {}}, {})
    assert admin.used_share_groups(["packing"]) == (set(), {})


def test_a_start_offset_that_cannot_be_read_is_not_taken_for_none(
    broker: FakeBroker, admin: Admin
) -> None:
    refused = start(1, -1, ErrorCode.coordinator_load_in_progress)
    broker.script[STARTS] = in_turn(
        starts_of(start(0, 5), refused), starts_of(start(0, 5), start(1, 3))
    )
    assert admin.share_starts(["packing"]) == ({"packing": {AT: 5, BEYOND: 3}}, {})
    broker.script[STARTS] = lambda _: starts_of(start(0, 5, ErrorCode.unknown_server_error))
    found, refused = admin.share_starts(["packing"])
    assert found == {}
    assert "share group packing of east" in str(refused["packing"])


@pytest.mark.parametrize(("epoch", "used"), [(0, False), (1, False), (2, True), (5, True)])
def test_a_group_was_used_if_it_had_an_assignment(
    broker: FakeBroker, admin: Admin, epoch: int, used: bool
) -> None:
    broker.script[DESCRIBE] = lambda _: group_of(epoch)
    assert admin.used_share_groups(["packing"]) == ({"packing"} if used else set(), {})


def test_start_offsets_are_set_once_the_coordinator_is_there(
    broker: FakeBroker, admin: Admin
) -> None:
    broker.script[FIND_COORDINATOR] = in_turn(
        coordinated_by({"packing": -1}, ErrorCode.coordinator_not_available),
        *[coordinated_by({"packing": 1})] * 2,
    )
    broker.script[ALTER] = in_turn(
        altered_with(ErrorCode.not_coordinator), altered_with(ErrorCode.none)
    )
    assert admin.set_share_starts({"packing": {AT: 5, BEYOND: 6}}) == {}
    _, asked = broker.requests(ALTER)
    (topic,) = asked.topics
    assert (asked.group_id, topic.topic_name) == ("packing", "orders")
    assert [(one.partition_index, one.start_offset) for one in topic.partitions] == [(0, 5), (1, 6)]


@pytest.mark.parametrize(
    ("code", "of_partition", "kind"),
    [
        (ErrorCode.non_empty_group, NONE, GroupActive),
        (ErrorCode.group_authorization_failed, NONE, Fatal),
        (ErrorCode.group_id_not_found, NONE, Fatal),
        (NONE, ErrorCode.topic_authorization_failed, Fatal),
        (ErrorCode.unsupported_version, NONE, NoShareGroups),
    ],
)
def test_why_they_are_not_set(
    broker: FakeBroker, admin: Admin, code: ErrorCode, of_partition: ErrorCode, kind: type
) -> None:
    broker.script[ALTER] = lambda _: altered_with(code, of_partition)
    failed = admin.set_share_starts({"packing": {AT: 5}})
    assert isinstance(failed["packing"], kind)


def test_brokers_without_share_groups_are_not_asked(broker: FakeBroker, admin: Admin) -> None:
    without = {DESCRIBE: (0, 0), STARTS: (1, 2)}
    broker.script[18] = lambda _: served(without)
    for failed in (
        admin.share_starts(["packing"])[1],
        admin.used_share_groups(["packing"])[1],
        admin.set_share_starts({"packing": {AT: 5}}),
    ):
        assert isinstance(failed["packing"], NoShareGroups)
        assert str(failed["packing"]).endswith("they take Kafka 4.1 or newer")


def test_nothing_is_asked_for_no_group(broker: FakeBroker, admin: Admin) -> None:
    assert admin.share_starts([]) == ({}, {})
    assert admin.set_share_starts({}) == {}
    assert admin.used_share_groups([]) == (set(), {})
    assert broker.connections == 0


def test_when_no_broker_answers_each_group_has_the_reason(broker: FakeBroker, admin: Admin) -> None:
    broker.close()
    found, failed = admin.share_starts(["packing", "sorting"])
    assert found == {}
    assert failed.keys() == {"packing", "sorting"}
