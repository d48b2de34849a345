"""Topics that are deleted by their ids."""

from uuid import UUID

from kio.schema.delete_topics.v6 import response as deleted
from kio.schema.errors import ErrorCode
from support.fake_broker import NOT_THROTTLED, FakeBroker

from headrace.kafka import Admin

DELETE = 20
IDS = {"orders": "AAAAAAAAAAAAAAAAAAAABQ", "gone": "AAAAAAAAAAAAAAAAAAAABg"}


def outcome(id: int, code: ErrorCode) -> deleted.DeletableTopicResult:
    return deleted.DeletableTopicResult(name=None, topic_id=UUID(int=id), error_code=code)


def test_a_topic_whose_deletion_is_refused_is_named_and_an_absent_one_is_deleted(
    broker: FakeBroker, admin: Admin
) -> None:
    broker.script[DELETE] = lambda _: deleted.DeleteTopicsResponse(
        throttle_time=NOT_THROTTLED,
        responses=(
            outcome(5, ErrorCode.topic_authorization_failed),
            outcome(6, ErrorCode.unknown_topic_id),
        ),
    )
    failed = admin.delete_topics_by_id(IDS)
    assert list(failed) == ["orders"]
    assert f"delete topic {UUID(int=5)} on east" in str(failed["orders"])
    (asked,) = broker.requests(DELETE)
    assert [one.topic_id for one in asked.topics] == [UUID(int=5), UUID(int=6)]
