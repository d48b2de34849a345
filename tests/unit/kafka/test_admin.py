"""Answers of the client about offsets, including misleading ones."""

import gc
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from kio.schema.errors import ErrorCode
from support.fake_broker import acls_are_listed, serving

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.errors import Fatal, Retriable
from headrace.kafka import AclAdmin, Admin, Position

AT = TopicPartition("orders", 0)


class Answer(NamedTuple):
    offset: int


class FakeAdminClient:
    """Answers offsets one by one and repeats the last one. Without any, it never answers."""

    def __init__(self, *offsets: int) -> None:
        self._offsets = list(offsets)

    def list_offsets(
        self, asked: Mapping[confluent_kafka.TopicPartition, Any], **_: Any
    ) -> dict[confluent_kafka.TopicPartition, "Future[Answer]"]:
        future: Future[Answer] = Future()
        if self._offsets:
            left = self._offsets
            future.set_result(Answer(left.pop(0) if len(left) > 1 else left[0]))
        return dict.fromkeys(asked, future)

    def list_topics(self, **_: Any) -> Any:
        return type("Metadata", (), {"topics": {}})

    def describe_cluster(self, **_: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(SimpleNamespace(cluster_id="east-id"))
        return future

    def poll(self, _: float) -> int:
        return 0


def admin(monkeypatch: pytest.MonkeyPatch, *offsets: int, timeout_s: float = 0.3) -> Admin:
    client = FakeAdminClient(*offsets)
    monkeypatch.setattr("headrace.kafka.admin_requests.construct", lambda *_: client)
    spec = ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1")
    return Admin(ClusterAccess(spec), timeout_s=timeout_s)


@pytest.mark.parametrize("position", list(Position))
def test_an_offset_without_an_answer_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, position: Position
) -> None:
    # If a broker does not answer in time, the result has the client's mark and no error.
    east = admin(monkeypatch, OFFSET_INVALID, OFFSET_INVALID, 42, timeout_s=60)
    assert east.offsets([AT], position) == {AT: 42}


def test_an_offset_without_an_answer_is_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Retriable, match=r"read latest offsets of orders-0 on east .*no answer"):
        admin(monkeypatch, OFFSET_INVALID).offsets([AT], Position.LATEST)
    assert admin(monkeypatch, OFFSET_INVALID).known_ends([AT]) == {}


def test_no_record_at_a_time_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert admin(monkeypatch, -1).offsets_at([AT], 0) == {AT: -1}


def test_a_time_out_of_our_own_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # A driver that was frozen for longer than both time-outs finds its own expired first.
    monkeypatch.setattr("headrace.kafka.admin_requests.GRACE_S", 0.0)
    with pytest.raises(Retriable, match=r"latest offsets of orders-0 on east .*time"):
        admin(monkeypatch).offsets([AT], Position.LATEST)


class Interrupting(Future[Answer]):
    """Future during whose wait the Secrets change and another thread requests a client."""

    def __init__(self, east: Admin, client: "weakref.ref[FakeAdminClient]") -> None:
        super().__init__()
        self._east, self._client = east, client

    def result(self, timeout: float | None = None) -> Answer:
        self._east.cluster_id()
        gc.collect()
        assert self._client() is not None, "destroyed, with the request that is on its way"
        return Answer(42)


def test_a_client_is_kept_until_it_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Replaced(FakeAdminClient):
        def list_offsets(self, asked: Any, **_: Any) -> Any:
            return dict.fromkeys(asked, Interrupting(east, weakref.ref(self)))

    monkeypatch.setattr("headrace.kafka.admin_requests.construct", lambda *_: Replaced())
    monkeypatch.setattr("headrace.kafka.admin_requests.Renewal.due", True)
    spec = ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1")
    east = Admin(ClusterAccess(spec), timeout_s=0.3)
    assert east.offsets([AT], Position.LATEST) == {AT: 42}


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT])
def test_a_client_that_no_broker_answers_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    # librdkafka's issue 5301: after a fenced broker's answer without brokers it may never
    # reconnect, while a new client is answered at once.
    class Silent(FakeAdminClient):
        def describe_cluster(self, **_: Any) -> "Future[Any]":
            raise KafkaException(KafkaError(code))

    made = iter([Silent(), FakeAdminClient()])
    monkeypatch.setattr("headrace.kafka.admin_requests.construct", lambda *_: next(made))
    monkeypatch.setattr("headrace.kafka.admin_requests.diagnose", lambda *about: about[2])
    spec = ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1")
    east = Admin(ClusterAccess(spec), timeout_s=0.3)
    with pytest.raises(Retriable, match="read the cluster id of east"):
        east.cluster_id()
    assert east.cluster_id() == "east-id"


def test_a_client_that_keeps_to_a_dead_leader_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = iter([FakeAdminClient(OFFSET_INVALID), FakeAdminClient(42)])
    monkeypatch.setattr("headrace.kafka.admin_requests.construct", lambda *_: next(made))
    spec = ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1")
    east = Admin(ClusterAccess(spec), timeout_s=0.3)
    assert east.known_ends([AT]) == {}
    assert east.known_ends([AT]) == {AT: 42}


def test_a_broker_that_lists_no_groups_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each broker has its own answer: the errors of some are in the result.
    class OneIsSilent(FakeAdminClient):
        def list_consumer_groups(self, **_: Any) -> "Future[Any]":
            future: Future[Any] = Future()
            error = KafkaError(KafkaError._TIMED_OUT)
            future.set_result(SimpleNamespace(valid=[], errors=[error]))
            return future

    monkeypatch.setattr("headrace.kafka.admin_requests.construct", lambda *_: OneIsSilent())
    monkeypatch.setattr("headrace.kafka.admin_requests.diagnose", lambda *about: about[2])
    spec = ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1")
    with pytest.raises(Retriable, match="list the consumer groups of east"):
        Admin(ClusterAccess(spec), timeout_s=0.3).groups()


ACL = {
    "topic": "orders",
    "pattern": "Literal",
    "principal": "User:ann",
    "host": "*",
    "operation": "Read",
    "permission": "Allow",
}
NO_RIGHT, NO_AUTHORIZER = ErrorCode.cluster_authorization_failed, ErrorCode.security_disabled


@pytest.mark.parametrize(
    ("code", "request_acls", "sentence"),
    [
        (NO_RIGHT, lambda acls: acls.topic_acls(), "has no Describe on it .* Describe --cluster"),
        (NO_RIGHT, lambda acls: acls.add_acls([ACL]), "has no Alter on it .* Alter --cluster"),
        (NO_RIGHT, lambda acls: acls.remove_acls([ACL]), "User:ANONYMOUS has no Alter on it"),
        (NO_AUTHORIZER, lambda acls: acls.topic_acls(), "have no authorizer"),
    ],
)
def test_what_keeps_acls_from_being_read_and_changed_is_named(
    monkeypatch: pytest.MonkeyPatch,
    code: ErrorCode,
    request_acls: Callable[[AclAdmin], object],
    sentence: str,
) -> None:
    class Refusing(FakeAdminClient):
        def describe_acls(self, *_: Any, **__: Any) -> "Future[Any]":
            """Return an empty list, as the client does even if the brokers reject the request."""
            future: Future[Any] = Future()
            future.set_result([])
            return future

        def create_acls(self, acls: Any, **_: Any) -> "dict[Any, Future[Any]]":
            future: Future[Any] = Future()
            future.set_exception(KafkaException(KafkaError(code.value)))
            return dict.fromkeys(acls, future)

        delete_acls = create_acls

    monkeypatch.setattr("headrace.kafka.admin_requests.construct", lambda *_: Refusing())
    with serving() as serve:
        broker = serve(acls_are_listed(code))
        spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
        with pytest.raises(Fatal, match=f"ACLs of .*east.*{sentence}"):
            request_acls(AclAdmin(ClusterAccess(spec)))
