"""Findings of a flow's check on brokers whose behaviour no broker of the tests has."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation
from kio.schema.errors import ErrorCode
from support.fake_broker import acls_are_listed, metadata_of, serving

from headrace.api import ClusterAccess, ClusterSpec
from headrace.errors import Fatal, Retriable
from headrace.kafka import Operation, Replicas, RightsAdmin, TopicRights


def test_a_broker_that_is_older_than_the_wire_client_speaks() -> None:
    with serving() as serve:
        old = serve({18: lambda _: b"\0\x23\0\0\0\0"})
        spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{old.port}")
        with pytest.raises(Fatal, match=r"is too old; headrace needs brokers of Kafka 2\.4"):
            RightsAdmin(ClusterAccess(spec)).check_version()


def test_one_that_is_new_enough_is_not_complained_of() -> None:
    with serving() as serve:
        broker = serve({3: lambda _: metadata_of({1: 9092}, {})})
        spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
        RightsAdmin(ClusterAccess(spec)).check_version()


def test_a_topic_that_is_made_while_it_is_asked_for_is_described_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would have no replica in sync, and no partition."""
    described = TopicRights(frozenset(Operation), True, 4, Replicas(1, 1))
    exists = Fatal("it exists")
    exists.__cause__ = KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
    absent: Any = ({}, {"copy"}, set())
    answers = iter([absent, absent, ({"copy": described}, set(), set())])
    monkeypatch.setattr(RightsAdmin, "_described", lambda *_: next(answers))
    monkeypatch.setattr(
        RightsAdmin,
        "_refused",
        lambda _, names, __: {Operation.CREATE: dict.fromkeys(names, exists)},
    )
    spec = ClusterSpec(alias="west", bootstrap_servers="127.0.0.1:1")
    assert RightsAdmin(ClusterAccess(spec)).topic_rights({"copy"}, {}) == {"copy": described}


@pytest.mark.parametrize(
    ("code", "operations", "allowed"),
    [
        (ErrorCode.cluster_authorization_failed, None, frozenset()),
        (ErrorCode.security_disabled, None, frozenset(Operation)),
        (ErrorCode.none, None, frozenset(Operation)),
        (ErrorCode.none, [AclOperation.DESCRIBE], {Operation.DESCRIBE}),
    ],
)
def test_no_right_at_all_on_the_cluster_is_not_taken_for_all(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, operations: object, allowed: object
) -> None:
    class OfCluster:
        def describe_cluster(self, **_: Any) -> "Future[Any]":
            future: Future[Any] = Future()
            future.set_result(SimpleNamespace(authorized_operations=operations))
            return future

        def poll(self, _: float) -> int:
            return 0

    monkeypatch.setattr("headrace.kafka.admin_requests.construct", lambda *_: OfCluster())
    with serving() as serve:
        broker = serve(acls_are_listed(code))
        spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
        assert RightsAdmin(ClusterAccess(spec)).cluster_rights() == allowed


class Groups:
    """Client with a list of answers for each group."""

    def __init__(self, **answers: list[int]) -> None:
        """Set the error codes of each group. 0 stands for the permission to describe it."""
        self._answers = answers

    def describe_consumer_groups(self, names: list[str], **_: Any) -> dict[str, "Future[Any]"]:
        return {name: self._answer(self._answers[name]) for name in names}

    def poll(self, _: float) -> int:
        return 0

    def _answer(self, codes: list[int]) -> "Future[Any]":
        future: Future[Any] = Future()
        if code := codes.pop(0) if len(codes) > 1 else codes[0]:
            future.set_exception(KafkaException(KafkaError(code)))
        else:
            future.set_result(SimpleNamespace(authorized_operations=[AclOperation.DESCRIBE]))
        return future


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Groups], RightsAdmin]:
    def make(client: Groups) -> RightsAdmin:
        monkeypatch.setattr("headrace.kafka.admin_requests.construct", lambda *_: client)
        spec = ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1")
        return RightsAdmin(ClusterAccess(spec), timeout_s=0.3)

    return make


def test_a_group_whose_coordinator_moves_is_asked_about_again(
    asked: Callable[[Groups], RightsAdmin],
) -> None:
    moving = [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, 0]
    admin = asked(Groups(a=moving, b=[KafkaError.GROUP_AUTHORIZATION_FAILED], c=[0]))
    described = frozenset({Operation.DESCRIBE})
    assert admin.group_rights(["a", "b", "c"]) == {"a": described, "b": frozenset(), "c": described}


def test_but_not_for_ever(asked: Callable[[Groups], RightsAdmin]) -> None:
    admin = asked(Groups(a=[KafkaError.NOT_COORDINATOR]))
    with pytest.raises(Retriable, match="could not describe group a of east"):
        admin.group_rights(["a"])
